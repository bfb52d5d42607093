"""What a call came to, as it is stored, and what is to be sent because of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.core.ledger import CallRan, Source
from paceline.core.transcript import result_block
from paceline.store.port import CallClaim, CallResult, CallWritten, OpenCall
from paceline.tools import ToolResult

from .desk import Desk
from .messages import ChordMessage, Message
from .record_clock import now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RanCall:
    """What became of a call here, and what is to be sent because of it."""

    written: CallWritten
    messages: Sequence[Message] = ()

    @property
    def is_last(self) -> bool:
        return self.written is CallWritten.LAST


async def store_result(desk: Desk, held: CallClaim, result: CallResult) -> RanCall:
    """Store a call's result as soon as the record can be written; the first one wins."""
    stored = await desk.until_written(lambda: desk.store.finish_call(held, result))
    following = (replace(once_more(held), calls=(stored.next_once,)),) if stored.next_once else ()
    return RanCall(written=stored.written, messages=following)


def once_more(held: CallClaim) -> ChordMessage:
    """Have this call begun again, by whoever gets the message."""
    return ChordMessage(run_id=held.run_id, turn=held.turn, calls=(held.call_id,))


def error_result(held: CallClaim, call: OpenCall, text: str, *, worker: str) -> CallResult:
    """A result that the model is told as an error."""
    result = ToolResult(content=text, is_error=True, chars=len(text))
    return call_result(held.turn, call, result, attempt=held.attempt, took_ms=0, worker=worker)


def call_result(
    turn: int,
    call: OpenCall,
    result: ToolResult,
    *,
    attempt: int,
    took_ms: int,
    worker: str,
    source: Source = Source.TOOL,
) -> CallResult:
    """A result as it is stored."""
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
        source=source,
    )
    block = result_block(call.call_id, result.content, is_error=result.is_error)
    return CallResult(call_id=call.call_id, block=block, entry=entry, whole=result.whole)
