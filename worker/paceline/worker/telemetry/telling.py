"""What is told of a run: from what was written to its record, the spans that say so. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.core.agent import Agent
from paceline.core.endings import ENDINGS, StopReason
from paceline.core.ids import CallId, RunId
from paceline.core.ledger import AttemptLost, CallRan, EffectInDoubt, Entry, ModelCalled, Redriven, Source
from paceline.core.lifecycle import Status
from paceline.core.run import Run
from paceline.core.trace_ids import (
    attempt_span,
    call_span,
    chat_span,
    doubt_span,
    part_of,
    root_span,
    trace_of,
    turn_span,
)
from paceline.core.usage import NANO_USD, Usage
from paceline.store.port import RunRecord, TurnWrite

from . import names
from .span import Kind, Moment, Place, Span, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt at a turn that is over. Times are milliseconds since the epoch."""

    run: Run
    """As it was when the attempt began."""
    began_ms: int
    ended_ms: int
    worker: str
    completes: bool = False
    """Whether its calls are open now, or the next turn is due: no other attempt at this turn did that."""
    reason: str = ""
    """Why the run ended with it, if it did."""
    hold_seconds: float | None = None
    """How long the run waits after it, if it does."""
    queue_seconds: float | None = None
    """How long its message was under way, where that is known."""


def attempt_spans(agent: Agent, attempt: Attempt, write: TurnWrite) -> list[Span]:
    """An attempt, and its model call if it came that far."""
    turn = _attempt_span(attempt, _attempt_error(attempt, write))
    answered = [entry for entry in write.ledger if isinstance(entry, ModelCalled)]
    chats = [_chat_span(agent, attempt, turn, entry) for entry in answered]
    if not answered and write.spent.working_ms:
        chats = [_failed_chat_span(agent, attempt, turn, write.spent.working_ms)]
    return [turn, *chats]


def lost_span(run: Run, lost: AttemptLost, *, began_ms: int) -> Span:
    """An attempt whose worker cannot tell of it any more."""
    attempt = Attempt(run=run, began_ms=began_ms, ended_ms=lost.at_ms, worker=lost.worker)
    return _attempt_span(attempt, names.WORKER_LOST)


def _attempt_error(attempt: Attempt, write: TurnWrite) -> str:
    if attempt.reason:
        return _error_of(attempt.reason)
    if any(isinstance(entry, AttemptLost) for entry in write.ledger):
        return names.WORKER_LOST
    if write.streaks.throttles > attempt.run.streaks.throttles:
        return names.THROTTLED
    return names.MODEL_FAILED if write.streaks.failures > attempt.run.streaks.failures else ""


def _error_of(reason: str) -> str:
    """A run that a person cancelled did not go wrong."""
    status = ENDINGS[StopReason(reason)].status
    return "" if status in (Status.SUCCEEDED, Status.CANCELLED) else reason


def _attempt_span(attempt: Attempt, error: str) -> Span:
    run = attempt.run
    attributes: dict[str, Value] = {
        **_of_turn(run.run_id, run.turn),
        names.ATTEMPT: run.attempts,
        names.WORKER: attempt.worker,
        names.MESSAGING_SYSTEM: "celery",
        names.MESSAGING_OPERATION: "process",
    }
    if attempt.queue_seconds is not None:
        attributes[names.QUEUE_WAIT] = attempt.queue_seconds
    if attempt.reason:
        attributes[names.STOP_REASON] = attempt.reason
    span_id = turn_span(run.run_id, run.turn) if attempt.completes else attempt_span(run.run_id, run.turn, run.attempts)
    previous = run.turn - 1
    return Span(
        name=names.TURN_NAME,
        kind=Kind.CONSUMER,
        place=Place(trace=_trace(run.run_id, run.turn), span=span_id),
        parent=root_span(run.run_id, part_of(run.turn)),
        start_ms=min(attempt.began_ms, attempt.ended_ms),
        end_ms=attempt.ended_ms,
        attributes=attributes,
        error=error,
        links=(Place(trace=_trace(run.run_id, previous), span=turn_span(run.run_id, previous)),) if previous else (),
        moments=_held(attempt),
    )


