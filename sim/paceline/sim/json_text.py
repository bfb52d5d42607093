"""JSON walked over where it stands, so that the text of each part is at hand as it was sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

# One look tells what a walk has to know: what comes next, and where it begins.
_SPACE = re.compile(r"[ \t\n\r]*").match
_AFTER_FIELD = re.compile(r"[ \t\n\r]*([,}])[ \t\n\r]*").match
_AFTER_ITEM = re.compile(r"[ \t\n\r]*([,\]])[ \t\n\r]*").match
_PLAIN_NAME = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*').match
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


class JsonText:
    """JSON as text. Everything raises ValueError where it is none; values are left to the decoder in C."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def value(self, at: int) -> tuple[Any, int]:
        """The value that begins at `at`, and the position after it."""
        return _DECODER.raw_decode(self.text, at)

    def object(self, at: int, take: Callable[[str, int], int]) -> int:
        """Walk over the object at `at`: `take` gets the name and the start of each value, and returns its end."""
        at = self.space(at + 1)
        if self.text.startswith("}", at):
            return at + 1
        while True:
            after = _AFTER_FIELD(self.text, self._field(at, take))
            if after is None or after[1] == "}":
                return self._end(after, "}")
            at = after.end()

    def list(self, at: int, take: Callable[[int], int]) -> int:
        """Walk over the list at `at`: `take` gets the start of each value, and returns its end."""
        at = self.space(at + 1)
        if self.text.startswith("]", at):
            return at + 1
        while True:
            after = _AFTER_ITEM(self.text, take(at))
            if after is None or after[1] == "]":
                return self._end(after, "]")
            at = after.end()

    def space(self, at: int) -> int:
        """The first position from `at` on that is no space."""
        match = _SPACE(self.text, at)
        return match.end() if match else at

    def whole(self, walk: Callable[[int], int]) -> None:
        """Walk over the text's only value, an object; nothing may follow it."""
        at = self.space(walk(self.space(0)))
        if at != len(self.text):
            raise json.JSONDecodeError("Extra data", self.text, at)

    def _field(self, at: int, take: Callable[[str, int], int]) -> int:
        plain = _PLAIN_NAME(self.text, at)
        if plain:
            return take(plain[1], plain.end())
        if not self.text.startswith('"', at):
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", self.text, at)
        name, at = _DECODER.raw_decode(self.text, at)
        at = self.space(at)
        if not self.text.startswith(":", at):
            raise json.JSONDecodeError("Expecting ':' delimiter", self.text, at)
        return take(name, self.space(at + 1))

    def _end(self, after: re.Match[str] | None, sign: str) -> int:
        """The end of what `sign` closes; where neither it nor a comma stands, the text is no JSON."""
        if after is None:
            raise json.JSONDecodeError(f"Expecting ',' delimiter or '{sign}'", self.text, len(self.text))
        return after.end(1)


def lone_surrogate(text: str) -> str | None:
    """Why the API cannot read the string escapes of `text`; None when it can."""
    if "\\" not in text or ("\\ud" not in text and "\\uD" not in text):
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
