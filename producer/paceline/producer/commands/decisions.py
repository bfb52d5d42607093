"""`paceline resolve`, `approve` and `deny`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .opening import opened_fleet, when_it_goes_on
from .options import JsonOption, RunArgument
from .printing import print_json

if TYPE_CHECKING:
    from paceline.producer.decide import Decision


CallArgument = Annotated[str, typer.Argument(metavar="CALL", help="the call's id, as `paceline show RUN` tells it")]


def resolve(
    run: RunArgument,
    call: CallArgument,
    ran: Annotated[bool, typer.Option("--ran", help="it took effect; with what result is not known")] = False,
    not_ran: Annotated[bool, typer.Option("--not-ran", help="it has not taken effect: run it now")] = False,
    result: Annotated[
        Path | None, typer.Option(metavar="FILE", help="it took effect, and this is its result; - for stdin")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Settle a tool call of which nobody knows whether it took effect; its run goes on."""
    decision = _decision(ran, not_ran, result)
    with opened_fleet() as fleet:
        fleet.resolve(run, call, decision)
    if as_json:
        print_json({"run_id": run, "call_id": call, "decision": type(decision).__name__})
    else:
        typer.echo(f"call {call} is settled: run {run} goes on {when_it_goes_on()}")


def approve(run: RunArgument, call: CallArgument, as_json: JsonOption = False) -> None:
    """Let a tool call run that wants the approval of a person; its run goes on."""
    with opened_fleet() as fleet:
        fleet.approve(run, call)
    _tell("approved", run, call, as_json)


def deny(
    run: RunArgument,
    call: CallArgument,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="why not: the model is told, and the record keeps it")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Let a tool call not run that wants the approval of a person; its run goes on without it, or stops (on_denied)."""
    with opened_fleet() as fleet:
        fleet.deny(run, call, reason=reason)
    _tell("denied", run, call, as_json)


def _tell(verdict: str, run: str, call: str, as_json: bool) -> None:
    if as_json:
        print_json({"run_id": run, "call_id": call, "decision": verdict})
    else:
        typer.echo(f"call {call} is {verdict}: run {run} goes on {when_it_goes_on()}")


def _decision(ran: bool, not_ran: bool, result: Path | None) -> Decision:
    from paceline.producer.decide import NotRan, Ran

    if [ran, not_ran, result is not None].count(True) != 1:
        raise typer.BadParameter("say one of --ran, --not-ran and --result FILE")
    return NotRan() if not_ran else Ran(_text(result) if result else None)


def _text(file: Path) -> str:
    from paceline.core.errors import UsageError

    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--result {file}: cannot be read as text: {error}") from error
