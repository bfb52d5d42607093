"""Rows: JSONL in, checked rows out, one at a time.

A file is read twice: the first pass checks every row in bounded memory and reports what is wrong, the second one yields
the rows. So nothing is submitted by halves, and no number of rows has to fit into memory.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from paceline.core.errors import InvalidTranscript, RowError
from paceline.core.transcript import Fragment, check_whole, user_blocks, user_text
from paceline.core.transcript import dump as dump_json

from .row_source import RowSource
from .template import MissingField, Template

MAX_ID_CHARS = 200
MAX_PROBLEMS = 20
"""More of them are counted, not shown."""

_BUCKETS = 256
_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row that can be submitted. `index` is its place among the rows, from 0; `digest` names what is sent for it."""

    row_id: str
    index: int
    digest: str
    first: tuple[Fragment, ...]


def check_rows(source: RowSource, template: Template | None) -> int:
    """How many rows there are. Raises RowError that lists what is wrong: where, what, and the fix."""
    problems: list[str] = []
    hashes = _Hashes()
    count = wrong = 0
    for place, raw in source.lines():
        count += 1
        try:
            hashes.add(_parsed(raw, count - 1, template).row_id)
        except RowError as error:
            wrong += 1
            if len(problems) < MAX_PROBLEMS:
                problems.append(f"{source.where(place)}: {error}")
    problems += _duplicates(source, hashes.seen_twice())
    if not count:
        raise RowError(f"{source.name}: there is no row in it: write one JSON object a line")
    if problems:
        raise RowError("\n".join(_shortened(problems, wrong)))
    return count


def read_rows(source: RowSource, template: Template | None) -> Iterator[Row]:
    """The rows, in order. Raises RowError at one that is wrong: `check_rows` would have found it."""
    for index, (place, raw) in enumerate(source.lines()):
        try:
            yield _parsed(raw, index, template)
        except RowError as error:
            raise RowError(f"{source.where(place)}: {error} (it was right before: the file has changed)") from None


def _shortened(problems: list[str], wrong: int) -> list[str]:
    shown = problems[:MAX_PROBLEMS]
    left = max(wrong, len(problems)) - len(shown)
    return [*shown, f"and {left} more"] if left > 0 else shown


