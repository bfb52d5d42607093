"""`paceline runs`, `show` and `cancel`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from .opening import opened_fleet
from .options import BatchOption, JsonOption, RunArgument
from .printing import print_json, print_table

if TYPE_CHECKING:
    from paceline.producer.fleet import Fleet


def runs(
    batch: BatchOption = None,
    state: Annotated[str | None, typer.Option(help="only runs of this state or status: on_hold, failed, ...")] = None,
    stop_reason: Annotated[str | None, typer.Option(help="only runs that ended so: max_turns, ...")] = None,
    limit: Annotated[int, typer.Option(min=1, help="at most so many")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List runs, in the order of their batch's input."""
    from paceline.core.endings import StopReason
    from paceline.producer.fleet import has_state, known_states
    from paceline.producer.progress import dollars
    from paceline.producer.result import result_of

    _refuse_unknown("--state", state, known_states())
    _refuse_unknown("--stop-reason", stop_reason, [reason.value for reason in StopReason])
    with opened_fleet() as fleet:
        wanted = (
            record
            for record in fleet.runs(batch=batch)
            if (state is None or has_state(record, state)) and (stop_reason is None or record.reason == stop_reason)
        )
        found = list(islice(wanted, limit + 1))
    results = [(record, result_of(record)) for record in found[:limit]]
    if as_json:
        print_json([result.to_json() | {"answer": None, "output": None} for _, result in results])
        return
    print_table(
        ("run", "row", "state", "stop reason", "turns", "cost"),
        [
            (
                result.run_id,
                result.id,
                record.run.state,
                result.stop_reason or "",
                result.turns,
                dollars(result.cost_usd),
            )
            for record, result in results
        ],
    )
    if len(found) > limit:
        typer.echo(f"there are more: --limit {limit * 10} shows more of them", err=True)


def show(
    run: RunArgument,
    transcript: Annotated[
        bool, typer.Option("--transcript", help="with the messages: prompts, answers, results")
    ] = False,
    trace: Annotated[bool, typer.Option("--trace", help="as its trace: what took how long, and what waited")] = False,
    as_json: JsonOption = False,
) -> None:
    """What happened to a run, turn by turn, and why it ended."""
    from paceline.producer import story as stories
    from paceline.producer.trace import trace_lines, traces_json

    with opened_fleet() as fleet:
        story, now_ms = fleet.show(run), fleet.now_ms()
    if as_json:
        traces = {"traces": traces_json(story, now_ms=now_ms)} if trace else {}
        print_json(stories.story_json(story, with_transcript=transcript) | traces)
        return
    typer.echo(stories.headline(story))
    typer.echo("")
    for line in trace_lines(story, now_ms=now_ms) if trace else stories.timeline(story):
        typer.echo(line)
    typer.echo("")
    width = max(len(name) for name, _ in stories.totals(story))
    for name, value in stories.totals(story):
        typer.echo(f"{name:<{width}}  {value}")
    if transcript:
        typer.echo("")
        for line in stories.messages(story.transcript):
            typer.echo(line)


def cancel(
    name: Annotated[str, typer.Argument(metavar="RUN|BATCH", help="a run's id or a batch's name")],
    as_json: JsonOption = False,
) -> None:
    """End a run, or every run of a batch, as cancelled. What is running is let finish its step."""
    with opened_fleet() as fleet:
        outcomes = _cancelled(fleet, name)
    if as_json:
        print_json({"name": name, **outcomes})
        return
    typer.echo(", ".join(_told(outcome, count) for outcome, count in outcomes.items()))


def _told(outcome: str, count: int) -> str:
    match outcome:
        case "requested":
            return f"{count} {'ends' if count == 1 else 'end'} once the step under way is done"
        case "ended":
            return f"{count} {'was' if count == 1 else 'were'} over already"
        case _:
            return f"{count} {outcome}"


def _cancelled(fleet: Fleet, name: str) -> dict[str, int]:
    from paceline.core.errors import UnknownRun

    if fleet.has_batch(name):
        return {outcome.value: count for outcome, count in fleet.batch(name).cancel().items()}
    try:
        return {fleet.cancel(name).value: 1}
    except UnknownRun:
        raise UnknownRun(
            f"no batch and no run {name!r} is on record: `paceline status` and `paceline runs` list them"
        ) from None


def _refuse_unknown(option: str, given: str | None, known: list[str]) -> None:
    if given is not None and given not in known:
        raise typer.BadParameter(f"{given!r} is none of {', '.join(known)}", param_hint=option)
