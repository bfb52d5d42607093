"""What is told of a run: the spans of its attempts, its calls, and of the run itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from . import trace_names as names
from .endings import ENDINGS, StopReason
from .ids import CallId, RunId
from .ledger import (
    ApprovalDecided,
    AttemptLost,
    CallRan,
    Compacted,
    EffectInDoubt,
    EffectRuledOut,
    Entry,
    ModelCalled,
    PossiblyBilled,
    Redriven,
    Source,
)
from .lifecycle import Status
from .run import Run, Streaks
from .trace_ids import attempt_span, call_span, chat_span, doubt_span, part_of, root_span, trace_of, turn_span
from .trace_span import Kind, Moment, Place, Span, Value
from .usage import NANO_USD, Usage

# Attempts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt at a turn that is over. Times are milliseconds since the epoch."""

    run_id: RunId
    turn: int
    number: int
    began_ms: int
    ended_ms: int
    worker: str = ""
    """Empty: not known."""
    request: Mapping[str, Value] = field(default_factory=dict)
    """What its chat says of the request that is not on record."""
    completes: bool = False
    """Whether its calls are open now, or the next turn is due: no other attempt at this turn did that."""
    reason: str = ""
    """Why the run ended with it, if it did."""
    trouble: str = ""
    """What was wrong with it, in a word of `trace_names`; empty: nothing was."""
    called: ModelCalled | None = None
    """Its model call, if that was answered."""
    failed_ms: int = 0
    """How long its model call took, if that came to nothing."""
    hold_seconds: float | None = None
    """How long the run waits after it, if it does."""
    compacted: Compacted | None = None
    """What was cleared from the conversation before its model call, if something was."""
    possibly_billed: PossiblyBilled | None = None
    """What its model call may have cost, if that brought no answer."""
    queue: str = ""
    """Where its message waited; empty: not known."""
    queue_seconds: float | None = None
    """How long its message was under way, where that is known."""

    @property
    def error(self) -> str:
        return error_of(self.reason) if self.reason else self.trouble


def attempt_lost(run_id: RunId, lost: AttemptLost, billed: PossiblyBilled | None) -> Attempt:
    """An attempt whose worker cannot tell of it any more."""
    return Attempt(
        run_id=run_id,
        turn=lost.turn,
        number=lost.attempt,
        began_ms=lost.began_ms or lost.at_ms,
        ended_ms=lost.at_ms,
        worker=lost.worker,
        trouble=names.WORKER_LOST,
        possibly_billed=billed,
    )


def error_of(reason: str) -> str:
    """The error of a run that ended so. A run that a person cancelled did not go wrong."""
    status = ENDINGS[StopReason(reason)].status
    return "" if status in (Status.SUCCEEDED, Status.CANCELLED) else reason


def trouble(before: Streaks, after: Streaks) -> str:
    """What was wrong with the model call between these; empty: nothing was."""
    if after.throttles > before.throttles:
        return names.THROTTLED
    return names.MODEL_FAILED if after.failures > before.failures else ""


def attempt_spans(model: str, attempt: Attempt) -> list[Span]:
    """An attempt, and its model call if it came that far."""
    turn = _turn_span(attempt)
    if attempt.called:
        return [turn, _answered_chat(model, attempt, attempt.called, turn)]
    return [turn, _failed_chat(model, attempt, turn)] if attempt.failed_ms else [turn]


def _turn_span(attempt: Attempt) -> Span:
    run_id, turn = attempt.run_id, attempt.turn
    span_id = turn_span(run_id, turn) if attempt.completes else attempt_span(run_id, turn, attempt.number)
    attributes: dict[str, Value] = {
        **_of_attempt(attempt),
        names.MESSAGING_SYSTEM: "celery",
        names.MESSAGING_OPERATION: "process",
        names.MESSAGING_TYPE: "process",
        **({names.QUEUE: attempt.queue} if attempt.queue else {}),
        **({} if attempt.queue_seconds is None else {names.QUEUE_WAIT: attempt.queue_seconds}),
        **({names.STOP_REASON: attempt.reason} if attempt.reason else {}),
        **_possibly_billed(attempt.possibly_billed),
    }
    return Span(
        name=names.TURN_NAME,
        kind=Kind.CONSUMER,
        place=Place(trace=_trace(run_id, turn), span=span_id),
        parent=root_span(run_id, part_of(turn)),
        start_ms=min(attempt.began_ms, attempt.ended_ms),
        end_ms=attempt.ended_ms,
        attributes=attributes,
        error=attempt.error,
        links=_previous_turn(run_id, turn),
        moments=(*_compacted(attempt), *_held(attempt)),
    )


