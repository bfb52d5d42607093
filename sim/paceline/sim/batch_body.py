"""The body of a batch: its requests, each with the text of its parameters as it was sent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paceline.sim.body import read_json, read_object
from paceline.sim.json_text import JsonText
from paceline.sim.rules import Refusal, Rule, refuse
from paceline.sim.schema import Fields, wrong_type

MAX_REQUESTS = 100_000
MAX_BATCH_BYTES = 256 * 1024 * 1024
_BATCH = Fields("requests:list user_profile_id?:string")
_ITEM = Fields("custom_id:string params:object")
_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_CUSTOM_ID = 64
# What a batch does not do. A refused one is an `errored` line, not a refused batch.
_NOT_IN_A_BATCH = ("stream", "speed", "thread", "fallbacks", "cache_hint", "context_hint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One request of a batch: its name, and its parameters as text and as values."""

    custom_id: str
    text: str
    params: Mapping[str, Any]


@dataclass(slots=True)
class ReadBatch:
    """What was read of a batch, not judged yet."""

    fields: dict[str, Any]
    requests: list[tuple[Any, str]]


def read_batch(data: bytes) -> ReadBatch | Refusal:
    """Decode the body of a batch."""
    return read_json(data, _read_text)


def batch_refusals(read: ReadBatch) -> Iterator[Refusal]:
    """What a batch breaks as a whole; what its requests ask for is judged later, one by one."""
    for refusal in _BATCH.refusals(read.fields, ""):
        yield refuse(refusal.rule, refusal.at.lstrip("."), **refusal.values)
    if not read.requests:
        yield refuse(Rule.NO_REQUESTS)
    if len(read.requests) > MAX_REQUESTS:
        yield refuse(Rule.TOO_MANY_REQUESTS, found=len(read.requests))
    seen: set[str] = set()
    for index, (item, _) in enumerate(read.requests):
        yield from _item_refusals(item, f"requests.{index}")
        if item["custom_id"] in seen:
            yield refuse(Rule.CUSTOM_ID_TWICE, id=item["custom_id"])
        seen.add(item["custom_id"])


def items_of(read: ReadBatch) -> list[Item]:
    """The requests of a sound batch."""
    return [Item(custom_id=item["custom_id"], text=text, params=item["params"]) for item, text in read.requests]


def item_refusals(params: Mapping[str, Any]) -> Iterator[Refusal]:
    """What one request may not ask for because it stands in a batch."""
    for name in _NOT_IN_A_BATCH:
        if params.get(name):
            yield refuse(Rule.NOT_IN_A_BATCH, name)
    if params.get("max_tokens") == 0:
        yield refuse(Rule.NOT_IN_A_BATCH, "max_tokens: 0")


def _read_text(text: str) -> ReadBatch | Refusal:
    source = JsonText(text)
    read = ReadBatch({}, [])

    def field(name: str, start: int) -> int:
        if name == "requests" and text.startswith("[", start):
            read.fields[name] = read.requests
            return source.list(start, item)
        read.fields[name], end = source.value(start)
        return end

    def item(start: int) -> int:
        value, end = source.value(start)
        read.requests.append((value, _params_text(source, start) if isinstance(value, dict) else ""))
        return end

    return read_object(source, field) or read


def _params_text(source: JsonText, start: int) -> str:
    """The text of the parameters in the request that begins at `start`."""
    found = ""

    def field(name: str, at: int) -> int:
        nonlocal found
        _, end = source.value(at)
        if name == "params":
            found = source.text[at:end]
        return end

    source.object(start, field)
    return found


def _item_refusals(item: object, at: str) -> Iterator[Refusal]:
    if not isinstance(item, dict):
        yield from wrong_type(item, "object", at)
        return
    yield from _ITEM.refusals(item, at)
    custom_id = item["custom_id"]
    if len(custom_id) > _MAX_CUSTOM_ID:
        yield refuse(Rule.CUSTOM_ID_LENGTH, f"{at}.custom_id")
    if not _CUSTOM_ID.fullmatch(custom_id):
        yield refuse(Rule.CUSTOM_ID_PATTERN, f"{at}.custom_id")
