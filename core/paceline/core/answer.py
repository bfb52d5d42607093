"""An answer of the model, read from the bytes of the wire: what it says, what it asks for, what it used.

Only what decides the next step is read; the content's bytes are kept as they came.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from .errors import InvalidTranscript
from .ids import CallId
from .transcript import Fragment, assistant_content, check_next, text_of, user_text
from .usage import Usage, context_tokens, cost_nanousd, read_usage

_decoder = json.JSONDecoder()
_ANY_USER = user_text("?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """What an answer says that it used. `cost_nanousd` is None where its price is unknown."""

    model: str
    usage: Usage
    cost_nanousd: int | None


class BrokenAnswer(Exception):
    """What came back is not an answer: cut, malformed, or against the API's own rules. Its text tells no content.

    It may have cost what an answer does: `billed` is what it says of that, where that can be read.
    """

    def __init__(self, message: str, *, billed: Billed | None = None) -> None:
        super().__init__(message)
        self.billed = billed


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call that the model asked for. `raw_input` is the JSON text of its arguments."""

    call_id: CallId
    tool: str
    raw_input: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer. `fragment` is None where the model said nothing at all."""

    message_id: str
    model: str
    stop_reason: str | None
    fragment: Fragment | None
    text: str
    calls: tuple[Call, ...]
    only_text: bool
    usage: Usage
    context_tokens: int
    """What the conversation comes to with it; 0 where only what is sent next can tell."""
    cost_nanousd: int | None
    refusal: str
    container: str = ""
    """Where the API ran code for it: the next request must name it."""
    cleared_tokens: int = 0
    """What the API cleared from the context itself, before it asked the model."""


def read_answer(body: bytes) -> Answer:
    """The answer in the body of a 200. Raises BrokenAnswer for anything that must not be used or sent back."""
    try:
        return _whole_answer(body)
    except BrokenAnswer as broken:
        raise BrokenAnswer(str(broken), billed=_billed(body)) from None


def _billed(body: bytes) -> Billed | None:
    """What is told of the bill before the place where the body breaks off, or stops being JSON."""
    told: dict[str, Any] = {}
    with suppress(ValueError, IndexError, RecursionError):
        text = body.decode(errors="replace")
        told.update((member.name, member.value) for member in _members(text))
    model, usage = told.get("model"), told.get("usage")
    if not isinstance(model, str) or not isinstance(usage, dict):
        return None
    try:
        return Billed(model=model, usage=read_usage(usage), cost_nanousd=cost_nanousd(usage, model))
    except (ValueError, TypeError, AttributeError):
        return None


def _whole_answer(body: bytes) -> Answer:
    text = _decoded(body)
    message = _message(text)
    try:
        return _read(message, raw_member(text, "content"))
    except InvalidTranscript as problem:
        raise BrokenAnswer(f"the answer could not be sent back: {problem}") from None
    except (KeyError, TypeError, AttributeError) as problem:
        raise BrokenAnswer(f"the answer is not built as the API builds one ({type(problem).__name__})") from None


def _read(message: Mapping[str, Any], raw: str) -> Answer:
    content = message["content"]
    fragment = _fragment(raw, content)
    stop_reason = _stop_reason(message.get("stop_reason"))
    # What is refused before anything was said is not billed, whatever it counted.
    is_billed = stop_reason != "refusal" or bool(content)
    usage, cost = _used(message["usage"], str(message["model"])) if is_billed else (Usage(), 0)
    return Answer(
        message_id=str(message.get("id", "")),
        model=str(message["model"]),
        stop_reason=stop_reason,
        fragment=fragment,
        text=text_of(message) if fragment else "",
        calls=tuple(_calls(content)),
        only_text=all(block["type"] == "text" for block in content),
        usage=usage,
        context_tokens=0 if stop_reason == "compaction" else context_tokens(message["usage"]),
        cost_nanousd=cost,
        refusal=str((message.get("stop_details") or {}).get("category") or "no category given"),
        container=str((message.get("container") or {}).get("id") or ""),
        cleared_tokens=_cleared_tokens(message.get("context_management") or {}),
    )


def _cleared_tokens(edited: Mapping[str, Any]) -> int:
    told = [edit.get("cleared_input_tokens") for edit in edited.get("applied_edits") or ()]
    return sum(tokens for tokens in told if type(tokens) is int and tokens > 0)


def raw_member(text: str, name: str) -> str:
    """The JSON text of one member of the object that `text` is, exactly as it stands there.

    Of two members of one name it is the last, as for `json.loads`. KeyError if there is none.
    """
    found = {member.name: text[member.start : member.end] for member in _members(text)}
    return found[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A member of an object, and where its value stands in the text."""

    name: str
    value: Any
    start: int
    end: int


def _members(text: str) -> Iterator[_Member]:
    """The members of the object that `text` is, in their order. ValueError or IndexError where it stops being one."""
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        name, at = _decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        value, end = _decoder.raw_decode(text, start)
        yield _Member(name=str(name), value=value, start=start, end=end)
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _decoded(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BrokenAnswer("the answer is not UTF-8") from None


def _message(text: str) -> Mapping[str, Any]:
    try:
        message = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BrokenAnswer("the answer is not JSON") from None
    if not isinstance(message, dict) or message.get("type") != "message":
        raise BrokenAnswer("the answer is not a message")
    if not isinstance(message.get("content"), list) or not isinstance(message.get("usage"), dict):
        raise BrokenAnswer("the answer has no content or no usage")
    if not isinstance(message.get("model"), str):
        raise BrokenAnswer("the answer names no model")
    return message


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is Python's, not JSON's")


def _fragment(raw: str, content: list[Any]) -> Fragment | None:
    if not content or _says_nothing(content):
        return None
    _check_unicode(raw, content)
    fragment = assistant_content(raw.encode())
    check_next(_ANY_USER, fragment)
    return fragment


def _says_nothing(content: list[Any]) -> bool:
    return all(
        isinstance(block, dict) and block.get("type") == "text" and not str(block.get("text", "")).strip()
        for block in content
    )


def _check_unicode(raw: str, content: list[Any]) -> None:
    # The API refuses an escaped lone surrogate in a request, and a block may not be mended: the answer is of no use.
    if "\\ud" in raw.lower():
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidTranscript("a string holds half a character") from None


def _calls(content: list[Any]) -> list[Call]:
    return [
        Call(
            call_id=block["id"],
            tool=str(block["name"]),
            raw_input=json.dumps(block["input"], ensure_ascii=False),
        )
        for block in content
        if block["type"] == "tool_use"
    ]


def _stop_reason(given: object) -> str | None:
    if given is not None and not isinstance(given, str):
        raise BrokenAnswer("the answer's stop_reason is no text")
    return given


def _used(usage: Mapping[str, Any], model: str) -> tuple[Usage, int | None]:
    try:
        return read_usage(usage), cost_nanousd(usage, model)
    except ValueError as problem:
        raise BrokenAnswer(str(problem)) from None
