"""`paceline wait`, `results` and `status`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .opening import how_to_get_workers, opened_fleet
from .options import BatchArgument, ForceOption, JsonOption, OutputOption
from .printing import print_json, print_table
from .run import exit_code, print_ends

if TYPE_CHECKING:
    from paceline.producer.fleet import Batch, BatchStatus, Fleet

_LISTED = 20
_STILL_SECONDS = 10.0
"""A batch that has not moved for so long has its reasons told."""


def wait(
    batch: BatchArgument,
    timeout: Annotated[
        float | None, typer.Option(min=0, envvar="PACELINE_TIMEOUT", help="seconds after which to give up waiting")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Return when every run of a batch is over: 0 if all succeeded, 1 if some did not (or the time is up)."""
    from paceline.producer.progress import status_json
    from paceline.producer.screen import screen
    from paceline.producer.stillness import Stillness

    with opened_fleet(must_be_served=True) as fleet, screen() as on_screen:
        found = fleet.batch(batch)
        stillness = Stillness(after_seconds=_STILL_SECONDS)

        def on_status(status: BatchStatus) -> None:
            on_screen.show(status)
            if stillness.is_to_be_told(status):
                tell_why()

        def tell_why() -> None:
            for reason in _waits(fleet, found):
                on_screen.say(f"waiting: {reason}")

        try:
            status = found.wait(timeout, on_status=on_status)
        except TimeoutError as error:
            on_screen.say(str(error))
            tell_why()
            on_screen.say(f"`paceline status {batch}` shows where it stands")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            on_screen.say(f"interrupted: batch {batch} goes on; `paceline wait {batch}` waits for it again")
            raise
    if as_json:
        print_json(status_json(status))
    else:
        print_ends(status)
    raise typer.Exit(exit_code(status))


def results(
    batch: BatchArgument, output: OutputOption = None, force: ForceOption = False, as_json: JsonOption = False
) -> None:
    """The results of a batch as JSONL, in the order of its input: to --output, else to stdout."""
    from paceline.producer.progress import counted
    from paceline.producer.results_file import result_line, write_results

    if output is not None and not force:
        _refuse_existing(output)
    with opened_fleet() as fleet:
        found = fleet.batch(batch)
        _warn_of_unfinished(found)
        if output is None or str(output) == "-":
            for result in found.results():
                typer.echo(result_line(result), nl=False)
            return
        count = write_results(output, found.results())
    if as_json:
        print_json({"batch": batch, "output": str(output), "rows": count})
    else:
        typer.echo(f"{counted(count, 'result')}: {output}", err=True)


def _refuse_existing(output: Path) -> None:
    from paceline.core.errors import UsageError

    if output.is_file():
        raise UsageError(f"{output} exists: name another --output, or add --force to write over it")


def _warn_of_unfinished(batch: Batch) -> None:
    counts = batch.status().counts
    if counts.active:
        typer.echo(f"warning: {counts.active} of {counts.runs} rows are not over: they have no result yet", err=True)


def status(
    batch: Annotated[str | None, typer.Argument(metavar="[BATCH]", help="one batch; else the newest ones")] = None,
    as_json: JsonOption = False,
) -> None:
    """Where batches stand, and why their runs wait."""
    with opened_fleet() as fleet:
        batches = [fleet.batch(batch)] if batch else fleet.batches(limit=_LISTED)
        if as_json:
            print_json([_as_json(fleet, one) for one in batches])
        elif batch:
            _tell(fleet, batches[0])
        else:
            _list(fleet, batches)


def _waits(fleet: Fleet, batch: Batch) -> list[str]:
    from paceline.producer.waiting import why_runs_wait

    return why_runs_wait(
        batch.status(),
        fleet.workers(),
        batch.records(),
        now_ms=fleet.now_ms(),
        get_workers=how_to_get_workers(),
    )


def _as_json(fleet: Fleet, batch: Batch) -> dict[str, object]:
    from paceline.producer.progress import status_json

    return status_json(batch.status()) | {"waiting": _waits(fleet, batch)}


def _tell(fleet: Fleet, batch: Batch) -> None:
    from paceline.producer.progress import budget_text
    from paceline.producer.report import report_rows, totals

    now = batch.status()
    typer.echo(f"batch {batch.name}: agent {batch.info.agent_name}, tenant {batch.info.tenant}")
    typer.echo(totals(now))
    if now.budget is not None:
        typer.echo(budget_text(now.budget))
    typer.echo("")
    active = [
        (state.value, "", count, "") for state, count in now.counts.states.items() if count and not state.is_terminal
    ]
    print_table(("state", "stop reason", "rows", "what to do"), [*active, *report_rows(now)])
    for reason in _waits(fleet, batch):
        typer.echo(f"waiting: {reason}")


def _list(fleet: Fleet, batches: list[Batch]) -> None:
    from paceline.core.lifecycle import State
    from paceline.producer.progress import Start, dollars, progress_of

    if not batches:
        typer.echo("no batch is on record: `paceline submit` or `paceline run` makes one")
        return
    rows = []
    for batch in batches:
        now = batch.status()
        progress = progress_of(now, Start(at_seconds=0, done=0), 0)
        succeeded = now.counts.states[State.SUCCEEDED]
        rows.append(
            (batch.name, progress.rows, progress.queued, progress.running, progress.held, progress.undecided, succeeded,
             progress.done - succeeded, dollars(progress.cost_usd))
        )  # fmt: skip
    print_table(("batch", "rows", "queued", "running", "on hold", "to decide", "succeeded", "other ends", "cost"), rows)
    for batch in batches:
        for reason in _waits(fleet, batch):
            typer.echo(f"{batch.name} waits: {reason}")
