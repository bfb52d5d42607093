"""The folder X/ holds the package paceline.X, and pyproject.toml names every such folder wherever it lists them."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
CHART = ROOT / "helm" / "paceline"
"""No package: Helm wants a chart in a folder of its name."""
PARTS = sorted(folder.parent.name for folder in ROOT.glob("*/paceline") if folder.is_dir() and folder != CHART)
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOOLS = PYPROJECT["tool"]


def test_every_part_holds_the_package_of_its_name_and_nothing_else() -> None:
    for part in PARTS:
        inside = {path.name for path in (ROOT / part / "paceline").iterdir() if path.name != "__pycache__"}
        assert inside == {part}
        assert (ROOT / part / "paceline" / part / "__init__.py").exists()
        assert (ROOT / part / "paceline" / part / "py.typed").exists()


def test_no_folder_named_paceline_is_a_package_of_its_own() -> None:
    assert [str(path) for path in ROOT.glob("*/paceline/__init__.py")] == []
    assert [part for part in PARTS if (ROOT / part / "__init__.py").exists()] == []


@pytest.mark.parametrize(
    "listed",
    [
        TOOLS["hatch"]["build"]["dev-mode-dirs"],
        [folder.removesuffix("/paceline") for folder in TOOLS["hatch"]["build"]["targets"]["wheel"]["packages"]],
        TOOLS["coverage"]["run"]["source"],
        TOOLS["ruff"]["src"],
        [package.removeprefix("paceline.") for package in TOOLS["importlinter"]["root_packages"]],
    ],
    ids=["dev-mode-dirs", "wheel", "coverage", "ruff", "import-linter"],
)
def test_a_list_of_the_parts_names_each_of_them(listed: list[str]) -> None:
    assert sorted(listed) == PARTS


@pytest.mark.parametrize(
    "listed",
    [
        TOOLS["hatch"]["build"]["targets"]["sdist"]["only-include"],
        TOOLS["pytest"]["ini_options"]["pythonpath"],
        TOOLS["mypy"]["mypy_path"].split(":"),
        TOOLS["mypy"]["files"],
    ],
    ids=["sdist", "pytest", "mypy_path", "mypy files"],
)
def test_a_list_of_the_parts_and_more_names_each_of_them_too(listed: list[str]) -> None:
    assert set(listed) >= {*PARTS, "tests"}


def test_core_may_import_none_of_the_other_parts() -> None:
    banned = TOOLS["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert {f"paceline.{part}" for part in PARTS if part != "core"} <= set(banned)


def test_no_two_test_files_share_a_name() -> None:
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
