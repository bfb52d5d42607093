"""What messages owe each other: roles in order, each call answered once, results first and together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.sim.message import CALL, COMPACTION, RESULT, SERVER_CALLS, THOUGHTS, Block, Message
from paceline.sim.models import Model
from paceline.sim.rules import Refusal, Rule, refuse
from paceline.sim.sides import Side, merged


def conversation_refusals(messages: Sequence[Message], model: Model) -> Iterator[Refusal]:
    """What the messages break together, each being sound by itself."""
    if not messages:
        yield refuse(Rule.NO_MESSAGES)
        return
    yield from _system_refusals(messages, model)
    if messages[0].role != "user":
        yield refuse(Rule.FIRST_NOT_USER)
    yield from _empty_refusals(messages, model)
    if not _is_plainly_paired(messages):
        yield from _pairing_refusals(merged(messages))
    yield from _prefill_refusals(messages[-1], model)


def _system_refusals(messages: Sequence[Message], model: Model) -> Iterator[Refusal]:
    for index, message in enumerate(messages):
        if message.role != "system":
            continue
        if not model.takes_system_role:
            yield refuse(Rule.NO_SYSTEM_ROLE)
        reason = _misplaced(messages, index)
        if reason:
            yield refuse(Rule.SYSTEM_MISPLACED, f"messages.{index}", reason=reason)


def _misplaced(messages: Sequence[Message], index: int) -> str:
    if index == 0:
        return "must not be the first message"
    if messages[index - 1].role == "assistant" and not _ends_in_server_result(messages[index - 1]):
        return "must follow a user message or the result of a server tool"
    if index + 1 < len(messages) and messages[index + 1].role != "assistant":
        return "must be the last message or be followed by an assistant message"
    return ""


def _ends_in_server_result(message: Message) -> bool:
    return bool(message.blocks) and message.blocks[-1].is_server_result


def _empty_refusals(messages: Sequence[Message], model: Model) -> Iterator[Refusal]:
    last = len(messages) - 1
    for index, message in enumerate(messages):
        may_be_empty = index == last and message.role == "assistant" and model.takes_prefill
        if not message.blocks and not may_be_empty:
            yield refuse(Rule.EMPTY_CONTENT, f"messages.{index}")


def _is_plainly_paired(messages: Sequence[Message]) -> bool:
    """The common case, told at a glance: roles alternate, and each message answers exactly the calls of the one
    before, in their order."""
    role = ""
    calls: tuple[str, ...] = ()
    for message in messages:
        if message.role == role or message.results != calls or not message.is_tidy:
            return False
        role, calls = message.role, message.calls
    ids = [call for message in messages for call in message.calls]
    return not calls and len(set(ids)) == len(ids)


def _pairing_refusals(sides: Sequence[Side]) -> Iterator[Refusal]:
    seen: set[str] = set()
    for position, side in enumerate(sides):
        if side.role == "assistant":
            yield from _call_refusals(side, seen)
            yield from _answer_refusals(side, sides[position + 1] if position + 1 < len(sides) else None)
        elif side.role == "user":
            yield from _result_refusals(side, sides[position - 1] if position else None)


def _call_refusals(side: Side, seen: set[str]) -> Iterator[Refusal]:
    open_ids: list[str] = []
    for place in side.places():
        if place.block.kind == CALL:
            if place.block.id in seen:
                yield refuse(Rule.CALL_ID_TWICE, place.at)
            seen.add(place.block.id)
            open_ids.append(place.block.id)
        elif open_ids and place.block.kind not in THOUGHTS:
            yield refuse(Rule.CALLS_NOT_LAST, f"messages.{side.index}", ids=", ".join(open_ids))


def _answer_refusals(side: Side, answer: Side | None) -> Iterator[Refusal]:
    calls = side.calls
    if not calls:
        return
    blocks = [place.block for place in answer.places()] if answer and answer.role == "user" else []
    results = [block.id for block in blocks if block.kind == RESULT]
    leading = {block.id for block in blocks[: _leading_results(blocks)]}
    unanswered = [call for call in calls if call not in leading]
    if unanswered:
        rule = Rule.RESULTS_NOT_FIRST if set(unanswered) <= set(results) else Rule.CALLS_UNANSWERED
        yield refuse(rule, f"messages.{side.index}", ids=", ".join(unanswered))


def _leading_results(blocks: Sequence[Block]) -> int:
    return next((index for index, block in enumerate(blocks) if block.kind != RESULT), len(blocks))


def _result_refusals(side: Side, before: Side | None) -> Iterator[Refusal]:
    calls = set(before.calls) if before and before.role == "assistant" else set()
    answered: set[str] = set()
    for place in side.places():
        if place.block.kind != RESULT:
            continue
        if place.block.id not in calls:
            yield refuse(Rule.RESULT_WITHOUT_CALL, place.at, id=place.block.id)
        if place.block.id in answered:
            yield refuse(Rule.RESULT_TWICE, place.at, id=place.block.id)
        answered.add(place.block.id)


def _prefill_refusals(last: Message, model: Model) -> Iterator[Refusal]:
    if last.role != "assistant" or _is_paused(last):
        return
    if not model.takes_prefill:
        yield refuse(Rule.PREFILL)
    if last.blocks and last.blocks[-1].text != last.blocks[-1].text.rstrip():
        yield refuse(Rule.PREFILL_BLANK_END)


def _is_paused(last: Message) -> bool:
    """Whether the model's turn goes on: the server was at work in it, or has summed up what came before it."""
    is_summary = bool(last.blocks) and last.blocks[-1].kind == COMPACTION
    return is_summary or any(block.kind in SERVER_CALLS or block.is_server_result for block in last.blocks)
