"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AgentArgument = Annotated[Path, typer.Argument(metavar="AGENT", help="the agent's YAML file")]
BatchArgument = Annotated[str, typer.Argument(metavar="BATCH", help="the batch's name, as `submit` printed it")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="the run's id")]
InputOption = Annotated[
    str, typer.Option("--input", "-i", envvar="PACELINE_INPUT", help="rows, one JSON object a line; - for stdin")
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", envvar="PACELINE_OUTPUT", help="where results go, one JSON object a line"),
]
ForceOption = Annotated[bool, typer.Option("--force", envvar="PACELINE_FORCE", help="write over --output")]
BatchOption = Annotated[
    str | None, typer.Option("--batch", envvar="PACELINE_BATCH", help="the batch's name; else made of agent and input")
]
TenantOption = Annotated[str, typer.Option("--tenant", envvar="PACELINE_TENANT", help="whom the batch is charged to")]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget",
        metavar="USD",
        envvar="PACELINE_BUDGET",
        help="all rows together cost no more; another budget the next time takes its place",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", envvar="PACELINE_JSON", help="say it as JSON, on stdout")]
ConcurrencyOption = Annotated[
    int,
    typer.Option(
        "--concurrency", "-c", min=1, envvar="PACELINE_CONCURRENCY", help="turns and calls a worker has in flight"
    ),
]
