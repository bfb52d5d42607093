"""What the tests of the deployment files may ask for."""

from deploy.programs import compose, hadolint, helm, schemas

__all__ = ["compose", "hadolint", "helm", "schemas"]
