"""`paceline doctor`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption
from .printing import print_json


def doctor(
    agent: Annotated[
        Path | None, typer.Argument(metavar="[AGENT]", help="check this agent file and its tools too")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the set-up: Python, packages, Redis, broker, workers, tools, key, clock. 0: fit; 1: something is wrong."""
    from paceline.producer.checks import Mark, examine

    checks = list(examine(os.environ, agent=agent))
    if as_json:
        print_json([{"check": c.name, "mark": c.mark.value, "found": c.found, "fix": c.fix} for c in checks])
    else:
        for check in checks:
            typer.echo(f"{check.mark.value:<4}  {check.name}: {check.found}")
            if check.fix:
                typer.echo(f"      fix: {check.fix}")
    raise typer.Exit(int(any(check.mark is Mark.FAIL for check in checks)))
