"""A tool call: claim it, run the tool, store what it came to. Every failure is a result that the model can act on."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial

from paceline.core import counted
from paceline.core.agent import Agent
from paceline.core.errors import InfrastructureError, NewerVersion, ToolLoadError
from paceline.core.ids import CallId, RunId
from paceline.core.run import Run
from paceline.core.tool_spec import Effect
from paceline.store.port import CallBegun, CallClaim, CallResult, CallWritten, ClaimRequest, NotBegun, OpenCall, Written
from paceline.tools import ToolResult, run_tool

from .call_context import KILL_MARGIN_SECONDS, prepare
from .call_result import RanCall, call_result, error_result, once_more, store_result
from .desk import Desk
from .doubt import LostTry, put_in_doubt, reconcile_call
from .onward import what_is_due
from .record_clock import now_ms
from .run_log import of_turn

log = logging.getLogger("paceline.call")

_TOOLS_RETRY_SECONDS = 10.0

_NOT_OURS = RanCall(written=CallWritten.LOST)


async def run_call(desk: Desk, run_id: RunId, turn: int, call_id: CallId) -> RanCall:
    """Carry out one try of a call, if it is open and nobody else has it."""
    with desk.claiming(KILL_MARGIN_SECONDS) as claim:
        begun = await _begin(desk, run_id, turn, call_id, claim)
        if isinstance(begun, NotBegun):
            return _NOT_OURS
        held = CallClaim(run_id=run_id, turn=turn, call_id=call_id, attempt=begun.attempt)
        began_ms = now_ms()
        with desk.in_flight.working():
            return await _guarded(desk, held, begun, began_ms)


async def _begin(desk: Desk, run_id: RunId, turn: int, call_id: CallId, claim: ClaimRequest) -> CallBegun | NotBegun:
    """Claim the call, and have its agent at hand."""
    loop = asyncio.get_running_loop()
    while True:
        asked_at = loop.time()
        begun = await desk.until_written(lambda: desk.store.begin_call(run_id, turn, call_id, claim))
        if isinstance(begun, CallBegun):
            with suppress(Exception):  # what is wrong with it is told when the call is carried out
                await desk.until_written(partial(desk.agent, begun.agent))
        # A worker that stood still that long may have been given up meanwhile: is the claim still its own?
        if loop.time() - asked_at < desk.settings.claim_seconds / 2:
            return begun


async def run_inline(desk: Desk, agent: Agent, run: Run, call: OpenCall) -> CallResult:
    """Run a call inside its turn's own task: it only reads, so it needs no claim of its own."""
    ran = await _execute(desk, agent, run.run_id, run.turn, call, attempt=1)
    return _counted(ran, agent, call, run.label)


async def _guarded(desk: Desk, held: CallClaim, begun: CallBegun, began_ms: int) -> RanCall:
    """Whatever happens, the claim is given up: a living worker's claim would keep the call from everybody."""
    try:
        try:
            return await _carry_out(desk, held, begun)
        except asyncio.CancelledError:
            return await asyncio.shield(_cut(desk, held, begun, began_ms))
    except InfrastructureError:
        raise
    except Exception as error:
        _log_fault(held, "a fault of paceline's own")
        text = f"The call failed by a fault of the system that runs the tools ({type(error).__name__})."
        doubt = " Find out whether it has taken effect before you try again."
        text += doubt if begun.call.effect is Effect.ONCE else ""
        return await _answered_or_lost(desk, held, begun, error_result(held, begun.call, text, worker=desk.incarnation))


async def _answered_or_lost(desk: Desk, held: CallClaim, begun: CallBegun, result: CallResult) -> RanCall:
    """Store this result, or else have the call counted as lost: it may not be lost often.

    Raises what is wrong with a `once` call: it stays claimed until its claim runs out, and is in doubt then.
    """
    try:
        return await store_result(desk, held, result)
    except InfrastructureError:
        raise
    except Exception:
        if begun.call.effect is Effect.ONCE:
            raise
        _log_fault(held, "it cannot be answered")
        await desk.until_written(lambda: desk.store.recover_call(held, lost=True))
        return _NOT_OURS


