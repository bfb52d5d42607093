"""The bytes of a request: split into fields without losing what each message looked like on the wire.

A conversation is sent again and again, longer each time. `MessageShelf` keeps the messages it has read, so that
a message is decoded, checked and hashed once, and later recognised by comparing bytes.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from paceline.sim.json_text import JsonText, lone_surrogate
from paceline.sim.message import Message, read_message
from paceline.sim.rules import Refusal, Rule, refuse

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A decoded request. `raw` holds the text of each top-level field as it was sent; `messages` is None when
    the field is missing or no list."""

    fields: dict[str, Any]
    raw: dict[str, str]
    messages: tuple[Message, ...] | None


class MessageShelf:
    """Messages read lately, by their text; at most `max_chars` characters of it."""

    def __init__(self, max_chars: int = 32_000_000, unenforced: Collection[Rule] = ()) -> None:
        self._max_chars = max_chars
        self._unenforced = unenforced
        self.chars = 0
        self._messages: OrderedDict[str, Message] = OrderedDict()
        self._start = read_message("null", None)

    def read(self, source: JsonText, at: int, before: Message | None) -> tuple[Message, int]:
        """The message whose text begins at `at`, and the position after it; `before` is the one it follows."""
        text = source.text
        before = before or self._start
        expected = before.successor
        if expected is not None and text.startswith(expected.raw, at):
            self._keep(expected)
            return expected, at + len(expected.raw)
        value, end = source.value(at)
        raw = text[at:end]
        message = self._messages.get(raw) or read_message(raw, value, self._unenforced)
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
    return read_json(data, lambda text: _Reader(text, shelf).read())


def read_json(data: bytes, read: Callable[[str], R | Refusal]) -> R | Refusal:
    """What `read` makes of the text of a body; a refusal when it is not JSON as the API reads it."""
    try:
        text = data.decode()
        found = read(text)
    except UnicodeDecodeError as error:
        return refuse(Rule.NOT_JSON, reason=f"{error.reason}: byte {error.start}")
    except ValueError as error:
        return refuse(Rule.NOT_JSON, reason=str(error))
    reason = lone_surrogate(text)
    return found if reason is None else refuse(Rule.NOT_JSON, reason=reason)


def read_object(json_text: JsonText, take: Callable[[str, int], int]) -> Refusal | None:
    """Walk over the fields of a body; a refusal when it is no object."""
    if not json_text.text.startswith("{", json_text.space(0)):
        json.loads(json_text.text)
        return refuse(Rule.NOT_AN_OBJECT, "body")
    json_text.whole(lambda at: json_text.object(at, take))
    return None


class _Reader:
    """Reads the fields of a request, its messages by the shelf."""

    def __init__(self, text: str, shelf: MessageShelf) -> None:
        self._json = JsonText(text)
        self._shelf = shelf
        self._fields: dict[str, Any] = {}
        self._raw: dict[str, str] = {}
        self._read: list[Message] = []
        self._has_messages = False

    def read(self) -> Body | Refusal:
        refusal = read_object(self._json, self._field)
        if refusal is not None:
            return refusal
        messages = tuple(self._read) if self._has_messages else None
        return Body(fields=self._fields, raw=self._raw, messages=messages)

    def _field(self, name: str, start: int) -> int:
        text = self._json.text
        if name == "messages" and text.startswith("[", start):
            # Of a field that is written twice the last counts.
            self._fields[name] = self._read = []
            self._has_messages = True
            self._raw[name] = ""
            return self._json.list(start, self._message)
        self._fields[name], end = self._json.value(start)
        self._raw[name] = text[start:end]
        return end

    def _message(self, start: int) -> int:
        messages = self._read
        message, end = self._shelf.read(self._json, start, messages[-1] if messages else None)
        messages.append(message)
        return end
