"""A person's decision about a call in doubt, in the form in which the record takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from paceline.core.agent import Agent
from paceline.core.ledger import CallRan, EffectRuledOut, Source
from paceline.core.run import Run
from paceline.core.tool_spec import MAX_RESULT_CHARS
from paceline.core.transcript import result_block
from paceline.store.port import CallResult, CallState
from paceline.tools import ToolResult, text_result

RAN = "The call took effect; its result is not known. This was found out by a person after the worker was lost."


@dataclass(frozen=True, slots=True)
class NotRan:
    """The call has not taken effect: it is run now."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The call took effect. `result` is what it came to, for the model; None: nobody knows."""

    result: str | None = None


Decision: TypeAlias = NotRan | Ran


def recorded(
    decision: Decision, run: Run, agent: Agent | None, state: CallState, *, now_ms: int
) -> EffectRuledOut | CallResult:
    """What `RunStore.resolve` is told."""
    call = state.call
    match decision:
        case NotRan():
            return EffectRuledOut(turn=run.turn, call=call.call_id, tool=call.tool, at_ms=now_ms, source=Source.PERSON)
        case Ran(result=result):
            spec = agent.tools_by_name.get(call.tool) if agent else None
            max_chars = spec.max_result_chars if spec else MAX_RESULT_CHARS
            shown = text_result(RAN if result is None else result, max_chars=max_chars, call_id=call.call_id)
            return persons_result(run, state, shown, now_ms)
        case _:
            assert_never(decision)


def persons_result(run: Run, state: CallState, shown: ToolResult, now_ms: int) -> CallResult:
    """A result that a person gives a call, as it is stored."""
    call = state.call
    entry = CallRan(
        turn=run.turn,
        call=call.call_id,
        tool=call.tool,
        attempt=state.attempt,
        at_ms=now_ms,
        took_ms=0,
        worker="",
        is_error=shown.is_error,
        result_chars=shown.chars,
        source=Source.PERSON,
    )
    block = result_block(call.call_id, shown.content, is_error=shown.is_error)
    return CallResult(call_id=call.call_id, block=block, entry=entry, whole=shown.whole)
