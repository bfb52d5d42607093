"""A tool call: claim it, run the tool, store what it came to. Every failure is a result that the model can act on."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.core.agent import Agent
from paceline.core.errors import ToolLoadError
from paceline.core.ids import CallId, RunId
from paceline.core.ledger import CallRan
from paceline.core.run import Run
from paceline.core.tool_spec import Effect
from paceline.core.transcript import result_block
from paceline.store.port import CallBegun, CallResult, CallWritten, HeldCall, NotBegun, OpenCall, Written
from paceline.tools import ToolContext, ToolResult, run_tool

from .desk import Desk, now_ms, until_written
from .messages import ChordMessage, Message
from .onward import due_messages

log = logging.getLogger("paceline.call")

_TOOLS_RETRY_SECONDS = 10.0
_LONGEST_CALL_SECONDS = 86_400.0
"""A call's claim lasts as long as its worker lives: the tool's own timeout ends it."""
UNKNOWN_EFFECT = (
    "The worker was lost while this call ran. It may have taken effect or not, and it was not repeated. "
    "Find out what happened before you try again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RanCall:
    """What became of a call here, and what is to be sent because of it."""

    written: CallWritten
    messages: Sequence[Message] = ()

    @property
    def is_last(self) -> bool:
        return self.written is CallWritten.LAST


_NOT_OURS = RanCall(written=CallWritten.LOST)


async def run_call(desk: Desk, run_id: RunId, turn: int, call_id: CallId) -> RanCall:
    """Carry out one try of a call, if it is open and nobody else has it."""
    claim = desk.claim(_LONGEST_CALL_SECONDS)
    begun = await until_written(lambda: desk.store.begin_call(run_id, turn, call_id, claim))
    if isinstance(begun, NotBegun):
        return _NOT_OURS
    held = HeldCall(run_id=run_id, turn=turn, call_id=call_id, attempt=begun.attempt)
    with desk.in_flight.working():
        try:
            return await _carry_out(desk, held, begun)
        except asyncio.CancelledError:
            return await asyncio.shield(_cut(desk, held, begun))


async def run_inline(desk: Desk, agent: Agent, run: Run, call: OpenCall) -> CallResult:
    """Run a call inside its turn's own task: it only reads, so it needs no claim of its own."""
    return await _execute(desk, agent, run.run_id, run.turn, call, attempt=1)


def unknown_effect(held: HeldCall, call: OpenCall, *, worker: str) -> CallResult:
    """The answer to a call that may have taken effect, and may not be repeated to find out."""
    return _error_result(held, call, UNKNOWN_EFFECT, worker=worker)


def _error_result(held: HeldCall, call: OpenCall, text: str, *, worker: str) -> CallResult:
    result = ToolResult(content=text, is_error=True, chars=len(text))
    return _call_result(held.turn, call, result, attempt=held.attempt, took_ms=0, worker=worker)


async def _carry_out(desk: Desk, held: HeldCall, begun: CallBegun) -> RanCall:
    try:
        agent = await until_written(lambda: desk.agent(begun.agent))
        result = await _execute(desk, agent, held.run_id, held.turn, begun.call, attempt=held.attempt)
    except ToolLoadError:
        await until_written(lambda: desk.store.recover_call(held))
        desk.send_later(_again(held), seconds=_TOOLS_RETRY_SECONDS)
        return _NOT_OURS
    except Exception as error:
        log.exception("run %s turn %d call %s: a fault of paceline's own", held.run_id, held.turn, held.call_id)
        text = f"The call failed by a fault of the system that runs the tools ({type(error).__name__})."
        result = _error_result(held, begun.call, text, worker=desk.incarnation)
    return await _store(desk, held, result)


async def _store(desk: Desk, held: HeldCall, result: CallResult) -> RanCall:
    stored = await until_written(lambda: desk.store.finish_call(held, result))
    following = (replace(_again(held), calls=(stored.next_once,)),) if stored.next_once else ()
    return RanCall(written=stored.written, messages=following)


async def _cut(desk: Desk, held: HeldCall, begun: CallBegun) -> RanCall:
    """The worker stops before the call is done: give it back, or say that its effect is not known."""
    if begun.call.effect is Effect.ONCE:
        ran = await _store(desk, held, unknown_effect(held, begun.call, worker=desk.incarnation))
        if ran.written is not CallWritten.LOST:
            return ran
    elif await until_written(lambda: desk.store.recover_call(held)) is Written.WRITTEN:
        return RanCall(written=CallWritten.LOST, messages=(_again(held),))
    # The result was written just before: what is due because of it is not known here any more.
    return RanCall(
        written=CallWritten.LOST, messages=await until_written(lambda: due_messages(desk.store, held.run_id))
    )


def _again(held: HeldCall) -> ChordMessage:
    return ChordMessage(run_id=held.run_id, turn=held.turn, calls=(held.call_id,))


async def _execute(desk: Desk, agent: Agent, run_id: RunId, turn: int, call: OpenCall, *, attempt: int) -> CallResult:
    began = time.monotonic()
    result = await _tool_result(desk, agent, run_id, turn, call, attempt)
    took_ms = int((time.monotonic() - began) * 1000)
    return _call_result(turn, call, result, attempt=attempt, took_ms=took_ms, worker=desk.incarnation)


async def _tool_result(desk: Desk, agent: Agent, run_id: RunId, turn: int, call: OpenCall, attempt: int) -> ToolResult:
    spec = agent.tools_by_name.get(call.tool)
    if spec is None:
        return _no_such_tool(call.tool, list(agent.tools_by_name))
    tool = replace(desk.tool(spec.path), spec=spec)  # the run's own limits, not those of the code on this worker
    context = ToolContext(
        run_id=run_id, turn=turn, call_id=call.call_id, attempt=attempt, deadline=time.time() + spec.timeout_s
    )
    return await run_tool(tool, json.loads(call.raw_input), context)


def _no_such_tool(name: str, known: Sequence[str]) -> ToolResult:
    text = f"There is no tool {name!r}. The tools are: {', '.join(known) or 'none'}."
    return ToolResult(content=text, is_error=True, chars=len(text))


def _call_result(
    turn: int, call: OpenCall, result: ToolResult, *, attempt: int, took_ms: int, worker: str
) -> CallResult:
    entry = CallRan(
        turn=turn,
        call=call.call_id,
        tool=call.tool,
        attempt=attempt,
        at_ms=now_ms(),
        took_ms=took_ms,
        worker=worker,
        is_error=result.is_error,
        result_chars=result.chars,
    )
    block = result_block(call.call_id, result.content, is_error=result.is_error)
    return CallResult(call_id=call.call_id, block=block, entry=entry, whole=result.whole)
