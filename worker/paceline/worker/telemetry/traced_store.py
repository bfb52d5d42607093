"""The record, with an ear at it: what was written is told, once it was written and before anything follows from it.

So spans can tell of nothing that did not happen, no child is told before its parent, and where no traces are wanted
there is nothing in the way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from paceline.core.agent import Agent
from paceline.core.endings import Outcome
from paceline.core.ids import AgentDigest, CallId, RunId
from paceline.core.ledger import AttemptLost, EffectInDoubt, EffectRuledOut
from paceline.core.lifecycle import State
from paceline.core.run import Run
from paceline.core.trace_ids import is_last_of_part
from paceline.core.transcript import Fragment
from paceline.store.port import (
    Asked,
    Begun,
    CallBegun,
    CallClaim,
    CallResult,
    CallStored,
    CallWritten,
    ClaimRequest,
    NotBegun,
    OpenCall,
    RunStore,
    TurnClaim,
    TurnWrite,
    Written,
)

from .span import Span
from .telling import Attempt, attempt_spans, call_ran_span, in_doubt_span, lost_span, run_span
from .tracer import Tracer

log = logging.getLogger("paceline.telemetry")


def traced(store: RunStore, tracer: Tracer, *, longest_claim_seconds: float, now_ms: Callable[[], int]) -> RunStore:
    """The same record; what this process writes to it is told to the tracer."""
    # What it does not listen to it hands on, which no type can say.
    return cast(
        RunStore, TracedStore(store, tracer, longest_claim_ms=round(longest_claim_seconds * 1000), now_ms=now_ms)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay:
    """An attempt that began here. `queue_seconds`: how long its message was under way, by the record's clock."""

    run: Run
    began_ms: int
    worker: str
    queue_seconds: float


