"""`paceline advise`."""

from __future__ import annotations

import typer

from .opening import opened_fleet
from .options import BatchArgument, JsonOption
from .printing import print_json, print_table


def advise(batch: BatchArgument, as_json: JsonOption = False) -> None:
    """Limits for an agent, from what a batch's successful runs used: 2 x p95, and what today's limits do."""
    from paceline.producer import observed

    with opened_fleet() as fleet:
        found = fleet.batch(batch)
        advice, active = observed.batch_advice(found), found.status().counts.active
    if as_json:
        print_json({"batch": batch, "active": active, **observed.advice_json(advice)})
        return
    typer.echo(f"batch {batch}: {advice.succeeded} of {advice.finished} runs succeeded, {active} are not over")
    typer.echo("")
    header = ("limit", "today", "p50", "p95", "recommended", "what today's limit does")
    print_table(header, map(observed.limit_row, advice.limits))
    typer.echo("")
    for note in observed.notes(advice, batch):
        typer.echo(note)
    if recommended := observed.recommended_yaml(advice):
        typer.echo(f"for the agent file: {recommended}")
