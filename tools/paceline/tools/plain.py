"""Any Python value as plain JSON data."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Awaitable, Iterator
from enum import Enum
from pathlib import PurePath
from typing import NoReturn, TypeAlias

from pydantic_core import to_jsonable_python

from .images import Image

PlainData: TypeAlias = "bool | int | float | str | list[PlainData] | dict[str, PlainData] | None"

_SURROGATE = re.compile("[\ud800-\udfff]")


class NotPlain(TypeError):
    """A value that JSON cannot hold; the message says which and what to return instead."""


def plain(value: object) -> PlainData:
    """A value as JSON data: dataclasses, pydantic models, dates, sets and the like in pydantic's way.

    NaN and the infinities, which JSON does not have, become the strings "NaN", "Infinity" and "-Infinity"; bytes
    become base64; lone surrogates become U+FFFD. Raises NotPlain for what has no such form.
    """
    try:
        return _plain(value)
    except RecursionError:
        raise NotPlain("the value is nested too deeply, or contains itself") from None


def unbroken(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates, which no JSON may carry, as U+FFFD."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _plain(value: object) -> PlainData:
    match value:
        case None | bool():
            return value
        case Enum():
            return _plain(value.value)
        case str() | PurePath():
            return unbroken(str(value))
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else _non_finite(value)
        case dict():
            return {_key(key): _plain(member) for key, member in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(member) for member in value]
        case _:
            return _converted(value)


def _non_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _key(key: object) -> str:
    as_data = _plain(key)
    return as_data if isinstance(as_data, str) else json.dumps(as_data, ensure_ascii=False)


def _converted(value: object) -> PlainData:
    if isinstance(value, Iterator | Awaitable):
        _refuse(value)
    try:
        return _plain(to_jsonable_python(value, bytes_mode="base64", fallback=_refuse))
    except (ValueError, UnicodeError) as error:
        raise NotPlain(str(error)) from error


def _refuse(value: object) -> NoReturn:
    match value:
        case Image():
            advice = "return an Image by itself, or in a list of texts and images"
        case Iterator():
            advice = "it can be read only once, and may never end: return a list"
        case Awaitable():
            advice = "it was never awaited: make the tool an `async def` and await it there"
        case _:
            advice = "return a text, or a dict, list, dataclass or pydantic model"
    raise NotPlain(f"{type(value).__module__}.{type(value).__qualname__} has no JSON form: {advice}")