class TracedStore:
    """Lives on the process's loop."""

    def __init__(self, store: RunStore, tracer: Tracer, *, longest_claim_ms: int, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._tracer = tracer
        self._longest_claim_ms = longest_claim_ms
        self._now_ms = now_ms
        self._under_way: dict[TurnClaim, _UnderWay] = {}
        self._agents: dict[AgentDigest, Agent] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    # A turn

    async def begin(self, run_id: RunId, turn: int, claim: ClaimRequest) -> Begun | NotBegun:
        begun = await self._store.begin(run_id, turn, claim)
        if isinstance(begun, Begun) and self._tracer.samples(run_id):
            run = begun.run
            self._under_way[TurnClaim(run_id=run_id, turn=run.turn, fence=run.fence)] = _UnderWay(
                run=run,
                began_ms=self._now_ms(),
                worker=claim.owner,
                queue_seconds=max(0, begun.now_ms - max(run.sent_ms, run.hold_until_ms)) / 1000,
            )
        elif begun is NotBegun.STALE:
            await self._tell(run_id, lambda: self._cancelled_between(run_id))
        return begun

    async def open_calls(self, held: TurnClaim, write: TurnWrite, calls: Sequence[OpenCall]) -> Written:
        written = await self._store.open_calls(held, write, calls)
        if written is not Written.DUPLICATE_CALL:
            await self._tell_attempt(held, write, written, completes=True)
        return written

    async def go_on(self, held: TurnClaim, write: TurnWrite, *, advance: bool) -> Written:
        written = await self._store.go_on(held, write, advance=advance)
        await self._tell_attempt(held, write, written, completes=advance)
        return written

    async def hold(
        self, held: TurnClaim, write: TurnWrite, *, seconds: float, reason: str, timed: bool = False
    ) -> Written:
        written = await self._store.hold(held, write, seconds=seconds, reason=reason, timed=timed)
        await self._tell_attempt(held, write, written, hold_seconds=seconds)
        return written

    async def finish(self, held: TurnClaim, write: TurnWrite, outcome: Outcome) -> Written:
        before = await self._before_loss(held, write)
        written = await self._store.finish(held, write, outcome)
        await self._tell_attempt(held, write, written, reason=outcome.reason.value, before=before)
        return written

    async def recover(self, held: TurnClaim, write: TurnWrite) -> Written:
        before = await self._before_loss(held, write)
        written = await self._store.recover(held, write)
        await self._tell_attempt(held, write, written, before=before)
        return written

    async def join(self, held: TurnClaim, message: Fragment, inline: Sequence[CallResult] = ()) -> Written:
        written = await self._store.join(held, message, inline)
        if written is Written.WRITTEN:
            calls = [call_ran_span(held.run_id, result.entry) for result in inline]
            await self._tell(held.run_id, lambda: self._with_root(held, calls, moved_on=True))
        return written

    # Calls

    async def begin_call(self, run_id: RunId, turn: int, call_id: CallId, claim: ClaimRequest) -> CallBegun | NotBegun:
        begun = await self._store.begin_call(run_id, turn, call_id, claim)
        if begun in (NotBegun.STALE, NotBegun.CANCELLED):
            await self._tell(run_id, lambda: self._cancelled_between(run_id))
        return begun

    async def finish_call(self, held: CallClaim, result: CallResult) -> CallStored:
        stored = await self._store.finish_call(held, result)
        if stored.written is not CallWritten.LOST:
            call = call_ran_span(held.run_id, result.entry)
            await self._tell(held.run_id, lambda: self._with_root(held, [call]))
        return stored

    async def recover_call(self, held: CallClaim, *, lost: bool = False) -> Written:
        written = await self._store.recover_call(held, lost=lost)
        if written is Written.WRITTEN:
            await self._tell(held.run_id, lambda: self._with_root(held, []))
        return written

    async def doubt(self, held: CallClaim, asked: Asked, entry: EffectInDoubt, *, lost: bool = False) -> Written:
        written = await self._store.doubt(held, asked, entry, lost=lost)
        if written is Written.WRITTEN:
            await self._tell(held.run_id, lambda: self._with_root(held, [in_doubt_span(held.run_id, entry)]))
        return written

    async def rule_out(self, held: CallClaim, entry: EffectRuledOut) -> Written:
        written = await self._store.rule_out(held, entry)
        if written is Written.WRITTEN:
            await self._tell(held.run_id, lambda: self._with_root(held, []))
        return written

    async def aclose(self) -> None:
        try:
            await self._tracer.aclose()
        finally:
            await self._store.aclose()

    # What is told

    async def _tell(self, run_id: RunId, spans: Callable[[], Coroutine[Any, Any, Sequence[Span]]]) -> None:
        """Tell of a run. Whatever goes wrong with that is no fault of the run's: it is logged, and nothing else."""
        if not self._tracer.samples(run_id):
            return
        try:
            self._tracer.record(await spans())
        except Exception:
            log.warning("run %s: something of it is missing in its trace", run_id, exc_info=True)
        await self._tracer.flush()

    async def _tell_attempt(
        self,
        held: TurnClaim,
        write: TurnWrite,
        written: Written,
        *,
        completes: bool = False,
        reason: str = "",
        hold_seconds: float | None = None,
        before: Run | None = None,
    ) -> None:
        under_way = self._under_way.pop(held, None)
        if written is not Written.WRITTEN:
            return

        async def spans() -> Sequence[Span]:
            told: list[Span] = []
            if under_way:
                attempt = Attempt(
                    run=under_way.run,
                    began_ms=under_way.began_ms,
                    ended_ms=self._now_ms(),
                    worker=under_way.worker,
                    completes=completes,
                    reason=reason,
                    hold_seconds=hold_seconds,
                    queue_seconds=under_way.queue_seconds,
                )
                told += attempt_spans(await self._agent(under_way.run.agent), attempt, write)
            elif before:
                told += self._lost(before, write)
            return await self._with_root(held, told, moved_on=completes, is_over=bool(reason))

        await self._tell(held.run_id, spans)

    def _lost(self, run: Run, write: TurnWrite) -> list[Span]:
        # A claim's end is as far from its beginning as the longest claim is.
        began_ms = max(run.sent_ms, run.claim_until_ms - self._longest_claim_ms)
        lost = [entry for entry in write.ledger if isinstance(entry, AttemptLost)]
        return [lost_span(run, entry, began_ms=min(began_ms, entry.at_ms)) for entry in lost]

    async def _before_loss(self, held: TurnClaim, write: TurnWrite) -> Run | None:
        """The run as it was when it lost an attempt that did not begin here: only then is its claim on record."""
        is_lost = any(isinstance(entry, AttemptLost) for entry in write.ledger)
        if not is_lost or held in self._under_way or not self._tracer.samples(held.run_id):
            return None
        try:
            record = await self._store.run(held.run_id)
        except Exception:
            log.warning("run %s: a lost attempt is missing in its trace", held.run_id, exc_info=True)
            return None
        return record.run if record else None

    async def _with_root(
        self, held: TurnClaim | CallClaim, told: Sequence[Span], *, moved_on: bool = False, is_over: bool = False
    ) -> Sequence[Span]:
        """These, and the run's own span where the write ended the run, or the part of its trace that tells of it."""
        if is_over or await self._store.cancel_requested([held.run_id]):
            return [*told, *await self._root(held.run_id)]
        if moved_on and is_last_of_part(held.turn):
            return [*told, *await self._root(held.run_id, turn=held.turn)]
        return told

    async def _cancelled_between(self, run_id: RunId) -> Sequence[Span]:
        """The root of a run that somebody cancelled while nobody worked on it: its message finds that out."""
        record = await self._store.run(run_id)
        is_cancelled = record is not None and record.run.state is State.CANCELLED and record.run.attempts
        return await self._root(run_id) if is_cancelled else ()

    async def _root(self, run_id: RunId, *, turn: int = 0) -> Sequence[Span]:
        """The run's own span, if the run is over; or that of the part that ends with this turn."""
        record = await self._store.run(run_id)
        if record is None or not (turn or record.run.state.is_terminal):
            return ()
        if turn:
            # It may be over by now, of which its last part tells.
            record = replace(record, reason="", ended_ms=0)
        agent, ledger = await self._agent(record.run.agent), await self._store.ledger(run_id)
        return (run_span(agent, record, ledger, turn=turn or record.run.turn, now_ms=self._now_ms()),)

    async def _agent(self, digest: AgentDigest) -> Agent:
        if digest not in self._agents:
            frozen = await self._store.agent(digest)
            if frozen is None:
                raise LookupError(f"the record has no agent {digest}")
            self._agents[digest] = Agent.thaw(frozen)
        return self._agents[digest]
