"""A run told to somebody who has never seen the project: how it ended and why, then turn by turn, then the totals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any, assert_never

from paceline.core.approval import Permission
from paceline.core.ids import trace_id
from paceline.core.ledger import (
    ApprovalDecided,
    AttemptLost,
    CallRan,
    Compacted,
    EffectInDoubt,
    EffectRuledOut,
    Ended,
    Entry,
    Held,
    ModelCalled,
    PossiblyBilled,
    Redriven,
    Source,
    Unknown,
)
from paceline.core.lifecycle import State, Status
from paceline.core.transcript import Fragment
from paceline.core.usage import Usage
from paceline.store.port import CallState

from .approvals import approvals_of
from .doubts import clock, doubts_of
from .fleet import RunStory
from .progress import (
    cache_share,
    count_text,
    dollars,
    duration,
    percent,
    possibly_billed,
    possibly_billed_json,
    sentence,
)
from .report import todo_for_run
from .result import Result, cost_usd, result_of

_WHAT_RUNS_DO: dict[State, str] = {
    State.QUEUED: "waits for a worker to begin it",
    State.TURN_DUE: "waits for a worker to take its next turn",
    State.IN_TURN: "is waiting for the model",
    State.IN_TOOLS: "is running tools",
    State.JOINING: "has its tools' results and is about to go on",
    State.ON_HOLD: "is on hold",
    State.AWAITING_APPROVAL: "awaits the approval of a tool call",
    State.AWAITING_DECISION: "awaits a decision about a tool call",
}


def headline(story: RunStory) -> str:
    """What the run is, how it ended, and why, in a sentence or two."""
    result = result_of(story.record)
    agent = f" by agent {story.batch.agent_name}" if story.batch else ""
    batch = f" of batch {story.batch.name}" if story.batch else ""
    return f"Row {result.id!r}{batch}{agent} {_ending(story, result)}"


def _ending(story: RunStory, result: Result) -> str:
    run = story.record.run
    match result.status:
        case Status.SUCCEEDED:
            return f"succeeded: the model gave its answer in turn {run.turn}."
        case Status.QUEUED | Status.RUNNING:
            return f"is not over: it {_WHAT_RUNS_DO[run.state]}, in turn {run.turn}.{_hold(story)}{_asked(story)}"
        case Status.CANCELLED:
            return "was cancelled."
        case Status.STOPPED | Status.FAILED:
            why = result.error.message if result.error else ""
            todo = todo_for_run(result.stop_reason, result.run_id) if result.stop_reason else ""
            how = "failed" if result.status is Status.FAILED else "was stopped"
            told = f"{how} ({result.stop_reason}): {sentence(why)}"
            return told + (f" What to do: {sentence(todo)}" if todo else "")
        case _:
            assert_never(result.status)


def _hold(story: RunStory) -> str:
    run = story.record.run
    if run.state is not State.ON_HOLD:
        return ""
    return f" On hold until {clock(run.hold_until_ms)}: {sentence(run.hold_reason)}"


def _asked(story: RunStory) -> str:
    run, calls = story.record.run, story.calls
    doubts, approvals = doubts_of(run, calls), approvals_of(run, calls)
    return "".join(f" {told}" for told in (*(doubt.told() for doubt in doubts), *(asked.told() for asked in approvals)))


def timeline(story: RunStory) -> Iterator[str]:
    """Turn by turn, what happened, a line each."""
    yield f"{clock(story.record.run.submitted_ms)}  submitted"
    for turn, entries in groupby(story.ledger, key=lambda entry: entry.turn):
        yield f"turn {turn}"
        yield from (f"  {clock(entry.at_ms)}  {told(entry)}" for entry in entries)
    yield from (f"  now       {_open_call(state)}" for state in story.calls if not state.has_result)
    if any(isinstance(entry, CallRan) and entry.is_error for entry in story.ledger):
        yield f"what the failed tools said: paceline show {story.record.run.run_id} --transcript"
    if not any(isinstance(entry, Ended) for entry in story.ledger) and story.record.ended_ms:
        yield f"{clock(story.record.ended_ms)}  ended: {story.record.reason}"


def _open_call(state: CallState) -> str:
    if state.awaits_person:
        return f"tool {state.call.tool} awaits a decision"
    if state.permission is not Permission.GIVEN:
        return f"tool {state.call.tool} " + ("awaits an approval" if state.awaits_approval else "was denied")
    doing = "is asked what it did" if state.doubt else "is running"
    return f"tool {state.call.tool} " + (f"{doing} on {state.owner}" if state.owner else "waits for a worker")


def told(entry: Entry) -> str:
    """One thing that happened."""
    match entry:
        case ModelCalled():
            return _model_call(entry)
        case CallRan(source=Source.PERSON, is_error=True):
            return f"the model is told that tool {entry.tool} was denied ({entry.call})"
        case CallRan() if entry.source is not Source.TOOL:
            return f"{_SOURCES[entry.source]}: tool {entry.tool} has taken effect ({entry.call})"
        case CallRan():
            how = "failed with" if entry.is_error else "returned"
            return (
                f"tool {entry.tool} {how} {count_text(entry.result_chars)} characters in "
                f"{duration(entry.took_ms / 1000)}" + (f" (try {entry.attempt})" if entry.attempt > 1 else "")
            )
        case EffectInDoubt():
            return (
                f"tool {entry.tool} may have taken effect or not, since {clock(entry.began_ms)} on worker "
                f"{entry.worker}: {entry.why} ({entry.call})"
            )
        case EffectRuledOut():
            return f"{_SOURCES[entry.source]}: tool {entry.tool} has not taken effect, it may run ({entry.call})"
        case ApprovalDecided(approved=True):
            return f"a person approved tool {entry.tool}: it may run ({entry.call})"
        case ApprovalDecided():
            return f"a person denied tool {entry.tool}{f': {entry.reason}' if entry.reason else ''} ({entry.call})"
        case Compacted():
            return _compaction(entry)
        case Held():
            return f"on hold for {duration(entry.wait_seconds)}: {entry.reason}"
        case AttemptLost():
            return f"attempt {entry.attempt} was lost with worker {entry.worker}: its model call may have been billed"
        case PossiblyBilled():
            cost = "" if entry.cost_nanousd is None else f" and {dollars(cost_usd(entry.cost_nanousd, 0))}"
            return (
                f"held against the limits for a call without an answer: up to {count_text(entry.tokens)} tokens{cost}"
            )
        case Redriven():
            return "somebody wanted the run to go on after its end"
        case Unknown():
            return f"{entry.kind!r}, of which only a newer paceline can tell"
        case Ended():
            return f"ended: {entry.reason}" + (f": {entry.message}" if entry.message else "")
        case _:
            assert_never(entry)


def _compaction(entry: Compacted) -> str:
    done = (
        f"{entry.results} old tool results cleared from what is sent: about {count_text(entry.tokens_before)} tokens "
        f"become {count_text(entry.tokens_after)}"
    )
    if entry.saved_nanousd is None or entry.rewrite_nanousd is None:
        return f"{done}; what that saves is unknown, as the model's price is"
    saved, rewrite = (dollars(cost_usd(nanousd, 0)) for nanousd in (entry.saved_nanousd, entry.rewrite_nanousd))
    return (
        f"{done}; over {entry.expected_turns} turns to come that saves {saved}, the cache written anew costs {rewrite}"
    )


_SOURCES: dict[Source, str] = {
    Source.TOOL: "it ran",
    Source.RECONCILE: "its reconcile says",
    Source.PERSON: "a person decided",
}


def _model_call(entry: ModelCalled) -> str:
    asked = f", asked for {', '.join(entry.calls)}" if entry.calls else f", stop reason {entry.stop_reason}"
    cleared = f", {count_text(entry.cleared_tokens)} tokens cleared by the API" if entry.cleared_tokens else ""
    return (
        f"model {entry.model} answered in {duration(entry.took_ms / 1000)}: {tokens(entry.usage)}, "
        f"{dollars(None if entry.cost_nanousd is None else cost_usd(entry.cost_nanousd, 0))}{asked}{cleared}"
    )


def tokens(usage: Usage) -> str:
    """Tokens in, of them cached, and out."""
    return (
        f"{count_text(usage.all_input)} tokens in ({percent(cache_share(usage))} from cache), "
        f"{count_text(usage.output)} out"
    )


def totals(story: RunStory) -> Iterator[tuple[str, str]]:
    """Names and values for the end of the story."""
    run, result = story.record.run, result_of(story.record)
    yield "run", result.run_id
    yield "status", f"{result.status}" + (f" ({result.stop_reason})" if result.stop_reason else "")
    yield "turns", str(result.turns)
    yield "tool calls", str(result.tool_calls)
    yield "tokens", tokens(result.usage)
    yield "cost", f"{dollars(result.cost_usd)}{possibly_billed(run.spent)}"
    yield "working time", duration(result.working_seconds)
    if story.record.ended_ms:
        yield "from submission to end", duration((story.record.ended_ms - run.submitted_ms) / 1000)
    lost = f", {run.lost_attempts} lost with their workers" if run.lost_attempts else ""
    yield "attempts", f"{run.attempts}{lost}"
    yield "trace id", trace_id(run.run_id)


def story_json(story: RunStory, *, with_transcript: bool) -> dict[str, Any]:
    """The story as plain data. The messages only if asked for: they may hold what is nobody else's business."""
    result = result_of(story.record).to_json()
    if not with_transcript:
        result |= {"answer": None, "output": None}
    data: dict[str, Any] = {
        "headline": headline(story),
        "batch": story.batch.name if story.batch else None,
        "agent": story.batch.agent_name if story.batch else None,
        "state": story.record.run.state.value,
        "hold_reason": story.record.run.hold_reason or None,
        "result": result,
        "lost_attempts": story.record.run.lost_attempts,
        "possibly_billed": possibly_billed_json(story.record.run.spent),
        "in_doubt": [doubt.to_json() for doubt in doubts_of(story.record.run, story.calls)],
        "awaiting_approval": [asked.to_json() for asked in approvals_of(story.record.run, story.calls)],
        "timeline": [{"kind": type(entry).__name__, **asdict(entry)} for entry in story.ledger],
    }
    if with_transcript:
        data["transcript"] = [json.loads(fragment) for fragment in story.transcript]
    return data


def messages(transcript: tuple[Fragment, ...]) -> Iterator[str]:
    """The messages for a person to read."""
    for number, fragment in enumerate(transcript, 1):
        message = json.loads(fragment)
        yield f"[{number}] {message['role']}"
        yield from (f"    {line}" for block in message["content"] for line in _block(block).splitlines())


def _block(block: dict[str, Any]) -> str:
    match block:
        case {"type": "text", "text": str() as text}:
            return text
        case {"type": "tool_use", "name": name, "input": arguments, "id": call}:
            return f"-> {name}({json.dumps(arguments, ensure_ascii=False)})  {call}"
        case {"type": "tool_result", "tool_use_id": call, "content": content}:
            failed = " (error)" if block.get("is_error") else ""
            return (
                f"<- {call}{failed}: {content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)}"
            )
        case _:
            return f"({block.get('type', 'unknown')} block)"