def _parsed(raw: bytes, index: int, template: Template | None) -> Row:
    row = _object(raw)
    row_id = _id(row)
    try:
        first = _first(row, template)
    except (RowError, MissingField, InvalidTranscript) as error:
        raise RowError(f"row {row_id!r}: {error}") from None
    return Row(row_id=row_id, index=index, digest=_hex(b"\n".join(first)), first=first)


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        row = json.loads(raw, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise RowError(f"not UTF-8 (byte {error.start + 1} of the line): save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise RowError(f"not JSON (column {error.colno}: {error.msg}): write one whole JSON object a line") from None
    except RecursionError:
        raise RowError("nested too deeply") from None
    if not isinstance(row, dict):
        raise RowError(f"not a JSON object but {_json_kind(row)}: write one object a line, {{...}}")
    return row


def _refuse_constant(name: str) -> None:
    raise RowError(f"{name} is not JSON: use a number or null")


def _json_kind(value: object) -> str:
    return {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")


def _id(row: Mapping[str, Any]) -> str:
    match row.get("id"):
        case None:
            return _hex(json.dumps(row, sort_keys=True, separators=(",", ":")).encode())
        case bool():
            raise RowError("`id` is true or false: give a text or a whole number")
        case int() as number:
            return str(number)
        case str() as text if text and len(text) <= MAX_ID_CHARS and text.isprintable():
            return text
        case str():
            raise RowError(f"`id` is not 1 to {MAX_ID_CHARS} printable characters")
        case other:
            raise RowError(f"`id` is {_json_kind(other)}: give a text or a whole number")


def _hex(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def _first(row: Mapping[str, Any], template: Template | None) -> tuple[Fragment, ...]:
    needed = template.fields if template else frozenset()
    if "messages" in row and "messages" not in needed:
        return _messages(row)
    if template and not ("prompt" in row and "prompt" not in needed):
        return (_user_prompt(template.fill(row)),)
    prompt = row.get("prompt")
    if prompt is None:
        raise RowError("no `prompt`: add it, or `messages`, or a `prompt` with {fields} to the agent file")
    if not isinstance(prompt, str):
        raise RowError(f"`prompt` is {_json_kind(prompt)}, not a text")
    return (_user_prompt(prompt),)


def _user_prompt(text: str) -> Fragment:
    if not text.strip():
        raise RowError("the prompt is empty")
    return user_text(text)


def _messages(row: Mapping[str, Any]) -> tuple[Fragment, ...]:
    messages = row["messages"]
    if "prompt" in row:
        raise RowError("both `prompt` and `messages`: keep one")
    if not isinstance(messages, list) or not messages:
        raise RowError("`messages` is not a list of messages")
    fragments = tuple(_message(message, number) for number, message in enumerate(messages, 1))
    if messages[-1]["role"] != "user":
        raise RowError("`messages` does not end with a user message, so there is nothing to answer")
    try:
        check_whole(fragments)
    except (KeyError, TypeError, AttributeError) as error:
        raise RowError(f"`messages` has a block that the API does not know ({error!r})") from None
    return fragments


def _message(message: object, number: int) -> Fragment:
    match message:
        case {"role": "user" | "assistant" as role, "content": str() as text, **rest} if not rest:
            content: list[Any] = [{"type": "text", "text": text}]
        case {"role": "user" | "assistant" as role, "content": list() as content, **rest} if not rest:
            pass
        case _:
            raise RowError(
                f'message {number} is not {{"role": "user" or "assistant", "content": a text or a list of blocks}}'
            )
    if not all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in content):
        raise RowError(f"message {number} has a block without a `type`")
    return user_blocks(content) if role == "user" else Fragment(dump_json({"role": role, "content": content}))


class _Hashes:
    """Which ids were seen, as 8-byte hashes: 8 MB for a million. Two ids of one hash are sorted out afterwards."""

    def __init__(self) -> None:
        self._buckets = [array("Q") for _ in range(_BUCKETS)]

    def add(self, row_id: str) -> None:
        value = _hash(row_id)
        self._buckets[value % _BUCKETS].append(value)

    def seen_twice(self) -> frozenset[int]:
        """The hashes that were added more than once."""
        return frozenset(value for bucket in self._buckets for value in _repeated(bucket))


def _hash(row_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(row_id.encode(), digest_size=8).digest(), "little")


def _repeated(values: Iterable[int]) -> set[int]:
    seen: set[int] = set()
    twice: set[int] = set()
    for value in values:
        (twice if value in seen else seen).add(value)
    return twice


def _duplicates(source: RowSource, suspects: frozenset[int]) -> list[str]:
    return list(islice(_each_duplicate(source, suspects), MAX_PROBLEMS + 1)) if suspects else []


def _each_duplicate(source: RowSource, suspects: frozenset[int]) -> Iterator[str]:
    first: dict[str, int] = {}
    for place, raw in source.lines():
        found = _suspect_id(raw, suspects)
        if found is None:
            continue
        row_id, is_given = found
        if row_id in first:
            yield f"{source.where(place)}: {_twice(row_id, is_given, source.where(first[row_id]))}"
        first.setdefault(row_id, place)


def _suspect_id(raw: bytes, suspects: frozenset[int]) -> tuple[str, bool] | None:
    try:
        row = _object(raw)
        row_id = _id(row)
    except RowError:
        return None
    return (row_id, row.get("id") is not None) if _hash(row_id) in suspects else None


def _twice(row_id: str, is_given: bool, before: str) -> str:
    if is_given:
        return f"the id {row_id!r} is used before, at {before}: give each row an id of its own"
    return f"the same row as at {before}: take one out, or give each an `id`"