async def _carry_out(desk: Desk, held: CallClaim, begun: CallBegun) -> RanCall:
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:  # before the tool began: there is no doubt about what it did
        return await asyncio.shield(_give_back(desk, held))
    try:
        agent = await desk.until_written(lambda: desk.agent(begun.agent))
        if begun.doubt:
            lost = LostTry(worker=begun.doubt.worker, began_ms=begun.doubt.began_ms)
            return await reconcile_call(desk, agent, held, begun.call, lost)
        result = await _execute(desk, agent, held.run_id, held.turn, begun.call, attempt=held.attempt)
    except (ToolLoadError, NewerVersion) as error:
        desk.report_missing(begun.agent, str(error))
        await desk.until_written(lambda: desk.store.recover_call(held))
        desk.send_later(once_more(held), seconds=_TOOLS_RETRY_SECONDS)
        return _NOT_OURS
    return await store_result(desk, held, _counted(result, agent, begun.call, begun.label))


async def _cut(desk: Desk, held: CallClaim, begun: CallBegun, began_ms: int) -> RanCall:
    """The worker stops before the call is done: give it back, or have somebody asked what it did."""
    if begun.call.effect is Effect.ONCE and begun.doubt is None:
        agent = await desk.until_written(lambda: desk.agent(begun.agent))
        lost = LostTry(worker=desk.incarnation, began_ms=began_ms)
        ran = await put_in_doubt(desk, agent, held, begun.call, lost, why="its worker was stopped")
        return ran if ran.written is not CallWritten.LOST else await _what_is_due(desk, held)
    return await _give_back(desk, held)


async def _give_back(desk: Desk, held: CallClaim) -> RanCall:
    """Let anybody begin the call again."""
    if await desk.until_written(lambda: desk.store.recover_call(held)) is Written.WRITTEN:
        return RanCall(written=CallWritten.LOST, messages=(once_more(held),))
    return await _what_is_due(desk, held)


async def _what_is_due(desk: Desk, held: CallClaim) -> RanCall:
    """For a call whose result was written just before: what is due because of it is not known here any more."""
    return RanCall(written=CallWritten.LOST, messages=await what_is_due(desk, held.run_id))


async def _execute(desk: Desk, agent: Agent, run_id: RunId, turn: int, call: OpenCall, *, attempt: int) -> CallResult:
    began = time.monotonic()
    result = await _tool_result(desk, agent, run_id, turn, call, attempt)
    took_ms = int((time.monotonic() - began) * 1000)
    return call_result(turn, call, result, attempt=attempt, took_ms=took_ms, worker=desk.incarnation)


def _counted(ran: CallResult, agent: Agent, call: OpenCall, label: str) -> CallResult:
    """The result with what it adds to the metrics. What the model made up is no tool."""
    was_run = call.answer is None and call.tool in agent.tools_by_name
    return replace(ran, counts=counted.call_ran(label, ran.entry)) if was_run else ran


async def _tool_result(desk: Desk, agent: Agent, run_id: RunId, turn: int, call: OpenCall, attempt: int) -> ToolResult:
    if call.answer is not None:
        return _told(call.answer)
    spec = agent.tools_by_name.get(call.tool)
    if spec is None:
        known = ", ".join(agent.tool_names) or "none"
        return _told(f"There is no tool {call.tool!r}. The tools are: {known}.")
    prepared = prepare(desk, spec, run_id, turn, call, attempt=attempt)
    with desk.guard(spec.timeout_s + KILL_MARGIN_SECONDS):
        return await run_tool(prepared.tool, prepared.arguments, prepared.context)


def _log_fault(held: CallClaim, what: str) -> None:
    """Log the exception that is being handled."""
    of_call = of_turn(held.run_id, held.turn)
    log.exception("run %s turn %d call %s: %s", held.run_id, held.turn, held.call_id, what, extra=of_call)


def _told(text: str) -> ToolResult:
    return ToolResult(content=text, is_error=True, chars=len(text))
