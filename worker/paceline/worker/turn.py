"""A turn: claim it, decide, call the model once, commit what it said, and say what is to be sent next."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from paceline.core import counted
from paceline.core.agent import Agent
from paceline.core.answer import Answer, Billed, Call
from paceline.core.compaction import Compaction, compacted
from paceline.core.endings import Outcome, StopReason
from paceline.core.errors import InfrastructureError, NewerVersion
from paceline.core.ids import RunId
from paceline.core.ledger import Compacted as CompactedEntry
from paceline.core.ledger import Ended, Entry, ModelCalled
from paceline.core.metrics import NOTHING, Counts, HoldReason
from paceline.core.next_call import NextCall, next_call
from paceline.core.prices import call_nanousd
from paceline.core.run import Run, Spent
from paceline.core.step import (
    BudgetRefused,
    CallModel,
    FailureKind,
    Finish,
    GoOn,
    Hold,
    ModelAnswered,
    ModelCallFailed,
    OpenCalls,
    Step,
    TurnBegun,
    next_step,
    said_so_far,
)
from paceline.core.transcript import (
    Fragment,
    all_failed,
    check_next,
    check_sendable,
    is_models,
    tool_use_ids,
)
from paceline.core.usage import WorstCase
from paceline.store.port import Begun, NotBegun, Reserved, TurnClaim, TurnWrite, Written

from .budget import release_budget
from .desk import Desk
from .holds import hold, hold_entry, spread, wait
from .lost_attempt import lost_attempt, possibly_billed
from .messages import Message
from .onward import next_turn, what_is_due
from .record_clock import now_ms
from .run_log import log_attempt, log_end, of_attempt
from .turn_calls import open_call, run_calls

log = logging.getLogger("paceline.turn")

_OTHER_WORKER_SECONDS = 10.0
"""How soon a run is offered again after a worker had it that cannot import its tools, or read its agent."""
_BROKEN = "broken"
"""In the ledger, for the stop reason of an answer that could not be used."""


async def take_turn(desk: Desk, run_id: RunId, turn: int) -> Sequence[Message]:
    """Carry out one attempt at this turn, if it is due and nobody else has it. Answers with what is to be sent."""
    with desk.claiming(desk.settings.model_seconds) as claim:
        # Asked again until there is a reply: the claim may be ours already, and then nobody else can have it.
        begun = await desk.until_written(lambda: desk.store.begin(run_id, turn, claim))
        if isinstance(begun, NotBegun):
            return ()
        with desk.in_flight.working():
            return await _guarded(desk, begun)


async def _guarded(desk: Desk, begun: Begun) -> Sequence[Message]:
    """Whatever happens, the claim is given up: a living worker's claim would keep the run from everybody."""
    run, progress = begun.run, Progress()
    try:
        agent = await desk.agent(run.agent)
        attempt = Attempt(
            desk=desk, agent=agent, run=run, fragments=begun.fragments, begun_ms=begun.now_ms, progress=progress
        )
        return await attempt.carry_out()
    except asyncio.CancelledError:
        return await asyncio.shield(_give_back(desk, run, progress))
    except NewerVersion as error:
        return await wait(desk, run, seconds=_OTHER_WORKER_SECONDS, reason=str(error), counted_as=HoldReason.VERSION)
    except InfrastructureError as error:
        log.error("run %s turn %d: %s", run.run_id, run.turn, error, extra=of_attempt(run))
        return await _give_back(desk, run, progress)
    except Exception as error:
        log.exception("run %s turn %d: a fault of paceline's own", run.run_id, run.turn, extra=of_attempt(run))
        message = f"a fault of paceline's own: {type(error).__name__}"
        outcome = Outcome(reason=StopReason.INTERNAL_ERROR, message=message)
        lost = _lost(desk, run, progress)
        write = replace(lost, ledger=(*lost.ledger, _ended(run, outcome)))
        await release_budget(desk, run, write)
        if await desk.until_written(lambda: desk.store.finish(TurnClaim.of(run), write, outcome)) is Written.WRITTEN:
            log_end(run.run_id, run.turn, outcome)
        return ()


