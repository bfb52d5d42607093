"""What the tests of the deployment files may ask for."""

from deploy.programs import build_packages, compose, hadolint, helm, schemas

__all__ = ["build_packages", "compose", "hadolint", "helm", "schemas"]
