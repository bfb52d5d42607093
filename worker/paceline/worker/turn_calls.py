"""The calls of a turn, from the message that asked for them: what runs here, and what goes to the fleet as a chord."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from paceline.core.agent import Agent
from paceline.core.answer import Call
from paceline.core.run import Run
from paceline.core.tool_spec import Approval, Effect, Placement
from paceline.core.transcript import Fragment, check_next, results_message
from paceline.store.port import OpenCall, TurnClaim

from .call import run_call, run_inline
from .call_result import RanCall
from .desk import Desk
from .messages import JoinMessage, Message
from .onward import chord_of, next_turn


def open_call(agent: Agent, call: Call, answer: str | None) -> OpenCall:
    """The call as it is recorded. One that is answered already, or whose tool the agent does not have, only yields an
    error: cheap, and of no effect."""
    spec = None if answer is not None else agent.tools_by_name.get(call.tool)
    effect = spec.effect if spec else Effect.READS
    approval = spec.approval if spec else Approval.NEVER
    may_be_inline = effect is Effect.READS and approval is Approval.NEVER
    inline = spec is None or (spec.placement is Placement.INLINE and may_be_inline)
    return OpenCall(
        call_id=call.call_id,
        tool=call.tool,
        raw_input=call.raw_input,
        effect=effect,
        placement=Placement.INLINE if inline else Placement.FLEET,
        timeout_s=spec.timeout_s if spec else 0.0,
        approval=approval,
        answer=answer,
    )


async def run_calls(
    desk: Desk, agent: Agent, run: Run, asked: Fragment, calls: Sequence[OpenCall]
) -> Sequence[Message]:
    """Run those of these calls that are inline, and say what is to be sent for the rest. `asked` holds them all."""
    inline = [call for call in calls if call.placement is Placement.INLINE]
    fleet = [call for call in calls if call.placement is Placement.FLEET]
    barred = {call.call_id for call in calls if call.approval is Approval.ALWAYS}
    chord = chord_of(run, fleet, barred=barred)
    if not inline:
        return chord
    if not fleet:
        return await _join_inline(desk, agent, run, asked, inline)
    await desk.send(chord)
    is_last = any(call.is_last for call in await _run_beside(desk, run, inline))
    return (JoinMessage(run_id=run.run_id, turn=run.turn),) if is_last else ()


async def _run_beside(desk: Desk, run: Run, inline: Sequence[OpenCall]) -> Sequence[RanCall]:
    """Run these calls here, each under a claim of its own, while others of the turn run in the fleet."""
    running = [asyncio.ensure_future(run_call(desk, run.run_id, run.turn, call.call_id)) for call in inline]
    try:
        await asyncio.wait(running)
    except asyncio.CancelledError:
        await asyncio.wait(running)  # each is cut as this one is, and gives its own claim back first
        raise
    return [call.result() for call in running]


async def _join_inline(
    desk: Desk, agent: Agent, run: Run, asked: Fragment, calls: Sequence[OpenCall]
) -> Sequence[Message]:
    results = await asyncio.gather(*(run_inline(desk, agent, run, call) for call in calls))
    message = results_message([call.call_id for call in calls], {result.call_id: result.block for result in results})
    check_next(asked, message)
    written = await desk.until_written(lambda: desk.store.join(TurnClaim.of(run), message, results))
    return await next_turn(desk, run, written, run.turn + 1)
