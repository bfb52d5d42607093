"""The README names everything that an operator can set, call and read."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from paceline.producer.cli import build
from paceline.worker.settings import Settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_every_variable_is_in_the_readme() -> None:
    names = [f"PACELINE_{field.name.upper()}" for field in fields(Settings)]
    assert [name for name in names if f"`{name}`" not in README] == []


def test_every_command_is_in_the_readme() -> None:
    app = build()
    commands = [command.callback.__name__ for command in app.registered_commands if command.callback]
    groups = [str(group.name) for group in app.registered_groups]
    told = "\n".join(line for line in README.splitlines() if "paceline" in line)
    assert [name for name in [*commands, *groups] if not re.search(rf"\b{name}\b", told)] == []


def test_every_page_of_the_documentation_is_linked() -> None:
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"(docs/{page.name})" not in README] == []
