"""The transcript: stored messages as bytes, how they are made, and the one validator of what the API accepts.

A message is a fragment: the JSON bytes of `{"role":…,"content":[…]}`, stored once and sent as it is for ever after.
The rules are the API's own (pairing, order, roles, empty content); `check_next` runs before each append and each send.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NewType

from .errors import InvalidTranscript
from .ids import CallId

Fragment = NewType("Fragment", bytes)
"""One message, as stored and as sent."""

_MODELS = b'{"role":"assistant"'
_USERS = b'{"role":"user"'
"""How messages begin: they are written here, and read by everybody."""

_ERROR_MARK = b'"is_error":true'
"""As `result_block` writes it."""

_COMPACTION_MARK = b'"compaction"'
_IMAGE_MARK = b'"image"'
_IMAGE_BYTES = 15_000
"""More than any image is worth in tokens (Anthropic's page on vision), at three bytes of text a token."""

Message = Mapping[str, Any]
Block = Mapping[str, Any]

CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")

GO_ON_AFTER_CUT = "Your last message was cut at the length limit. Go on exactly where it stopped."
GO_ON_AFTER_NOTHING = "Your last message was empty. Please go on."


def user_text(text: str) -> Fragment:
    """A user message of one text block."""
    return user_blocks([{"type": "text", "text": text}])


def user_blocks(blocks: Sequence[Block]) -> Fragment:
    """A user message of these blocks."""
    return Fragment(dump({"role": "user", "content": list(blocks)}))


def assistant_content(raw: bytes) -> Fragment:
    """An assistant message around `content` as it came over the wire: signatures and the cache depend on each byte."""
    return Fragment(_MODELS + b',"content":' + raw + b"}")


def result_block(call: CallId, content: object, *, is_error: bool) -> bytes:
    """The `tool_result` block that answers a call; `content` is a text or a list of blocks."""
    block: dict[str, object] = {"type": "tool_result", "tool_use_id": call, "content": content}
    return dump(block | {"is_error": True} if is_error else block)


def results_message(calls: Sequence[CallId], blocks: Mapping[CallId, bytes]) -> Fragment:
    """The one user message that answers a turn: every call's block, in the order of the calls.

    Raises InvalidTranscript where a call has no result.
    """
    missing = [call for call in calls if call not in blocks]
    if missing:
        raise InvalidTranscript(f"no result for {', '.join(missing)}")
    return Fragment(_USERS + b',"content":[' + b",".join(blocks[call] for call in calls) + b"]}")


def is_models(fragment: bytes) -> bool:
    """Whether the model said this message."""
    return fragment.startswith(_MODELS)


def is_users(fragment: bytes) -> bool:
    """Whether this message answers the model: a user's, or one of results."""
    return fragment.startswith(_USERS)


def dump(value: object) -> bytes:
    """Compact JSON bytes. Each lone surrogate, which the API refuses, becomes one U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def weight(fragment: Fragment) -> int:
    """The bytes of a message, as far as they stand for tokens: an image counts as so many, however large its data."""
    if fragment.find(_IMAGE_MARK) < 0:
        return len(fragment)
    data = [len(block["source"].get("data", "")) for block in _images(json.loads(fragment)["content"])]
    return len(fragment) - sum(data) + sum(min(size, _IMAGE_BYTES) for size in data)


def _images(blocks: object) -> Iterator[Block]:
    for block in blocks if isinstance(blocks, list) else ():
        if block["type"] == "image":
            yield block
        elif block["type"] == "tool_result":
            yield from _images(block.get("content"))


def check_next(previous: Fragment | None, following: Fragment) -> None:
    """Raises InvalidTranscript if `following` cannot stand after `previous` (None: at the beginning)."""
    _check_pair(None if previous is None else json.loads(previous), json.loads(following))


def check_sendable(fragments: Sequence[Fragment]) -> None:
    """Raises InvalidTranscript if a transcript that was checked at each append cannot be sent as it ends now."""
    if not fragments:
        raise InvalidTranscript("there is nothing to send")
    last = json.loads(fragments[-1])
    _check_pair(json.loads(fragments[-2]) if len(fragments) > 1 else None, last)
    if last["role"] == "assistant" and not (awaits_server(last) or is_compaction(last)):
        raise InvalidTranscript("the conversation ends with an assistant message")


def check_whole(fragments: Iterable[Fragment]) -> None:
    """Raises InvalidTranscript if any rule is broken anywhere: every pair, and ids unique over all messages."""
    messages = [json.loads(fragment) for fragment in fragments]
    for previous, following in pairwise([None, *messages]):
        if following is not None:
            _check_pair(previous, following)
    ids = [call for message in messages for call in tool_use_ids(message)]
    if len(ids) != len(set(ids)):
        raise InvalidTranscript("a tool_use id is used twice")


def tool_use_ids(message: Message) -> list[CallId]:
    """The ids of a message's own `tool_use` blocks, in order."""
    return [CallId(block["id"]) for block in message["content"] if block["type"] == "tool_use"]


def all_failed(fragment: Fragment) -> bool | None:
    """Whether every result in a message is an error; None where it holds none."""
    if fragment.find(b'"tool_result"') < 0:
        return None
    if fragment.find(_ERROR_MARK) < 0:
        return False  # as nearly always: no need to look closer
    results = [block for block in json.loads(fragment)["content"] if block["type"] == "tool_result"]
    return all(block.get("is_error") for block in results) if results else None


def text_of(message: Message) -> str:
    """All text of a message."""
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def result_text(fragments: Iterable[Fragment], call: CallId) -> str | None:
    """The text of a call's result, as the transcript has it; None where there is none. An image is only named."""
    for fragment in fragments:
        if fragment.find(f'"{call}"'.encode()) >= 0:
            for block in json.loads(fragment)["content"]:
                if block["type"] == "tool_result" and block["tool_use_id"] == call:
                    return _content_text(block.get("content") or "")
    return None


def _content_text(content: str | Sequence[Block]) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(str(block.get("text") or f"({block['type']})") for block in content)


def awaits_server(message: Message) -> bool:
    """Whether an assistant message may be the last one sent: tools of the API's own run in it, and none of ours."""
    return not tool_use_ids(message) and any(block["type"].startswith("server_") for block in message["content"])


def is_compaction(message: Message) -> bool:
    """Whether an assistant message ends in the API's summary of what came before it: the model goes on from there."""
    return bool(message["content"][-1]["type"] == "compaction")


def may_hold_compaction(fragment: Fragment) -> bool:
    """Whether there may be a summary of the API's in a message: told without reading it, so true now and then."""
    return fragment.find(_COMPACTION_MARK) >= 0


def since_compaction(fragments: Sequence[Fragment]) -> Sequence[Fragment]:
    """What the API heeds: nothing that stands before its last summary."""
    at = len(fragments) - 1
    while at > 0 and not may_hold_compaction(fragments[at]):
        at -= 1
    return fragments[max(at, 0) :]


def _check_pair(previous: Message | None, following: Message) -> None:
    _check_content(following)
    if following["role"] == "user":
        _check_answers(tool_use_ids(previous) if previous else [], following["content"])
    elif following["role"] == "assistant":
        _check_assistant(previous, following)
    else:
        raise InvalidTranscript(f"a message cannot have the role {following['role']!r}")


def _check_content(message: Message) -> None:
    content = message["content"]
    if not isinstance(content, list) or not content:
        raise InvalidTranscript("a message has no content")
    if any(block["type"] == "text" and not block["text"].strip() for block in content):
        raise InvalidTranscript("a text block is empty")


def _check_answers(asked: list[CallId], content: Sequence[Block]) -> None:
    leading = 0
    while leading < len(content) and content[leading]["type"] == "tool_result":
        leading += 1
    if any(block["type"] in ("tool_result", "tool_use") for block in content[leading:]):
        raise InvalidTranscript("a tool_result stands after another block")
    answered = [block["tool_use_id"] for block in content[:leading]]
    if answered != asked:
        raise InvalidTranscript(f"asked for {asked}, answered {answered}")


def _check_assistant(previous: Message | None, message: Message) -> None:
    if previous is None:
        raise InvalidTranscript("the first message is not a user's")
    if previous["role"] == "assistant" and tool_use_ids(previous):
        raise InvalidTranscript("tool calls are not answered")
    kinds = [block["type"] for block in message["content"]]
    if "tool_result" in kinds:
        raise InvalidTranscript("an assistant message holds a tool_result")
    if "tool_use" in kinds and any(kind != "tool_use" for kind in kinds[kinds.index("tool_use") :]):
        raise InvalidTranscript("a block stands after a tool_use")
    _check_calls([block for block in message["content"] if block["type"] == "tool_use"])


def _check_calls(blocks: Sequence[Block]) -> None:
    ids = [block["id"] for block in blocks]
    if len(ids) != len(set(ids)):
        raise InvalidTranscript("a tool_use id is used twice")
    if not all(isinstance(id_, str) and CALL_ID.fullmatch(id_) for id_ in ids):
        raise InvalidTranscript("a tool_use id has characters that the API refuses")
    if not all(isinstance(block["input"], dict) for block in blocks):
        raise InvalidTranscript("a tool_use input is not an object")