def _held(attempt: Attempt) -> tuple[Moment, ...]:
    if attempt.hold_seconds is None:
        return ()
    waits = {names.HOLD: attempt.hold_seconds}
    return (Moment(name=names.HELD_EVENT, at_ms=attempt.ended_ms, attributes=waits),)


def _chat_span(agent: Agent, attempt: Attempt, turn: Span, called: ModelCalled) -> Span:
    attributes: dict[str, Value] = {
        **_of_chat(agent, attempt),
        names.RESPONSE_MODEL: called.model,
        names.FINISH_REASONS: (names.finish_reason(called.stop_reason),),
        names.RAW_STOP_REASON: called.stop_reason,
        **_of_usage(called.usage),
    }
    if called.cost_nanousd is not None:
        attributes[names.COST] = called.cost_nanousd / NANO_USD
    return _chat(agent, attempt, turn, attributes, end_ms=called.at_ms, took_ms=called.took_ms)


def _failed_chat_span(agent: Agent, attempt: Attempt, turn: Span, took_ms: int) -> Span:
    attributes = _of_chat(agent, attempt)
    chat = _chat(agent, attempt, turn, attributes, end_ms=attempt.ended_ms, took_ms=took_ms)
    return replace(chat, error=turn.error or names.MODEL_FAILED)


def _chat(
    agent: Agent, attempt: Attempt, turn: Span, attributes: dict[str, Value], *, end_ms: int, took_ms: int
) -> Span:
    run = attempt.run
    return Span(
        name=f"{names.CHAT} {agent.model}",
        kind=Kind.CLIENT,
        place=Place(trace=turn.place.trace, span=chat_span(run.run_id, run.turn, run.attempts)),
        parent=turn.place.span,
        start_ms=end_ms - took_ms,
        end_ms=end_ms,
        attributes=attributes,
    )


def _of_chat(agent: Agent, attempt: Attempt) -> dict[str, Value]:
    return {
        **_of_turn(attempt.run.run_id, attempt.run.turn),
        names.OPERATION: names.CHAT,
        names.PROVIDER: "anthropic",
        names.REQUEST_MODEL: agent.model,
        names.ATTEMPT: attempt.run.attempts,
        names.WORKER: attempt.worker,
    }


def _of_usage(usage: Usage) -> dict[str, Value]:
    return {
        names.INPUT_TOKENS: usage.all_input,
        names.CACHE_READ_TOKENS: usage.cache_read,
        names.CACHE_WRITE_TOKENS: usage.cache_write,
        names.OUTPUT_TOKENS: usage.output,
    }


def call_ran_span(run_id: RunId, ran: CallRan) -> Span:
    """A try of a tool call that came to a result."""
    attributes = {**_of_call(run_id, ran), names.RESULT_CHARS: ran.result_chars}
    if ran.source is not Source.TOOL:
        attributes[names.SOURCE] = ran.source.value
    span = call_span(run_id, ran.turn, CallId(ran.call), ran.attempt)
    return _call(run_id, ran, span, ran.at_ms - ran.took_ms, attributes, names.TOOL_ERROR if ran.is_error else "")


def in_doubt_span(run_id: RunId, doubt: EffectInDoubt) -> Span:
    """A try of a tool call of which nobody knows what it did."""
    span = doubt_span(run_id, doubt.turn, CallId(doubt.call), doubt.attempt)
    began_ms = min(doubt.began_ms, doubt.at_ms)
    return _call(run_id, doubt, span, began_ms, _of_call(run_id, doubt), names.UNKNOWN_EFFECT)


