"""Runs in a store, and the moves that workers make with them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from paceline.core.endings import Outcome, StopReason
from paceline.core.ids import AgentDigest, BatchName, CallId, Incarnation, RunId, run_id
from paceline.core.ledger import ApprovalDecided, CallRan, EffectInDoubt, EffectRuledOut, ModelCalled, Source
from paceline.core.lifecycle import State
from paceline.core.run import Run, Spent
from paceline.core.tool_spec import Approval, Effect, Placement
from paceline.core.transcript import Fragment, assistant_content, result_block, user_text
from paceline.core.usage import Usage
from paceline.store.port import (
    Asked,
    BatchInfo,
    Begun,
    CallBegun,
    CallClaim,
    CallResult,
    CallStored,
    ClaimRequest,
    CountedAgent,
    NewRun,
    OpenCall,
    RunStore,
    Submitted,
    TurnClaim,
    TurnWrite,
    Written,
)

BATCH = BatchInfo(
    name=BatchName("nightly"),
    tenant="default",
    agent=AgentDigest("5f0c"),
    agent_name="oncall",
    opened_ms=1_799_999_999_000,
)
QUESTION = user_text("Who is on call?")
ANSWERED = Outcome(reason=StopReason.FINAL_ANSWER, answer="Ada")
SPENT = Spent(
    usage=Usage(input=100, cache_read=20, cache_write=3, output=40),
    cost_nanousd=7_000,
    working_ms=250,
    possibly_billed_tokens=900,
    possibly_billed_nanousd=80_000,
)

_nonces = itertools.count()


def a_row(row_id: str = "row-1", *, index: int = 0, digest: str = "d1", batch: BatchName = BATCH.name) -> NewRun:
    return NewRun(run_id=run_id(batch, row_id), row_id=row_id, index=index, digest=digest, first=(QUESTION,))


def a_claim(owner: str = "worker-1", *, nonce: str = "", longest_seconds: float = 120.0) -> ClaimRequest:
    nonce = nonce or f"n{next(_nonces)}"
    return ClaimRequest(owner=Incarnation(owner), nonce=nonce, longest_seconds=longest_seconds)


def a_call(call_id: str, effect: Effect = Effect.READS, placement: Placement = Placement.FLEET) -> OpenCall:
    return OpenCall(
        call_id=CallId(call_id), tool="search", raw_input='{"q":"on call"}', effect=effect, placement=placement
    )


def a_call_to_approve(call_id: str, effect: Effect = Effect.ONCE) -> OpenCall:
    return replace(a_call(call_id, effect), approval=Approval.ALWAYS)


def asking(*call_ids: str) -> Fragment:
    blocks = [f'{{"type":"tool_use","id":"{call_id}","name":"search","input":{{}}}}' for call_id in call_ids]
    return assistant_content(f"[{','.join(blocks)}]".encode())


def model_called(turn: int = 1, attempt: int = 1) -> ModelCalled:
    return ModelCalled(
        turn=turn,
        attempt=attempt,
        at_ms=1_800_000_000_500,
        took_ms=250,
        worker="worker-1",
        model="claude-sonnet-5-5",
        stop_reason="tool_use",
        usage=SPENT.usage,
        cost_nanousd=SPENT.cost_nanousd,
    )


def call_ran(call_id: str, turn: int = 1) -> CallRan:
    return CallRan(
        turn=turn,
        call=call_id,
        tool="search",
        attempt=1,
        at_ms=1_800_000_001_000,
        took_ms=5,
        worker="worker-1",
        is_error=False,
        result_chars=3,
    )


def in_doubt(call_id: str, turn: int = 1) -> EffectInDoubt:
    return EffectInDoubt(
        turn=turn,
        call=call_id,
        tool="search",
        attempt=1,
        at_ms=1_800_000_031_000,
        began_ms=1_800_000_000_900,
        worker="worker-2",
        why="its worker was lost",
    )


def ruled_out(call_id: str, source: Source = Source.PERSON) -> EffectRuledOut:
    return EffectRuledOut(turn=1, call=call_id, tool="search", at_ms=1_800_000_040_000, source=source)


def approval(call_id: str, *, approved: bool = True) -> ApprovalDecided:
    return ApprovalDecided(turn=1, call=call_id, tool="search", at_ms=1_800_000_050_000, approved=approved)


def a_block(call_id: str, text: str = "Ada") -> bytes:
    return result_block(CallId(call_id), text, is_error=False)


def a_result(call_id: str, text: str = "Ada", *, turn: int = 1, whole: str | None = None) -> CallResult:
    return CallResult(call_id=CallId(call_id), block=a_block(call_id, text), entry=call_ran(call_id, turn), whole=whole)


A_WRITE = TurnWrite(spent=SPENT, ledger=(model_called(),))


@dataclass(slots=True)
class Driven:
    """One run of a store, driven as a worker would."""

    store: RunStore
    run_id: RunId
    held: TurnClaim = field(init=False)
    """The claim of the last `begin`."""

    async def look(self) -> Run:
        record = await self.store.run(self.run_id)
        assert record is not None
        return record.run

    async def now_held(self) -> TurnClaim:
        """The right to write, as somebody has it who has just looked at the run."""
        run = await self.look()
        return TurnClaim(run_id=self.run_id, turn=run.turn, fence=run.fence)

    async def begin(self, claim: ClaimRequest | None = None) -> Begun:
        begun = await self.store.begin(self.run_id, (await self.look()).turn, claim or a_claim())
        assert isinstance(begun, Begun), begun
        self.held = TurnClaim(run_id=self.run_id, turn=begun.run.turn, fence=begun.run.fence)
        return begun

    async def open_calls(self, *calls: OpenCall) -> Written:
        write = replace(A_WRITE, append=(asking(*(call.call_id for call in calls)),))
        return await self.store.open_calls(self.held, write, calls)

    async def begin_call(self, call_id: str, claim: ClaimRequest | None = None) -> CallClaim:
        turn = (await self.look()).turn
        begun = await self.store.begin_call(self.run_id, turn, CallId(call_id), claim or a_claim("worker-2"))
        assert isinstance(begun, CallBegun), begun
        return CallClaim(run_id=self.run_id, turn=turn, call_id=CallId(call_id), attempt=begun.attempt)

    async def finish_call(self, held: CallClaim) -> CallStored:
        return await self.store.finish_call(held, a_result(held.call_id, turn=held.turn))

    async def run_call(self, call_id: str) -> CallStored:
        return await self.finish_call(await self.begin_call(call_id))

    async def doubt(self, call_id: str, asked: Asked = Asked.PERSON) -> CallClaim:
        """Begin a call, and lose it."""
        held = await self.begin_call(call_id)
        assert await self.store.doubt(held, asked, in_doubt(call_id)) is Written.WRITTEN
        return held

    async def in_tools(self, *calls: OpenCall) -> None:
        await self.begin()
        assert await self.open_calls(*calls) is Written.WRITTEN

    async def bring_to(self, state: State) -> None:
        """From QUEUED to a state, by legal moves only. In IN_TOOLS there is one call, `c1`, inline and not begun."""
        if state not in (State.QUEUED, State.CANCELLED):
            await self.begin()
        match state:
            case State.TURN_DUE:
                await self.store.go_on(self.held, A_WRITE, advance=True)
            case State.ON_HOLD:
                await self.store.hold(self.held, A_WRITE, seconds=10, reason="busy")
            case State.IN_TOOLS | State.JOINING:
                await self.open_calls(a_call("c1", placement=Placement.INLINE))
            case State.CANCELLED:
                await self.store.cancel(self.run_id)
            case State.SUCCEEDED | State.STOPPED | State.FAILED:
                await self.store.finish(self.held, A_WRITE, ENDS[state])
            case _:
                pass
        if state is State.AWAITING_DECISION:
            await self.open_calls(a_call("c1", Effect.ONCE))
            await self.doubt("c1")
        if state is State.AWAITING_APPROVAL:
            await self.open_calls(a_call_to_approve("c1"))
        if state is State.JOINING:
            await self.run_call("c1")
        assert (await self.look()).state is state


ENDS = {
    State.SUCCEEDED: ANSWERED,
    State.STOPPED: Outcome(reason=StopReason.MAX_TURNS, message="no answer after 3 turns"),
    State.FAILED: Outcome(reason=StopReason.MODEL_ERROR, message="invalid model"),
    State.CANCELLED: Outcome(reason=StopReason.CANCELLED, message="cancelled"),
}
"""An outcome for each terminal state."""


async def a_queued_run(store: RunStore, row_id: str = "row-1", *, index: int = 0) -> Driven:
    """A run that has just been submitted."""
    row = a_row(row_id, index=index)
    assert await submitted(store, row) == [Submitted.CREATED]
    return Driven(store, row.run_id)


async def submitted(store: RunStore, *rows: NewRun) -> Sequence[Submitted]:
    """Open the batch and submit rows to it."""
    await store.count_agent(BATCH.agent_name, CountedAgent(model="claude-sonnet-5-5", cost_budget_usd=1.0))
    return await store.submit(await store.open_batch(BATCH), rows)
