"""`paceline dead list`, `dead show`, `dead redrive`, and `paceline retry`: runs that failed, and how they go on."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from .opening import opened_fleet, when_it_goes_on
from .options import BatchOption, JsonOption
from .printing import print_json, print_table
from .runs import show

if TYPE_CHECKING:
    from paceline.core.lifecycle import State
    from paceline.producer.fleet import Batch

NameArgument = Annotated[str, typer.Argument(metavar="RUN|BATCH", help="a run's id or a batch's name")]


def build() -> typer.Typer:
    """The group of commands."""
    app = typer.Typer(help="Runs that failed: list them, see why, let them go on.", no_args_is_help=True)
    app.command("list")(list_dead)
    app.command("show")(show)
    app.command("redrive")(redrive)
    return app


def list_dead(
    batch: BatchOption = None,
    limit: Annotated[int, typer.Option(min=1, help="at most so many")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List runs that failed, of all batches, the latest first."""
    from paceline.producer.doubts import clock
    from paceline.producer.result import result_of

    with opened_fleet() as fleet:
        records = fleet.dead(batch=batch, limit=limit)
    if as_json:
        print_json([result_of(record).to_json() | {"answer": None, "output": None} for record in records])
        return
    print_table(
        ("run", "row", "ended", "stop reason", "turn", "message"),
        [(r.run.run_id, r.run.row_id, clock(r.ended_ms), r.reason, r.run.turn, r.message) for r in records],
    )


def redrive(name: NameArgument, as_json: JsonOption = False) -> None:
    """Let a run that failed go on from its last good state, or every such run of a batch."""
    from paceline.core.lifecycle import State

    _go_on(name, {State.FAILED}, as_json)


def retry(name: NameArgument, as_json: JsonOption = False) -> None:
    """Let a run that failed or was stopped go on, or every such run of a batch. Not one that has used up a limit."""
    from paceline.core.lifecycle import CAN_GO_ON

    _go_on(name, CAN_GO_ON, as_json)


def _go_on(name: str, states: Collection[State], as_json: bool) -> None:
    with opened_fleet() as fleet:
        if fleet.has_batch(name):
            batch = fleet.batch(name)
            count, spent = batch.redrive(states), _spent(batch, states)
        else:
            fleet.redrive(name)
            count, spent = 1, {}
    if as_json:
        print_json({"name": name, "redriven": count, "spent": spent})
        return
    typer.echo(f"{count} {'goes' if count == 1 else 'go'} on {when_it_goes_on()}" if count else "no run can go on")
    if spent:
        reasons = ", ".join(f"{number} {reason}" for reason, number in spent.items())
        typer.echo(
            f"left as they are, for they would only end so again: {reasons}; raise the limit, submit a new batch"
        )


def _spent(batch: Batch, states: Collection[State]) -> dict[str, int]:
    """How many runs are left as they are, by the limit they have used up."""
    from paceline.core.lifecycle import State
    from paceline.producer.redrive import SPENT

    reasons = batch.status().counts.reasons if State.STOPPED in states else {}
    return {reason: count for reason, count in reasons.items() if count and reason in SPENT}
