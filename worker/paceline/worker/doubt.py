"""A `once` call whose worker is gone: it may have taken effect or not. It is never repeated to find out.

First its tool is asked, if it can answer (`reconcile`), then a person, or the model is told, or the run stops: as the
agent wants it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from paceline.core.agent import Agent
from paceline.core.ledger import EffectInDoubt, EffectRuledOut, Source
from paceline.core.unknown_effect import UNKNOWN_EFFECT, Remedy, remedy_of
from paceline.store.port import Asked, CallClaim, CallResult, CallWritten, OpenCall, Written
from paceline.tools import NotRan, ToolResult, Unknown, reconcile_tool

from .call_context import KILL_MARGIN_SECONDS, prepare
from .call_result import RanCall, call_result, error_result, once_more, store_result
from .desk import Desk
from .record_clock import now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTry:
    """The try of a call that may have taken effect, and whether its tool was asked about it in vain."""

    worker: str
    began_ms: int
    was_reconciled: bool = False
    worker_is_gone: bool = False
    """Whether whoever has the claim now is lost, and does not give it back itself."""


async def put_in_doubt(
    desk: Desk, agent: Agent, held: CallClaim, call: OpenCall, lost: LostTry, *, why: str
) -> RanCall:
    """Have somebody asked what a call did, by the right of its last claim."""
    spec = agent.tools_by_name.get(call.tool)
    match remedy_of(spec, agent.on_unknown_effect, was_reconciled=lost.was_reconciled):
        case Remedy.TELL:
            return await store_result(desk, held, error_result(held, call, UNKNOWN_EFFECT, worker=lost.worker))
        case Remedy.RECONCILE:
            return await _ask(desk, held, call, lost, Asked.TOOL, why)
        case Remedy.ASK:
            return await _ask(desk, held, call, lost, Asked.PERSON, why)


async def _ask(desk: Desk, held: CallClaim, call: OpenCall, lost: LostTry, asked: Asked, why: str) -> RanCall:
    entry = EffectInDoubt(
        turn=held.turn,
        call=held.call_id,
        tool=call.tool,
        attempt=held.attempt,
        at_ms=now_ms(),
        began_ms=lost.began_ms,
        worker=lost.worker,
        why=why,
    )
    written = await desk.until_written(lambda: desk.store.doubt(held, asked, entry, lost=lost.worker_is_gone))
    if written is Written.LOST:
        return RanCall(written=CallWritten.LOST)
    return RanCall(written=CallWritten.STORED, messages=(once_more(held),) if asked is Asked.TOOL else ())


async def reconcile_call(desk: Desk, agent: Agent, held: CallClaim, call: OpenCall, lost: LostTry) -> RanCall:
    """Ask the tool what became of its call, under a claim that was made for that. Raises ToolLoadError."""
    began = time.monotonic()
    match await _said(desk, agent, held, call):
        case ToolResult() as result:
            took_ms = int((time.monotonic() - began) * 1000)
            return await store_result(desk, held, _reconciled(desk, held, call, result, took_ms))
        case NotRan():
            return await _rule_out(desk, held, call)
        case Unknown(why=why):
            return await put_in_doubt(desk, agent, held, call, replace(lost, was_reconciled=True), why=why)


async def _said(desk: Desk, agent: Agent, held: CallClaim, call: OpenCall) -> ToolResult | NotRan | Unknown:
    spec = agent.tools_by_name[call.tool]
    prepared = prepare(desk, spec, held.run_id, held.turn, call, attempt=held.attempt)
    with desk.guard(spec.timeout_s + KILL_MARGIN_SECONDS):
        return await reconcile_tool(prepared.tool, prepared.context)


def _reconciled(desk: Desk, held: CallClaim, call: OpenCall, result: ToolResult, took_ms: int) -> CallResult:
    return call_result(
        held.turn,
        call,
        result,
        attempt=held.attempt,
        took_ms=took_ms,
        worker=desk.incarnation,
        source=Source.RECONCILE,
    )


async def _rule_out(desk: Desk, held: CallClaim, call: OpenCall) -> RanCall:
    entry = EffectRuledOut(turn=held.turn, call=held.call_id, tool=call.tool, at_ms=now_ms(), source=Source.RECONCILE)
    written = await desk.until_written(lambda: desk.store.rule_out(held, entry))
    messages = (once_more(held),) if written is Written.WRITTEN else ()
    return RanCall(written=CallWritten.STORED if messages else CallWritten.LOST, messages=messages)
