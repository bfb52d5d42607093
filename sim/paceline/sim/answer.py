"""What the model says: an answer, and the message it becomes on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from paceline.sim.call import Call, ServerCall
from paceline.sim.faults import EARLY, Fault
from paceline.sim.message import CALL, SERVER_CALLS, THOUGHTS, compact
from paceline.sim.server_tools import result_kind
from paceline.sim.tokens import CHARS_PER_TOKEN, tokens

# How a call says that code has made it.
CODE_CALLER = "code_execution_20260120"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the model says to one request.

    `stop_reason` is `tool_use` with calls and `end_turn` without, unless given. `delay_s` passes before the
    first byte. `output_tokens` is counted when None. The content is thinking (signed), text, calls of server
    tools, calls. `blocks`, when given, is sent as the content in place of all that, as it stands but for what only
    the API can give: signatures of thinking and ids of calls, where they are missing. `fault` is what happens to
    the answer on its way.
    """

    text: str = ""
    thinking: str | None = None
    server_calls: Sequence[ServerCall] = ()
    calls: Sequence[Call] = ()
    blocks: Sequence[Mapping[str, Any]] | None = None
    stop_reason: str | None = None
    delay_s: float = 0.0
    output_tokens: int | None = None
    fault: Fault | None = None

    @property
    def may_think(self) -> bool:
        """Whether there may be thinking in it."""
        return self.thinking is not None or self.blocks is not None

    def __post_init__(self) -> None:
        if self.fault is not None and self.fault.stage in EARLY:
            raise ValueError(f"{self.fault.name} strikes before there is an answer; inject it, or list it in `faults:`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """An answer as content: blocks, why it ends, and what it costs; `thinking_tokens` are a part of all. There is
    no thinking in it unless `may_think`."""

    content: list[dict[str, Any]]
    stop_reason: str
    output_tokens: int
    thinking_tokens: int = 0
    may_think: bool = False

    @property
    def call_ids(self) -> list[str]:
        return [block["id"] for block in self.content if block["type"] == CALL]


def speak(answer: Answer, conversation: str, max_tokens: int) -> Spoken:
    """The answer as content, cut at `max_tokens`. Ids depend on `conversation` alone: equal conversations get
    equal answers."""
    content = _content(answer, conversation)
    size = answer.output_tokens or max(1, tokens(sum(_chars(block) for block in content)))
    stop_reason = _stop_reason(answer, content)
    if size > max_tokens:
        content, size, stop_reason = _cut(content, max_tokens), max_tokens, "max_tokens"
    return Spoken(
        content=content,
        stop_reason=stop_reason,
        output_tokens=size,
        thinking_tokens=_thinking_tokens(content) if answer.may_think else 0,
        may_think=answer.may_think,
    )


def make_id(prefix: str, *seed: object) -> str:
    """An id like the API's: a prefix and 22 characters that depend on the seed alone."""
    return prefix + blake2b(repr(seed).encode(), digest_size=11).hexdigest()


def _content(answer: Answer, conversation: str) -> list[dict[str, Any]]:
    if answer.blocks is not None:
        return [_with_id(block, conversation, position) for position, block in enumerate(answer.blocks)]
    content: list[dict[str, Any]] = []
    if answer.thinking is not None:
        content.append({"type": "thinking", "thinking": answer.thinking})
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    maker = ""
    for position, server_call in enumerate(answer.server_calls):
        call_id = server_call.id or make_id("srvtoolu_01", conversation, position)
        maker = maker or call_id
        content += _server_blocks(server_call, call_id)
    for position, call in enumerate(answer.calls):
        content.append(_call_block(call, conversation, position, maker))
    return content


def _thinking_tokens(content: list[dict[str, Any]]) -> int:
    return tokens(sum(_chars(block) for block in content if block["type"] in THOUGHTS))


def _call_block(call: Call, conversation: str, position: int, maker: str) -> dict[str, Any]:
    call_id = call.id or make_id("toolu_01", conversation, position)
    block = {"type": CALL, "id": call_id, "name": call.tool, "input": dict(call.input)}
    return {**block, "caller": {"type": CODE_CALLER, "tool_id": maker}} if call.by_code else block


def _server_blocks(call: ServerCall, call_id: str) -> list[dict[str, Any]]:
    use = {"type": "server_tool_use", "id": call_id, "name": call.tool, "input": dict(call.input)}
    if call.result is None:
        return [use]
    return [use, {"type": result_kind(use), "tool_use_id": call_id, "content": call.result}]


def _with_id(block: Mapping[str, Any], conversation: str, position: int) -> dict[str, Any]:
    if block.get("type") not in (CALL, *SERVER_CALLS) or "id" in block:
        return dict(block)
    prefix = "toolu_01" if block["type"] == CALL else "srvtoolu_01"
    return {**block, "id": make_id(prefix, conversation, position)}


def _stop_reason(answer: Answer, content: list[dict[str, Any]]) -> str:
    if answer.stop_reason is not None:
        return answer.stop_reason
    return "tool_use" if any(block["type"] == CALL for block in content) else "end_turn"


def _chars(block: Mapping[str, Any]) -> int:
    match block["type"]:
        case "text":
            return len(block["text"])
        case "thinking":
            return len(block["thinking"])
        case "tool_use":
            return len(block["name"]) + len(compact(block["input"]))
        case _:
            return len(compact(block))


def _cut(content: list[dict[str, Any]], max_tokens: int) -> list[dict[str, Any]]:
    """As much as fits. A text is cut in the middle; a call is left with an empty input, as one whose arguments
    were cut before they could be read; what follows is missing."""
    left = int(max_tokens * CHARS_PER_TOKEN)
    kept: list[dict[str, Any]] = []
    for block in content:
        size = _chars(block)
        if size > left:
            return kept + _cut_block(block, left)
        kept.append(block)
        left -= size
    # The answer was declared longer than its text: its last call is the one that was being written.
    if kept and kept[-1]["type"] == "tool_use":
        kept[-1] = {**kept[-1], "input": {}}
    return kept


def _cut_block(block: dict[str, Any], left: int) -> list[dict[str, Any]]:
    match block["type"]:
        case "text" if block["text"][:left].strip():
            return [{**block, "text": block["text"][:left]}]
        case "thinking" if left:
            return [{**block, "thinking": block["thinking"][:left]}]
        case "tool_use" if left > len(block["name"]):
            return [{**block, "input": {}}]
        case _:
            return []
