"""The record, with an ear at it: what was written is told, once it was written and before anything follows from it.

So spans can tell of nothing that did not happen, no child is told before its parent, and where no traces are wanted
there is nothing in the way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol, cast

from paceline.core.agent import Agent
from paceline.core.endings import Outcome
from paceline.core.ids import AgentDigest, RunId
from paceline.core.ledger import (
    AttemptLost,
    Compacted,
    EffectInDoubt,
    EffectRuledOut,
    ModelCalled,
    PossiblyBilled,
    the,
)
from paceline.core.lifecycle import State
from paceline.core.metrics import HoldReason
from paceline.core.run import Run
from paceline.core.trace_ids import is_last_of_part
from paceline.core.trace_names import WORKER_LOST
from paceline.core.trace_span import Span, Value
from paceline.core.trace_telling import (
    Attempt,
    ToldRun,
    attempt_lost,
    attempt_spans,
    call_ran_span,
    in_doubt_span,
    root_spans,
    trouble,
)
from paceline.core.transcript import Fragment
from paceline.core.wire import Queue, queue_of_turn
from paceline.store.port import (
    Asked,
    Begun,
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

from .request import asked
from .tracer import Tracer

log = logging.getLogger("paceline.telemetry")


def traced(
    store: RunStore,
    tracer: Tracer,
    *,
    now_ms: Callable[[], int],
    server: Mapping[str, Value] = MappingProxyType({}),
    content: Content | None = None,
) -> RunStore:
    """The same record; what this process writes to it is told to the tracer.

    `server` is what to say of where it calls the model. With `content` the spans have what was said, too.
    """
    # What it does not listen to it hands on, which no type can say.
    return cast(RunStore, TracedStore(store, tracer, now_ms=now_ms, server=server, content=content))


class Content(Protocol):
    """Adds what was said to spans."""

    async def of_attempt(self, run_id: RunId, agent: Agent, spans: Sequence[Span], write: TurnWrite) -> list[Span]:
        """The spans of an attempt that ended with this write, with what was sent and what came."""

    async def of_calls(self, run_id: RunId, spans: Sequence[Span], results: Sequence[CallResult]) -> list[Span]:
        """The spans of these results, with what the tools were called with and what they said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay:
    """An attempt that began here."""

    run: Run
    began_ms: int
    worker: str
    queue: Queue
    queue_seconds: float
    """How long its message was under way, by the record's clock."""