def _possibly_billed(billed: PossiblyBilled | None) -> dict[str, Value]:
    if billed is None:
        return {}
    usd = {} if billed.cost_nanousd is None else {names.POSSIBLY_BILLED_USD: billed.cost_nanousd / NANO_USD}
    return {names.POSSIBLY_BILLED_TOKENS: billed.tokens, **usd}


def _previous_turn(run_id: RunId, turn: int) -> tuple[Place, ...]:
    previous = turn - 1
    return (Place(trace=_trace(run_id, previous), span=turn_span(run_id, previous)),) if previous else ()


def _compacted(attempt: Attempt) -> tuple[Moment, ...]:
    entry = attempt.compacted
    if entry is None:
        return ()
    usd = {names.SAVED: entry.saved_nanousd, names.REWRITE: entry.rewrite_nanousd}
    attributes: dict[str, Value] = {
        names.CLEARED_RESULTS: entry.results,
        names.TOKENS_BEFORE: entry.tokens_before,
        names.TOKENS_AFTER: entry.tokens_after,
        **{name: nanousd / NANO_USD for name, nanousd in usd.items() if nanousd is not None},
    }
    return (Moment(name=names.COMPACTED_EVENT, at_ms=entry.at_ms, attributes=attributes),)


def _held(attempt: Attempt) -> tuple[Moment, ...]:
    if attempt.hold_seconds is None:
        return ()
    waits = {names.HOLD: attempt.hold_seconds}
    return (Moment(name=names.HELD_EVENT, at_ms=attempt.ended_ms, attributes=waits),)


def _answered_chat(model: str, attempt: Attempt, called: ModelCalled, turn: Span) -> Span:
    attributes: dict[str, Value] = {
        **_of_chat(model, attempt),
        names.RESPONSE_MODEL: called.model,
        names.FINISH_REASONS: (names.finish_reason(called.stop_reason),),
        names.RAW_STOP_REASON: called.stop_reason,
        **_of_usage(called.usage),
        **({names.COMPACTED: True} if called.cleared_tokens or called.stop_reason == "compaction" else {}),
        **({} if called.cost_nanousd is None else {names.COST: called.cost_nanousd / NANO_USD}),
    }
    return _chat(attempt, turn, attributes, end_ms=called.at_ms, took_ms=called.took_ms)


def _failed_chat(model: str, attempt: Attempt, turn: Span) -> Span:
    chat = _chat(attempt, turn, _of_chat(model, attempt), end_ms=attempt.ended_ms, took_ms=attempt.failed_ms)
    return replace(chat, error=turn.error or names.MODEL_FAILED)


def _chat(attempt: Attempt, turn: Span, attributes: dict[str, Value], *, end_ms: int, took_ms: int) -> Span:
    return Span(
        name=f"{names.CHAT} {attributes[names.REQUEST_MODEL]}",
        kind=Kind.CLIENT,
        place=Place(trace=turn.place.trace, span=chat_span(attempt.run_id, attempt.turn, attempt.number)),
        parent=turn.place.span,
        start_ms=end_ms - took_ms,
        end_ms=end_ms,
        attributes=attributes,
    )


def _of_chat(model: str, attempt: Attempt) -> dict[str, Value]:
    return {
        **_of_attempt(attempt),
        names.OPERATION: names.CHAT,
        names.PROVIDER: "anthropic",
        names.REQUEST_MODEL: model,
        **attempt.request,
        **({names.COMPACTED: True} if attempt.compacted else {}),
    }


def _of_attempt(attempt: Attempt) -> dict[str, Value]:
    return {
        **_of_turn(attempt.run_id, attempt.turn),
        names.ATTEMPT: attempt.number,
        **({names.WORKER: attempt.worker} if attempt.worker else {}),
    }


def _of_usage(usage: Usage) -> dict[str, Value]:
    return {
        names.INPUT_TOKENS: usage.all_input,
        names.CACHE_READ_TOKENS: usage.cache_read,
        names.CACHE_WRITE_TOKENS: usage.cache_write,
        names.OUTPUT_TOKENS: usage.output,
    }


# Calls ---------------------------------------------------------------------------------------------------------------


def call_ran_span(run_id: RunId, ran: CallRan) -> Span:
    """A try of a tool call that came to a result; or what a person said it came to."""
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
        **({names.WORKER: entry.worker} if entry.worker else {}),
    }


# The run -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldRun:
    """A run, and what is to be said of it at the root: `reason` and `ended_ms` are empty while it is not over."""

    run: Run
    agent_name: str
    model: str
    reason: str = ""
    ended_ms: int = 0