async def _give_back(desk: Desk, run: Run, progress: Progress) -> Sequence[Message]:
    """Let somebody else take this turn again, as soon as the record can be written. An attempt that called the model is
    told as lost: it may have been billed."""
    write = _lost(desk, run, progress)
    await release_budget(desk, run, write)
    if await desk.until_written(lambda: desk.store.recover(TurnClaim.of(run), write)) is Written.LOST:
        # It may have been put on hold just before, and nobody has set a timer.
        await desk.until_written(lambda: desk.store.look_in([run.run_id], seconds=0))
    else:
        log_attempt(run, write, "given_back")
    # The attempt may have been written just before it was cut short: then something else is due.
    return await what_is_due(desk, run.run_id)


def _lost(desk: Desk, run: Run, progress: Progress) -> TurnWrite:
    """What there is to write of an attempt that came to nothing; it is lost if it called the model."""
    if progress.called is None:
        return TurnWrite(streaks=run.streaks)
    write = lost_attempt(run, desk.incarnation, progress.called, began_ms=progress.called_ms)
    return replace(write, counts=counted.unanswered(run, write.ledger))


def _ended(run: Run, outcome: Outcome, *, failed_ms: int = 0) -> Ended:
    return Ended(
        turn=run.turn,
        at_ms=now_ms(),
        reason=outcome.reason,
        message=outcome.message,
        attempt=run.attempts,
        took_ms=failed_ms,
    )


def _no_room(agent: Agent, run: Run) -> str:
    """Why a run waits while its model is held: in the API's own words where the run has just heard them itself."""
    return (run.streaks.throttles and run.hold_reason) or f"{agent.model} has no room"


def _failed_ms(entries: Sequence[Entry], spent: Spent) -> int:
    """How long an attempt's model call took that came to nothing; 0: it made none, or its answer is on record."""
    return 0 if any(isinstance(entry, ModelCalled) for entry in entries) else spent.working_ms


