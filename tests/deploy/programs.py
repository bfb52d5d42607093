"""The real programs that read the deployment files, as `make check-deploy` brings them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from deploy.prepare import KUBERNETES_VERSIONS
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "paceline"
TOOLS = ROOT / ".venv" / "tools"

_DEFINITIONS = "/api/_definitions.json"
"""What the definitions call themselves, where one refers to another."""

Manifest = Mapping[str, Any]


def tool(name: str) -> Path:
    """Where a tool is. Without it the test is left out; but not in CI."""
    if (path := TOOLS / name).exists():
        return path
    message = f"{path} is not there: `make check-deploy` brings it, where pip can"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def _run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    # Nothing of the caller's environment: a variable that is set here would hide that a file asks for it.
    clean = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment}
    return subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Helm:
    """Helm, and the chart."""

    binary: Path

    def lint(self, *options: str | Path) -> subprocess.CompletedProcess[str]:
        return _run(self.binary, "lint", "--strict", CHART, *options)

    def template(self, *options: str | Path) -> subprocess.CompletedProcess[str]:
        return _run(self.binary, "template", "fleet", CHART, "--namespace", "agents", *options)

    def notes(self, *options: str | Path) -> str:
        """What is told to whoever installs the chart."""
        said = _run(self.binary, "install", "fleet", CHART, "--dry-run=client", *options)
        assert said.returncode == 0, said.stderr
        return said.stdout.rpartition("NOTES:\n")[2]

    def manifests(self, *options: str | Path) -> list[Manifest]:
        """What is rendered. Fails with Helm's own words."""
        rendered = self.template(*options)
        assert rendered.returncode == 0, rendered.stderr
        return [manifest for manifest in yaml.safe_load_all(rendered.stdout) if manifest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compose:
    """Docker Compose, which reads the file and starts nothing."""

    binary: Path

    def config(self, *profiles: str, file: Path = ROOT / "docker-compose.yml") -> subprocess.CompletedProcess[str]:
        chosen = [part for profile in profiles for part in ("--profile", profile)]
        return _run(self.binary, "--file", file, *chosen, "config", "--format", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schemas:
    """What a cluster takes: Kubernetes' own definitions by version, and the models of what operators add to it."""

    kubernetes: Mapping[str, Mapping[str, Any]]
    added: Mapping[str, Any]

    def refusals(self, manifest: Manifest) -> list[str]:
        """Why a cluster would refuse this, in words."""
        if manifest["kind"] in self.added:
            return self._refused_by_operator(manifest)
        return [
            f"{version}: {error.message}"
            for version, definitions in self.kubernetes.items()
            for error in _validator(definitions, manifest).iter_errors(manifest)
        ]

    def _refused_by_operator(self, manifest: Manifest) -> list[str]:
        try:
            self.added[manifest["kind"]].model_validate(manifest)
        except ValueError as error:
            return [str(error)]
        return []


def _validator(definitions: Mapping[str, Any], manifest: Manifest) -> Draft202012Validator:
    group, _, version = manifest["apiVersion"].rpartition("/")
    name = f"io.k8s.api.{group.partition('.')[0] or 'core'}.{version}.{manifest['kind']}"
    assert name in definitions["$defs"], f"Kubernetes has no {name}"
    own = Resource.from_contents(definitions, default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource(_DEFINITIONS, own)
    return Draft202012Validator({"$ref": f"{_DEFINITIONS}#/$defs/{name}"}, registry=registry)


@pytest.fixture(scope="session")
def helm() -> Helm:
    return Helm(binary=tool("helm"))


@pytest.fixture(scope="session")
def compose() -> Compose:
    return Compose(binary=tool("docker-compose"))


@pytest.fixture(scope="session")
def hadolint() -> Path:
    return tool("hadolint")


@pytest.fixture(scope="session")
def build_packages() -> Path:
    """The folder with all that a wheel is built with."""
    return tool("build")


@pytest.fixture(scope="session")
def schemas() -> Schemas:
    keda, operator = (_module(tool(f"{name}_models.py")) for name in ("scaledobject", "podmonitor"))
    return Schemas(
        kubernetes={
            version: json.loads(tool(f"kubernetes-{version}.json").read_text()) for version in KUBERNETES_VERSIONS
        },
        added={
            "ScaledObject": keda.ScaledObject,
            "TriggerAuthentication": keda.TriggerAuthentication,
            "PodMonitor": operator.PodMonitor,
            "PrometheusRule": operator.PrometheusRule,
        },
    )


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)  # where pydantic looks its names up
    spec.loader.exec_module(module)
    return module


def hadolint_says(hadolint: Path, dockerfile: str, folder: Path) -> Sequence[str]:
    """The codes of what hadolint finds in a Dockerfile with this content."""
    (folder / "Dockerfile").write_text(dockerfile)
    said = _run(hadolint, "--format", "json", folder / "Dockerfile")
    return [str(finding["code"]) for finding in json.loads(said.stdout)]