def run_span(told: ToldRun, ledger: Sequence[Entry], *, turn: int, now_ms: int) -> Span:
    """The run, as far as the part that tells of `turn` does: the root of that part's trace.

    Of a part that had a root before the run was redriven the later life is told by a span below that root.
    """
    run_id, part = told.run.run_id, part_of(turn)
    lives = [at for at, entry in enumerate(ledger) if isinstance(entry, Redriven)]
    entries = _of_last_life(ledger, part)
    has_root = any(part_of(entry.turn) == part for entry in ledger[: lives[-1] if lives else 0])
    is_first = part == 0 and not has_root
    return Span(
        name=f"{names.INVOKE_AGENT} {told.agent_name}",
        kind=Kind.INTERNAL,
        place=Place(trace=trace_of(run_id, part), span=root_span(run_id, part, len(lives) if has_root else 0)),
        parent=root_span(run_id, part) if has_root else None,
        start_ms=told.run.submitted_ms if is_first else min(map(_start_ms, entries), default=now_ms),
        end_ms=told.ended_ms or now_ms,
        attributes={**_of_run(told), **_of_entries(entries), **({names.LIFE: len(lives)} if lives else {})},
        error=error_of(told.reason) if told.reason else "",
        links=(Place(trace=trace_of(run_id, part - 1), span=root_span(run_id, part - 1)),) if part else (),
        moments=tuple(_decided(entry) for entry in entries if isinstance(entry, _Decision)),
    )


def root_spans(told: ToldRun, ledger: Sequence[Entry], *, turn: int, now_ms: int) -> list[Span]:
    """The run's span, and what no worker could tell at the time: calls of which a person said what they came to."""
    decided = [
        call_ran_span(told.run.run_id, entry)
        for entry in _of_last_life(ledger, part_of(turn))
        if isinstance(entry, CallRan) and entry.source is Source.PERSON
    ]
    return [*decided, run_span(told, ledger, turn=turn, now_ms=now_ms)]


def _of_last_life(ledger: Sequence[Entry], part: int) -> list[Entry]:
    """What happened in this part since the run was redriven last; in all of it, where it never was."""
    since = max((at for at, entry in enumerate(ledger) if isinstance(entry, Redriven)), default=0)
    return [entry for entry in ledger[since:] if part_of(entry.turn) == part]


def _said_of(entry: EffectRuledOut | ApprovalDecided, source: Source) -> dict[str, Value]:
    return {names.CALL: entry.call, names.TOOL: entry.tool, names.SOURCE: source.value}


_Decision = EffectRuledOut | ApprovalDecided | Redriven


def _decided(entry: _Decision) -> Moment:
    if isinstance(entry, Redriven):
        return Moment(name=names.REDRIVEN_EVENT, at_ms=entry.at_ms)
    if isinstance(entry, ApprovalDecided):
        name = names.APPROVED_EVENT if entry.approved else names.DENIED_EVENT
        return Moment(name=name, at_ms=entry.at_ms, attributes=_said_of(entry, Source.PERSON))
    attributes = _said_of(entry, entry.source)
    return Moment(name=names.RULED_OUT_EVENT, at_ms=entry.at_ms, attributes=attributes)


def _start_ms(entry: Entry) -> int:
    return entry.at_ms - (entry.took_ms if isinstance(entry, ModelCalled | CallRan) else 0)


def _of_run(told: ToldRun) -> dict[str, Value]:
    run = told.run
    return {
        names.OPERATION: names.INVOKE_AGENT,
        names.AGENT: told.agent_name,
        names.CONVERSATION: run.run_id,
        names.RUN: run.run_id,
        names.REQUEST_MODEL: told.model,
        names.STATUS: run.state.status.value,
        names.TURNS: run.turn,
        names.ATTEMPTS: run.attempts,
        names.LOST_ATTEMPTS: run.lost_attempts,
        names.WORKING: run.spent.working_ms / 1000,
        **({names.STOP_REASON: told.reason} if told.reason else {}),
    }


def _of_entries(entries: Sequence[Entry]) -> dict[str, Value]:
    """The sums of the spans that are below: those of all the parts are the run's own."""
    called = [entry for entry in entries if isinstance(entry, ModelCalled)]
    costs = [entry.cost_nanousd for entry in called if entry.cost_nanousd is not None]
    usage = sum((entry.usage for entry in called), Usage())
    return {
        **_of_usage(usage),
        names.TOOL_CALLS: sum(isinstance(entry, CallRan) for entry in entries),
        **({names.FINISH_REASONS: (names.finish_reason(called[-1].stop_reason),)} if called else {}),
        **({names.COST: sum(costs) / NANO_USD} if len(costs) == len(called) else {}),
    }


def _of_turn(run_id: RunId, turn: int) -> dict[str, Value]:
    return {names.CONVERSATION: run_id, names.RUN: run_id, names.TURN: turn}


def _trace(run_id: RunId, turn: int) -> str:
    return trace_of(run_id, part_of(turn))