@dataclass(slots=True)
class Progress:
    """How far an attempt came."""

    called: WorstCase | None = None
    """What its model call may have used, once it has begun."""
    called_ms: int = 0
    """When that was."""
    counts: Counts = field(default_factory=dict)
    """What is counted of its model call and no entry tells: that it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A claimed attempt at a turn."""

    desk: Desk
    agent: Agent
    run: Run
    fragments: tuple[Fragment, ...]
    begun_ms: int
    progress: Progress
    compaction: Compaction | None = None
    """Made before this attempt's call."""

    async def carry_out(self) -> Sequence[Message]:
        """The whole attempt."""
        missing = await self.desk.missing_tools(self.agent)
        if missing:
            return await wait(
                self.desk, self.run, seconds=_OTHER_WORKER_SECONDS, reason=missing, counted_as=HoldReason.TOOLS
            )
        call = next_call(self.agent, self.run, self.fragments)
        begun = TurnBegun(call=call, now_ms=self.begun_ms, all_failed=all_failed(self.fragments[-1]))
        step = next_step(self.agent, self.run, begun)
        match step:
            case CallModel():
                return await self._call_model(step, call)
            case Finish():
                return await self._finish(step, ())
            case _:
                raise AssertionError(f"a turn begins with a call or an end, not with {step}")

    def _compacted(self, compaction: Compaction | None) -> Attempt:
        """The attempt as it goes on with a compaction, which is put on record with whatever comes of the call."""
        if compaction is None:
            return self
        return replace(self, run=compacted(self.run, compaction), compaction=compaction)

    # The model

    async def _call_model(self, step: CallModel, call: NextCall) -> Sequence[Message]:
        held_seconds = await self.desk.model_hold_seconds(self.agent.model)
        if held_seconds:
            seconds, reason = spread(self.run, held_seconds), _no_room(self.agent, self.run)
            return await wait(self.desk, self.run, seconds=seconds, reason=reason, counted_as=HoldReason.THROTTLED)
        refused = await self._reserve(call.at_worst) if self.run.has_budget else None
        if refused is not None:
            return refused
        return await self._compacted(call.compaction)._ask(step, call.at_worst)

    async def _ask(self, call: CallModel, at_worst: WorstCase) -> Sequence[Message]:
        messages = self.desk.cleared_views.sent(self.agent, self.run, self.fragments)
        check_sendable(messages)
        body = self.agent.request(
            messages, max_tokens=call.max_tokens, user_id=self.run.run_id, container=self.run.container
        )
        seconds = min(self.desk.settings.model_seconds, call.seconds_left or self.desk.settings.model_seconds)
        began = now_ms()
        self.progress.called, self.progress.called_ms = at_worst, began
        calling = self.desk.model.call(body, seconds=seconds, betas=self.agent.passed_through.betas)
        came = await self.desk.in_flight.model_call(self.run.run_id, calling)
        took_ms = now_ms() - began
        match came:
            case None:
                return await self._cancelled()
            case ModelCallFailed():
                return await self._unanswered(came, at_worst, took_ms)
            case Answer():
                return await self._answered(came, at_worst, took_ms)
            case _:
                assert_never(came)

    async def _reserve(self, call: WorstCase) -> Sequence[Message] | None:
        """Hold the call against the batch's budget; None if it may be made, else what is to be sent in its place."""
        spent = self.run.spent.nanousd_at_most
        reserved = await self.desk.until_written(
            lambda: self.desk.store.reserve(TurnClaim.of(self.run), spent=spent, call=call.nanousd or 0)
        )
        match reserved:
            case Reserved.RESERVED:
                return None
            case Reserved.STALE:
                # Another has the run; or its record was lost and begun anew, and counts up to what the budget knows.
                return await _give_back(self.desk, self.run, self.progress)
            case Reserved.WAIT | Reserved.SPENT:
                refused = BudgetRefused(for_good=reserved is Reserved.SPENT, chance=random.random())
                return await self._take(next_step(self.agent, self.run, refused), Spent(), (), answer=None)
            case _:
                assert_never(reserved)

    async def _cancelled(self) -> Sequence[Message]:
        lost = _lost(self.desk, self.run, self.progress)
        cancelled = Finish(outcome=Outcome(reason=StopReason.CANCELLED, message="cancelled"))
        return await self._finish(cancelled, lost.ledger, lost.spent)

    async def _unanswered(self, failure: ModelCallFailed, at_worst: WorstCase, took_ms: int) -> Sequence[Message]:
        """Account for a call without an answer that can be used: what it cost, or what it may have cost."""
        took = Spent(working_ms=took_ms)
        if failure.billed:
            spent, entries = self._billed(failure.billed, _BROKEN, at_worst, took_ms)
            return await self._failed(failure, took + spent, entries)
        if failure.kind is not FailureKind.UNREADY:
            self.progress.counts = counted.model_failed(self.agent.model, failure.kind, took_ms)
        if failure.may_be_billed:
            spent = took + Spent.possibly(at_worst)
            return await self._failed(failure, spent, (possibly_billed(self.run, at_worst),))
        return await self._failed(failure, took)

    async def _failed(
        self, failure: ModelCallFailed, spent: Spent, entries: tuple[Entry, ...] = ()
    ) -> Sequence[Message]:
        if failure.kind is FailureKind.UNREADY:
            self.desk.in_flight.problems.note(failure.kind, failure.message)
        step = next_step(self.agent, self.run, failure)
        return await self._take(step, spent, entries, answer=None)

    async def _answered(self, answer: Answer, at_worst: WorstCase, took_ms: int) -> Sequence[Message]:
        so_far, failed = said_so_far(self.fragments), all_failed(self.fragments[-1])
        step = next_step(self.agent, self.run, ModelAnswered(answer=answer, so_far=so_far, all_failed=failed))
        stop_reason = answer.stop_reason or "none"
        cost, entries = self._billed(answer, stop_reason, at_worst, took_ms, answer.calls)
        spent = cost + Spent(working_ms=took_ms)
        if isinstance(step, OpenCalls):
            return await self._open(step, spent, entries, answer)
        if isinstance(step, Finish) and step.append and self._uses_an_id_again(answer):
            return await self._failed(_id_used_again(), spent, entries)
        return await self._take(step, spent, entries, answer=answer)

    def _uses_an_id_again(self, answer: Answer) -> bool:
        # The record looks for it where calls are opened; the calls of an answer that ends the run never are.
        said = [json.loads(each) for each in self.fragments if is_models(each)] if answer.calls else []
        used = {call_id for message in said for call_id in tool_use_ids(message)}
        return any(call.call_id in used for call in answer.calls)

    def _billed(
        self,
        billed: Answer | Billed,
        stop_reason: str,
        at_worst: WorstCase,
        took_ms: int,
        calls: Sequence[Call] = (),
    ) -> tuple[Spent, tuple[Entry, ...]]:
        """What an answer used, and the ledger's entries about it. One of unknown price may have cost the worst case."""
        cost = billed.cost_nanousd
        if self.agent.prices:
            cost = call_nanousd(self.agent.prices, billed.usage)
        called = ModelCalled(
            turn=self.run.turn,
            attempt=self.run.attempts,
            at_ms=now_ms(),
            took_ms=took_ms,
            worker=self.desk.incarnation,
            model=billed.model,
            stop_reason=stop_reason,
            usage=billed.usage,
            cost_nanousd=cost,
            calls=tuple(f"{call.tool}({call.call_id})" for call in calls),
            cleared_tokens=billed.cleared_tokens if isinstance(billed, Answer) else 0,
        )
        if cost is not None:
            return Spent(usage=billed.usage, cost_nanousd=cost), (called,)
        unknown = replace(at_worst, tokens=0)
        spent = Spent(usage=billed.usage, unpriced_calls=1) + Spent.possibly(unknown)
        return spent, (called, possibly_billed(self.run, unknown))

    # What comes next

    async def _take(
        self, step: Step, spent: Spent, entries: tuple[Entry, ...], *, answer: Answer | None
    ) -> Sequence[Message]:
        match step:
            case GoOn():
                return await self._go_on(step, spent, entries, answer)
            case Hold():
                return await self._hold(step, spent, entries)
            case Finish():
                return await self._finish(step, entries, spent)
            case _:
                raise AssertionError(f"{step} cannot come after a model call here")

    async def _go_on(
        self, step: GoOn, spent: Spent, entries: tuple[Entry, ...], answer: Answer | None
    ) -> Sequence[Message]:
        self._check(step.append)
        grew = any(map(is_models, step.append))
        write = self._completed(
            TurnWrite(
                append=step.append,
                spent=spent,
                context_tokens=answer.context_tokens if answer and grew else None,
                streaks=step.streaks,
                ledger=entries,
                container=answer.container if answer and grew else "",
            )
        )
        await release_budget(self.desk, self.run, write)
        written = await self.desk.until_written(
            lambda: self.desk.store.go_on(TurnClaim.of(self.run), write, advance=step.advance)
        )
        if written is Written.WRITTEN:
            log_attempt(self.run, write, "done")
        return await next_turn(self.desk, self.run, written, self.run.turn + step.advance)

    async def _hold(self, step: Hold, spent: Spent, entries: tuple[Entry, ...]) -> Sequence[Message]:
        seconds = step.seconds
        if step.holds_model:
            await self.desk.hold_model(self.agent.model, seconds=seconds)
            seconds = spread(self.run, seconds)
        held = hold_entry(self.run, seconds, step.reason, step.streaks, failed_ms=_failed_ms(entries, spent))
        write = self._completed(TurnWrite(spent=spent, streaks=step.streaks, ledger=(*entries, *held)))
        return await hold(self.desk, self.run, write, seconds, step.reason, step.counted_as)

    async def _finish(self, step: Finish, entries: tuple[Entry, ...], spent: Spent | None = None) -> Sequence[Message]:
        self._check(step.append)
        outcome, spent = step.outcome, spent or Spent()
        ended = _ended(self.run, outcome, failed_ms=_failed_ms(entries, spent))
        write = self._completed(
            TurnWrite(append=step.append, spent=spent, ledger=(*entries, ended)),
            counted.repeated(self.run, aborted=int(outcome.reason is StopReason.REPEAT_CALLS)),
        )
        await release_budget(self.desk, self.run, write)
        written = await self.desk.until_written(lambda: self.desk.store.finish(TurnClaim.of(self.run), write, outcome))
        if written is Written.WRITTEN:
            if self.progress.called:
                log_attempt(self.run, write, "done")
            log_end(self.run.run_id, self.run.turn, outcome)
        return ()

    async def _open(
        self, step: OpenCalls, spent: Spent, entries: tuple[Entry, ...], answer: Answer
    ) -> Sequence[Message]:
        self._check((step.append,))
        calls = [open_call(self.agent, call, step.answered.get(call.call_id)) for call in step.calls]
        write = self._completed(
            TurnWrite(
                append=(step.append,),
                spent=spent,
                context_tokens=answer.context_tokens,
                streaks=step.streaks,
                ledger=entries,
                container=answer.container,
            ),
            counted.repeated(self.run, warned=step.repeated),
        )
        await release_budget(self.desk, self.run, write)
        match await self.desk.until_written(lambda: self.desk.store.open_calls(TurnClaim.of(self.run), write, calls)):
            case Written.WRITTEN:
                log_attempt(self.run, write, "done", calls=len(calls))
                return await run_calls(self.desk, self.agent, self.run, step.append, calls)
            case Written.LOST:
                return await what_is_due(self.desk, self.run.run_id)
            case Written.DUPLICATE_CALL:
                return await self._failed(_id_used_again(), spent, entries)

    def _completed(self, write: TurnWrite, more: Counts = NOTHING) -> TurnWrite:
        """This write, with the compaction that came before the call, if there was one, and with what is counted."""
        model = self.agent.model
        return replace(
            self._with_compaction(write),
            context_used=counted.context_used(self.run, model, write.ledger),
            counts=counted.added(counted.written(self.run, model, write.ledger), self.progress.counts, more),
        )

    def _with_compaction(self, write: TurnWrite) -> TurnWrite:
        """This write, with the compaction that came before the call, if there was one."""
        if self.compaction is None:
            return write
        known = self.run.context_tokens if write.context_tokens is None else write.context_tokens
        return replace(
            write,
            cleared=self.run.cleared,
            context_tokens=known,
            ledger=(_compaction_entry(self.run, self.compaction), *write.ledger),
        )

    def _check(self, append: Sequence[Fragment]) -> None:
        previous: Fragment = self.fragments[-1]
        for fragment in append:
            check_next(previous, fragment)
            previous = fragment


def _compaction_entry(run: Run, made: Compaction) -> CompactedEntry:
    return CompactedEntry(
        turn=run.turn,
        at_ms=now_ms(),
        cleared=made.cleared,
        results=made.results,
        tokens_before=made.tokens_before,
        tokens_after=made.tokens_after,
        expected_turns=made.expected_turns,
        saved_nanousd=made.worth.saved_nanousd,
        rewrite_nanousd=made.worth.rewrite_nanousd,
    )


def _id_used_again() -> ModelCallFailed:
    message = "the answer uses a tool call id that the conversation has already"
    return ModelCallFailed(kind=FailureKind.TRANSIENT, message=message, chance=0.5)
