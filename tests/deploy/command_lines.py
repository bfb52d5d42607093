"""Whether the `paceline` command takes what a deployment file gives it, without carrying it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import typer

from paceline.producer.cli import build
from paceline.worker.settings import Settings


def mistake_in(arguments: Sequence[str]) -> str | None:
    """What is wrong with `paceline ARGUMENTS`, in the command's own words."""
    group: Any = typer.main.get_command(build())
    name, *rest = arguments
    command = group.commands.get(name)
    if command is None:
        return f"there is no command {name!r}"
    try:
        command.make_context(name, list(rest))
    except Exception as error:
        return f"{' '.join(arguments)}: {error}"
    return None


def variables() -> frozenset[str]:
    """Every PACELINE_ variable that something of ours reads: settings, and options of the command."""
    return frozenset({f"PACELINE_{field.name.upper()}" for field in fields(Settings)} | set(_option_variables()))


def unknown_variables(environment: Mapping[str, str | None]) -> list[str]:
    """Which of these nobody reads."""
    return [name for name in environment if name.startswith("PACELINE_") and name not in variables()]


def _option_variables() -> Iterator[str]:
    group: Any = typer.main.get_command(build())
    for command in group.commands.values():
        for parameter in command.params:
            named = parameter.envvar or ()
            yield from (named,) if isinstance(named, str) else named
