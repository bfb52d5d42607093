"""The image's recipe is without fault, and what it installs works from anywhere. No image is built here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
import typer
from deploy.programs import ROOT, hadolint_says
from packaging.requirements import Requirement

PIP = (sys.executable, "-m", "pip", "--quiet")
DOCKERFILE = (ROOT / "worker" / "Dockerfile").read_text()


def test_the_recipe_is_without_fault(hadolint: Path, tmp_path: Path) -> None:
    assert hadolint_says(hadolint, DOCKERFILE, tmp_path) == []


@pytest.mark.parametrize(
    ("right", "wrong", "code"),
    [
        ('CMD ["worker"]', "CMD worker", "DL3025"),
        ("FROM python:${PYTHON}", "FROM python:latest", "DL3007"),
        ("WORKDIR /tools", "WORKDIR tools", "DL3000"),
        ("STOPSIGNAL SIGTERM", "STOPSIGNL SIGTERM", "DL1000"),
    ],
)
def test_a_mistake_in_the_recipe_is_found(hadolint: Path, tmp_path: Path, right: str, wrong: str, code: str) -> None:
    assert right in DOCKERFILE
    assert code in hadolint_says(hadolint, DOCKERFILE.replace(right, wrong), tmp_path)


def test_the_image_runs_as_nobody_in_particular_and_stops_as_our_workers_do() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert re.search(r"^STOPSIGNAL SIGTERM$", last, re.MULTILINE)
    assert re.search(r'^HEALTHCHECK .*CMD \["paceline-probe"\]$', last, re.MULTILINE)
    assert not re.search(r"^(ENV|ARG) .*REMAP_SIGTERM", DOCKERFILE, re.MULTILINE)


def test_what_is_pinned_is_all_that_the_package_asks_for() -> None:
    pins = {
        Requirement(line).name.lower(): Requirement(line)
        for line in (ROOT / "requirements.lock").read_text().splitlines()
    }
    asked = map(Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    for requirement in asked:
        (pin,) = pins[requirement.name.lower()].specifier
        assert requirement.specifier.contains(pin.version), requirement.name


def test_the_wheel_is_made_of_what_the_image_is_given_and_works_from_anywhere(
    build_packages: Path, tmp_path: Path
) -> None:
    context, wheels = sent_to_the_builder(tmp_path / "context"), tmp_path / "wheels"
    offline = ["--no-index", "--find-links", str(build_packages)]
    subprocess.run([*PIP, "wheel", "--no-deps", *offline, "--wheel-dir", str(wheels), str(context)], check=True)
    paceline = installed(next(wheels.iterdir()), tmp_path / "venv")
    said = subprocess.run([str(paceline), "--help"], cwd=tmp_path, env={}, capture_output=True, text=True, check=True)
    assert "Usage: paceline" in said.stdout
    entry = "import paceline.worker.entry, paceline.sim as sim; print(sim.__file__)"
    python = [str(paceline.with_name("python")), "-c", entry]
    said = subprocess.run(python, cwd=tmp_path, env={}, capture_output=True, text=True, check=True)
    assert said.stdout.startswith(str(tmp_path / "venv"))


def sent_to_the_builder(folder: Path) -> Path:
    """What `.dockerignore` lets through."""
    folder.mkdir()
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    for name in (line[1:] for line in lines if line.startswith("!")):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def installed(wheel: Path, folder: Path) -> Path:
    """The command, in an environment of its own; its dependencies are those that were installed from the lock here."""
    venv.create(folder, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    # A folder named in a .pth file is looked into, but its own .pth files are not: the sources stay out of sight.
    (packages / "dependencies.pth").write_text(f"{Path(typer.__file__).parents[1]}\n")
    python = str(folder / "bin" / "python")
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", "--no-index", str(wheel)], check=True)
    return folder / "bin" / "paceline"