class TracedStore:
    """Lives on the process's loop."""

    def __init__(
        self,
        store: RunStore,
        tracer: Tracer,
        *,
        now_ms: Callable[[], int],
        server: Mapping[str, Value],
        content: Content | None,
    ) -> None:
        self._store = store
        self._tracer = tracer
        self._now_ms = now_ms
        self._server = server
        self._content = content
        self._under_way: dict[TurnClaim, _UnderWay] = {}
        self._agents: dict[AgentDigest, Agent] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    # A turn

    async def begin(self, run_id: RunId, turn: int, claim: ClaimRequest) -> Begun | NotBegun:
        begun = await self._store.begin(run_id, turn, claim)
        if isinstance(begun, Begun) and self._tracer.samples(run_id):
            run = begun.run
            self._under_way[TurnClaim.of(run)] = _UnderWay(
                run=run,
                began_ms=self._now_ms(),
                worker=claim.owner,
                queue=_queue_of(run),
                queue_seconds=max(0, begun.now_ms - max(run.sent_ms, run.hold_until_ms)) / 1000,
            )
        return begun

    async def open_calls(self, held: TurnClaim, write: TurnWrite, calls: Sequence[OpenCall]) -> Written:
        written = await self._store.open_calls(held, write, calls)
        if written is not Written.DUPLICATE_CALL:
            await self._tell_attempt(held, write, written, opens_calls=True)
        return written

    async def go_on(self, held: TurnClaim, write: TurnWrite, *, advance: bool) -> Written:
        written = await self._store.go_on(held, write, advance=advance)
        await self._tell_attempt(held, write, written, advances=advance)
        return written

    async def hold(
        self,
        held: TurnClaim,
        write: TurnWrite,
        *,
        seconds: float,
        reason: str,
        counted_as: HoldReason = HoldReason.OTHER,
        timed: bool = False,
    ) -> Written:
        written = await self._store.hold(
            held, write, seconds=seconds, reason=reason, counted_as=counted_as, timed=timed
        )
        await self._tell_attempt(held, write, written, hold_seconds=seconds)
        return written

    async def finish(self, held: TurnClaim, write: TurnWrite, outcome: Outcome) -> Written:
        written = await self._store.finish(held, write, outcome)
        await self._tell_attempt(held, write, written, reason=outcome.reason.value)
        return written

    async def recover(self, held: TurnClaim, write: TurnWrite) -> Written:
        written = await self._store.recover(held, write)
        await self._tell_attempt(held, write, written)
        return written

    async def join(self, held: TurnClaim, message: Fragment, inline: Sequence[CallResult] = ()) -> Written:
        written = await self._store.join(held, message, inline)
        if written is Written.WRITTEN:
            await self._tell(held.run_id, lambda: self._with_root(held, inline, moved_on=True))
        return written

    # Calls

    async def finish_call(self, held: CallClaim, result: CallResult) -> CallStored:
        stored = await self._store.finish_call(held, result)
        if stored.written is not CallWritten.LOST:
            await self._tell(held.run_id, lambda: self._with_root(held, [result]))
        return stored

    async def recover_call(self, held: CallClaim, *, lost: bool = False) -> Written:
        written = await self._store.recover_call(held, lost=lost)
        if written is Written.WRITTEN:
            await self._tell(held.run_id, lambda: self._with_root(held, []))
        return written

    async def doubt(self, held: CallClaim, asked: Asked, entry: EffectInDoubt, *, lost: bool = False) -> Written:
        written = await self._store.doubt(held, asked, entry, lost=lost)
        if written is Written.WRITTEN:
            await self._tell(held.run_id, lambda: self._with_root(held, [], in_doubt_span(held.run_id, entry)))
        return written

    async def rule_out(self, held: CallClaim, entry: EffectRuledOut) -> Written:
        written = await self._store.rule_out(held, entry)
        if written is Written.WRITTEN:
            await self._tell(held.run_id, lambda: self._with_root(held, []))
        return written

    # The run

    async def let_go(self, run_id: RunId) -> None:
        # No worker knows of its end. It is told first: whoever is killed in between leaves it to the next sweeper.
        await self._tell(run_id, lambda: self._root(run_id))
        await self._store.let_go(run_id)

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
        opens_calls: bool = False,
        advances: bool = False,
        reason: str = "",
        hold_seconds: float | None = None,
    ) -> None:
        under_way = self._under_way.pop(held, None)

        async def spans() -> Sequence[Span]:
            if written is not Written.WRITTEN and not await self._is_on_record(held.run_id, write):
                return ()
            is_over = bool(reason) or await self._was_cancelled(held.run_id)
            completes = opens_calls or (advances and not is_over)
            if under_way:
                attempt = replace(
                    self._over(under_way, write), completes=completes, reason=reason, hold_seconds=hold_seconds
                )
                told = await self._attempt_spans(under_way.run, attempt, write)
            else:
                told = _lost(held.run_id, write)
            return [*told, *await self._roots_of(held, is_over=is_over, moved_on=completes)]

        await self._tell(held.run_id, spans)

    async def _is_on_record(self, run_id: RunId, write: TurnWrite) -> bool:
        """Whether a write that is LOST was made all the same: by an earlier try, whose reply never came."""
        return bool(write.ledger) and write.ledger[-1] in await self._store.ledger(run_id)

    async def _attempt_spans(self, run: Run, attempt: Attempt, write: TurnWrite) -> list[Span]:
        agent = await self._agent(run.agent)
        told = attempt_spans(agent.model, replace(attempt, request={**self._server, **asked(agent, run)}))
        return await self._content.of_attempt(run.run_id, agent, told, write) if self._content else told

    async def _call_spans(self, run_id: RunId, results: Sequence[CallResult]) -> list[Span]:
        told = [call_ran_span(run_id, result.entry) for result in results]
        return await self._content.of_calls(run_id, told, results) if self._content else told

    def _over(self, under_way: _UnderWay, write: TurnWrite) -> Attempt:
        """An attempt that ends with this write."""
        run = under_way.run
        called = the(ModelCalled, write.ledger)
        return Attempt(
            run_id=run.run_id,
            turn=run.turn,
            number=run.attempts,
            began_ms=under_way.began_ms,
            ended_ms=self._now_ms(),
            worker=under_way.worker,
            trouble=WORKER_LOST if the(AttemptLost, write.ledger) else trouble(run.streaks, write.streaks),
            called=called,
            failed_ms=0 if called else write.spent.working_ms,
            compacted=the(Compacted, write.ledger),
            possibly_billed=the(PossiblyBilled, write.ledger),
            queue=under_way.queue,
            queue_seconds=under_way.queue_seconds,
        )

    async def _with_root(
        self, held: TurnClaim | CallClaim, results: Sequence[CallResult], *told: Span, moved_on: bool = False
    ) -> Sequence[Span]:
        """These calls, and what there is to say of the run itself."""
        calls = await self._call_spans(held.run_id, results)
        is_over = await self._was_cancelled(held.run_id)
        return [*told, *calls, *await self._roots_of(held, is_over=is_over, moved_on=moved_on)]

    async def _was_cancelled(self, run_id: RunId) -> bool:
        """Whether a write may have ended the run because somebody wanted that."""
        return bool(await self._store.cancel_requested([run_id]))

    async def _roots_of(self, held: TurnClaim | CallClaim, *, is_over: bool, moved_on: bool) -> Sequence[Span]:
        """The run's own span where a write ended the run, or the part of its trace that tells of it."""
        if is_over:
            return await self._root(held.run_id)
        if moved_on and is_last_of_part(held.turn):
            return await self._root(held.run_id, turn=held.turn)
        return ()

    async def _root(self, run_id: RunId, *, turn: int = 0) -> Sequence[Span]:
        """The run's own span, if the run is over; or that of the part that ends with this turn."""
        record = await self._store.run(run_id)
        if record is None or not (turn or record.run.state.is_terminal):
            return ()
        agent, ledger = await self._agent(record.run.agent), await self._store.ledger(run_id)
        told = ToldRun(run=record.run, agent_name=agent.name, model=agent.model)
        if not turn:  # else it may be over by now, of which its last part tells
            told = replace(told, reason=record.reason, ended_ms=record.ended_ms)
        return root_spans(told, ledger, turn=turn or record.run.turn, now_ms=self._now_ms())

    async def _agent(self, digest: AgentDigest) -> Agent:
        if digest not in self._agents:
            frozen = await self._store.agent(digest)
            if frozen is None:
                raise LookupError(f"the record has no agent {digest}")
            self._agents[digest] = Agent.thaw(frozen)
        return self._agents[digest]


def _queue_of(begun: Run) -> Queue:
    """Where the message waited that began this attempt: `begun` is the run as it is since."""
    before = State.QUEUED if begun.attempts == 1 else State.ON_HOLD if begun.hold_until_ms else State.TURN_DUE
    return queue_of_turn(replace(begun, state=before))


def _lost(run_id: RunId, write: TurnWrite) -> list[Span]:
    """Attempts whose workers cannot tell of them any more."""
    lost = [entry for entry in write.ledger if isinstance(entry, AttemptLost)]
    billed = the(PossiblyBilled, write.ledger)
    return [span for entry in lost for span in attempt_spans("", attempt_lost(run_id, entry, billed))]
