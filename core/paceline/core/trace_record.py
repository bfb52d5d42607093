"""The spans of a run, from its record alone: those that workers export while it runs, with the same ids.

Their times are a few milliseconds rougher. What the record does not keep they do not have: how long messages were under
way, and attempts that only waited again for what an earlier one waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from .endings import ENDINGS, StopReason
from .ledger import (
    AttemptLost,
    CallRan,
    Compacted,
    EffectInDoubt,
    Ended,
    Entry,
    Held,
    ModelCalled,
    PossiblyBilled,
    Redriven,
    the,
)
from .lifecycle import TURN_CAN_BEGIN, State
from .run import Run, Spent
from .trace_ids import part_of
from .trace_names import WORKER_LOST
from .trace_span import Span
from .trace_telling import Attempt, ToldRun, attempt_lost, attempt_spans, call_ran_span, in_doubt_span, run_span

_OfAttempt = ModelCalled | Held | AttemptLost | PossiblyBilled | Ended


def recorded_spans(told: ToldRun, ledger: Sequence[Entry], *, now_ms: int) -> list[Span]:
    """The run's spans, roots first. Where the run is not over, its last root has its end now."""
    return [*_roots(told, ledger, now_ms), *_attempts(told, ledger), *_calls(told, ledger)]


# The run -------------------------------------------------------------------------------------------------------------


def _roots(told: ToldRun, ledger: Sequence[Entry], now_ms: int) -> Iterator[Span]:
    """Each life of the run, in each part that it reached."""
    redriven = [at for at, entry in enumerate(ledger) if isinstance(entry, Redriven)]
    for start, end in pairwise([0, *redriven, len(ledger)]):
        turns = [entry.turn for entry in ledger[start:end]] or [told.run.turn]
        is_last = end == len(ledger)
        last_part = part_of(told.run.turn if is_last else max(turns))
        for part in range(part_of(turns[0]), last_part):
            yield _passed(told, ledger[:end], part)
        if is_last:
            yield run_span(told, ledger, turn=told.run.turn, now_ms=now_ms)
        else:
            yield _ended_before(told, ledger[:end], max(turns))


def _passed(told: ToldRun, ledger: Sequence[Entry], part: int) -> Span:
    """The root of a part after which the run went on in the next one."""
    until = [entry for entry in ledger if part_of(entry.turn) <= part]
    then = replace(_as_after(told, until, State.TURN_DUE), reason="", ended_ms=until[-1].at_ms)
    return run_span(then, until, turn=until[-1].turn, now_ms=until[-1].at_ms)


def _ended_before(told: ToldRun, ledger: Sequence[Entry], turn: int) -> Span:
    """The run as it ended before it was redriven."""
    ended = the(Ended, reversed(ledger))
    reason = ended.reason if ended else StopReason.INTERNAL_ERROR.value  # the one end that an older ledger leaves out
    state = State(ENDINGS[StopReason(reason)].status.value)
    then = replace(_as_after(told, ledger, state), reason=reason, ended_ms=ledger[-1].at_ms)
    return run_span(then, ledger, turn=turn, now_ms=ledger[-1].at_ms)


def _as_after(told: ToldRun, ledger: Sequence[Entry], state: State) -> ToldRun:
    run: Run = replace(
        told.run,
        state=state,
        turn=ledger[-1].turn,
        attempts=max((entry.attempt for entry in ledger if isinstance(entry, _OfAttempt)), default=0),
        lost_attempts=sum(isinstance(entry, AttemptLost) for entry in ledger),
        spent=Spent(working_ms=sum(map(_took_ms, ledger))),
    )
    return replace(told, run=run)


# Attempts ------------------------------------------------------------------------------------------------------------


def _attempts(told: ToldRun, ledger: Sequence[Entry]) -> Iterator[Span]:
    by_number = _by_number(ledger)
    last_of_turn = {entries[0].turn: number for number, entries in sorted(by_number.items())}
    for number, entries in by_number.items():
        is_last = last_of_turn[entries[0].turn] == number
        lost = the(AttemptLost, entries)
        if lost and the(ModelCalled, entries):
            # Its worker was lost while it ran the inline calls: of its turn, which was over, that says nothing.
            yield from attempt_spans(told.model, attempt_lost(told.run.run_id, lost, the(PossiblyBilled, entries)))
            entries = entries[: entries.index(lost)]
        yield from attempt_spans(told.model, _attempt(told.run, number, entries, is_last))


def _by_number(ledger: Sequence[Entry]) -> dict[int, list[_OfAttempt | Compacted]]:
    by_number: dict[int, list[_OfAttempt | Compacted]] = {}
    compacted: list[_OfAttempt | Compacted] = []
    for entry in ledger:
        if isinstance(entry, Compacted):
            compacted = [entry]  # written together with what comes next, by the attempt that this is of
        elif isinstance(entry, _OfAttempt) and entry.attempt:
            by_number.setdefault(entry.attempt, []).extend([*compacted, entry])
            compacted = []
    return by_number


def _attempt(run: Run, number: int, entries: Sequence[_OfAttempt | Compacted], is_last_of_turn: bool) -> Attempt:
    called, held = the(ModelCalled, entries), the(Held, entries)
    lost, ended = the(AttemptLost, entries), the(Ended, entries)
    turn = entries[0].turn
    return Attempt(
        run_id=run.run_id,
        turn=turn,
        number=number,
        began_ms=min(map(_began_ms, entries)),
        ended_ms=max(entry.at_ms for entry in entries),
        worker=called.worker if called else lost.worker if lost else "",
        completes=is_last_of_turn and not (held or lost or ended or _is_due(run, turn, called)),
        reason=ended.reason if ended else "",
        trouble=WORKER_LOST if lost else held.trouble if held else "",
        called=called,
        failed_ms=0 if called else sum(map(_took_ms, entries)),
        hold_seconds=held.wait_seconds if held else None,
        compacted=the(Compacted, entries),
        possibly_billed=the(PossiblyBilled, entries),
    )


def _is_due(run: Run, turn: int, called: ModelCalled | None) -> bool:
    """Whether this turn was still to be taken, or was when the run was cancelled."""
    can_begin = run.state in TURN_CAN_BEGIN | {State.IN_TURN}
    opened_no_calls = called is None or called.stop_reason != "tool_use"
    return run.turn == turn and (can_begin or (opened_no_calls and run.state is State.CANCELLED))


def _began_ms(entry: _OfAttempt | Compacted) -> int:
    if isinstance(entry, AttemptLost):
        return entry.began_ms or entry.at_ms
    return entry.at_ms - _took_ms(entry)


def _took_ms(entry: Entry) -> int:
    return entry.took_ms if isinstance(entry, ModelCalled | CallRan | Held | Ended) else 0


# Calls ---------------------------------------------------------------------------------------------------------------


def _calls(told: ToldRun, ledger: Sequence[Entry]) -> Iterator[Span]:
    for entry in ledger:
        match entry:
            case CallRan():
                yield call_ran_span(told.run.run_id, entry)
            case EffectInDoubt():
                yield in_doubt_span(told.run.run_id, entry)
