"""The bytes of a request: split into fields without losing what each message looked like on the wire.

A conversation is sent again and again, longer each time. `MessageShelf` keeps the messages it has read, so that
a message is decoded, checked and hashed once, and later recognised by comparing bytes.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from paceline.sim.message import Message, read_message
from paceline.sim.rules import Refusal, Rule, refuse

_SPACES = (" ", "\t", "\n", "\r")
_SPACE = re.compile(r"[ \t\n\r]*")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A decoded request. `raw` holds the text of each top-level field as it was sent; `messages` is None when
    the field is missing or no list."""

    fields: dict[str, Any]
    raw: dict[str, str]
    messages: tuple[Message, ...] | None


class MessageShelf:
    """Messages read lately, by their text; at most `max_chars` characters of it."""

    def __init__(self, max_chars: int = 32_000_000) -> None:
        self._max_chars = max_chars
        self.chars = 0
        self._messages: OrderedDict[str, Message] = OrderedDict()
        self._start = read_message("null", None)

    def read(self, text: str, at: int, before: Message | None) -> tuple[Message, int]:
        """The message whose text begins at `at`, and the position after it; `before` is the one it follows."""
        before = before or self._start
        expected = before.successor
        if expected is not None and text.startswith(expected.raw, at):
            self._keep(expected)
            return expected, at + len(expected.raw)
        value, end = _DECODER.raw_decode(text, at)
        raw = text[at:end]
        message = self._messages.get(raw) or read_message(raw, value)
        self._keep(message)
        # Only an object ends where its text ends: after the number 1 there may follow another digit.
        before.successor = message if raw.startswith("{") else None
        return message, end

    def _keep(self, message: Message) -> None:
        if message.raw in self._messages:
            self._messages.move_to_end(message.raw)
            return
        self._messages[message.raw] = message
        self.chars += len(message.raw)
        while self.chars > self._max_chars and len(self._messages) > 1:
            _, oldest = self._messages.popitem(last=False)
            oldest.successor = None
            self.chars -= len(oldest.raw)


def read_body(data: bytes, shelf: MessageShelf) -> Body | Refusal:
    """Decode the body of a request."""
    try:
        text = data.decode()
        body = _Reader(text, shelf).read()
    except UnicodeDecodeError as error:
        return refuse(Rule.NOT_JSON, reason=f"{error.reason}: byte {error.start}")
    except ValueError as error:
        return refuse(Rule.NOT_JSON, reason=str(error))
    reason = _lone_surrogate(text)
    return body if reason is None else refuse(Rule.NOT_JSON, reason=reason)


@dataclass(slots=True)
class _Reader:
    """Walks over the top-level object, leaving the values to the decoder in C."""

    text: str
    shelf: MessageShelf
    fields: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, str] = field(default_factory=dict)
    messages: tuple[Message, ...] | None = None

    def read(self) -> Body | Refusal:
        at = self._space(0)
        if not self.text.startswith("{", at):
            json.loads(self.text)
            return refuse(Rule.NOT_AN_OBJECT, "body")
        at = self._space(self._object(at))
        if at != len(self.text):
            raise json.JSONDecodeError("Extra data", self.text, at)
        return Body(fields=self.fields, raw=self.raw, messages=self.messages)

    def _object(self, at: int) -> int:
        at = self._space(at + 1)
        if self.text.startswith("}", at):
            return at + 1
        while True:
            at = self._space(self._field(at))
            if self.text.startswith("}", at):
                return at + 1
            at = self._space(self._expect(",", at))

    def _field(self, at: int) -> int:
        if not self.text.startswith('"', at):
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", self.text, at)
        name, at = _DECODER.raw_decode(self.text, at)
        start = self._space(self._expect(":", self._space(at)))
        if name == "messages" and self.text.startswith("[", start):
            end = self._messages_from(start)
        else:
            self.fields[name], end = _DECODER.raw_decode(self.text, start)
        self.raw[name] = self.text[start:end] if name != "messages" else ""
        return end

    def _messages_from(self, at: int) -> int:
        messages: list[Message] = []
        at = self._space(at + 1)
        if not self.text.startswith("]", at):
            while True:
                message, at = self.shelf.read(self.text, at, messages[-1] if messages else None)
                messages.append(message)
                at = self._space(at)
                if self.text.startswith("]", at):
                    break
                at = self._space(self._expect(",", at))
        self.messages = tuple(messages)
        self.fields["messages"] = messages
        return at + 1

    def _space(self, at: int) -> int:
        # Most clients write none; asking the expression each time would cost as much as all the rest.
        if self.text[at : at + 1] not in _SPACES:
            return at
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def _expect(self, sign: str, at: int) -> int:
        if not self.text.startswith(sign, at):
            raise json.JSONDecodeError(f"Expecting '{sign}' delimiter", self.text, at)
        return at + 1


def _lone_surrogate(text: str) -> str | None:
    """Why the API cannot read the string escapes of `text`; None when it can."""
    if "\\ud" not in text and "\\uD" not in text:
        return None
    high: re.Match[str] | None = None
    for escape in _ESCAPE.finditer(text):
        code = int(escape[1], 16) if escape[1] else 0
        if high is not None and not (0xDC00 <= code <= 0xDFFF and escape.start() == high.end()):
            return _at("no low surrogate in string", text, high.end())
        if high is None and 0xDC00 <= code <= 0xDFFF:
            return _at("no high surrogate in string", text, escape.start())
        high = escape if 0xD800 <= code <= 0xDBFF else None
    return None if high is None else _at("no low surrogate in string", text, high.end())


def _at(reason: str, text: str, at: int) -> str:
    return str(json.JSONDecodeError(reason, text, at))