def _call(
    run_id: RunId, entry: CallRan | EffectInDoubt, span: str, start_ms: int, attributes: dict[str, Value], error: str
) -> Span:
    return Span(
        name=f"{names.EXECUTE_TOOL} {entry.tool}",
        kind=Kind.INTERNAL,
        place=Place(trace=_trace(run_id, entry.turn), span=span),
        parent=turn_span(run_id, entry.turn),
        start_ms=start_ms,
        end_ms=entry.at_ms,
        attributes=attributes,
        error=error,
    )


def _of_call(run_id: RunId, entry: CallRan | EffectInDoubt) -> dict[str, Value]:
    return {
        **_of_turn(run_id, entry.turn),
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL: entry.tool,
        names.TOOL_TYPE: "function",
        names.CALL: entry.call,
        names.ATTEMPT: entry.attempt,
        names.WORKER: entry.worker,
    }


def run_span(agent: Agent, record: RunRecord, ledger: Sequence[Entry], *, turn: int, now_ms: int) -> Span:
    """The run, as far as the part that tells of `turn` does: the root of that part's trace.

    Of a part that had a root before the run was redriven the later life is told by a span below that root.
    """
    run, part = record.run, part_of(turn)
    lives = [at for at, entry in enumerate(ledger) if isinstance(entry, Redriven)]
    since = lives[-1] if lives else 0
    told = [entry for entry in ledger[since:] if part_of(entry.turn) == part]
    has_root = any(part_of(entry.turn) == part for entry in ledger[:since])
    is_first = part == 0 and not has_root
    return Span(
        name=f"{names.INVOKE_AGENT} {agent.name}",
        kind=Kind.INTERNAL,
        place=Place(trace=trace_of(run.run_id, part), span=root_span(run.run_id, part, len(lives) if has_root else 0)),
        parent=root_span(run.run_id, part) if has_root else None,
        start_ms=run.submitted_ms if is_first else min(map(_start_ms, told), default=now_ms),
        end_ms=record.ended_ms or now_ms,
        attributes={**_of_run(agent, record), **_of_told(told), **({names.LIFE: len(lives)} if lives else {})},
        error=_error_of(record.reason) if record.reason else "",
        links=(Place(trace=trace_of(run.run_id, part - 1), span=root_span(run.run_id, part - 1)),) if part else (),
    )


def _start_ms(entry: Entry) -> int:
    return entry.at_ms - (entry.took_ms if isinstance(entry, ModelCalled | CallRan) else 0)


def _of_run(agent: Agent, record: RunRecord) -> dict[str, Value]:
    run = record.run
    return {
        names.OPERATION: names.INVOKE_AGENT,
        names.AGENT: agent.name,
        names.CONVERSATION: run.run_id,
        names.RUN: run.run_id,
        names.REQUEST_MODEL: agent.model,
        names.STATUS: run.state.status.value,
        names.TURNS: run.turn,
        names.ATTEMPTS: run.attempts,
        names.LOST_ATTEMPTS: run.lost_attempts,
        names.WORKING: run.spent.working_ms / 1000,
        **({names.STOP_REASON: record.reason} if record.reason else {}),
    }


def _of_told(told: Sequence[Entry]) -> dict[str, Value]:
    """The sums of the spans that are below: those of all the parts are the run's own."""
    called = [entry for entry in told if isinstance(entry, ModelCalled)]
    costs = [entry.cost_nanousd for entry in called if entry.cost_nanousd is not None]
    usage = sum((entry.usage for entry in called), Usage())
    return {
        **_of_usage(usage),
        names.TOOL_CALLS: sum(isinstance(entry, CallRan) for entry in told),
        **({names.COST: sum(costs) / NANO_USD} if len(costs) == len(called) else {}),
    }


def _of_turn(run_id: RunId, turn: int) -> dict[str, Value]:
    return {names.CONVERSATION: run_id, names.RUN: run_id, names.TURN: turn}


def _trace(run_id: RunId, turn: int) -> str:
    return trace_of(run_id, part_of(turn))
