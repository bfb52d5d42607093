from __future__ import annotations

import base64
import datetime
import decimal
import enum
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from paceline.tools import Image, ToolResult, bounded
from paceline.tools.bounding import MIN_RESULT_CHARS
from paceline.tools.plain import NotPlain, plain, unbroken
from paceline.tools.results import NO_OUTPUT, result_of

PNG = Image(b"\x89PNG", "image/png")
PNG_BLOCK = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"\x89PNG").decode()},
}


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    YES = "yes"


class Model(BaseModel):
    name: str
    when: datetime.date


@dataclass
class Record:
    path: str
    size: float


class Pair(NamedTuple):
    left: int
    right: int


def shown(value: object, *, max_chars: int = 1000) -> ToolResult:
    return result_of(value, max_chars=max_chars, call_id="toolu_1")


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("as it is", "as it is"),
        (Word.YES, "yes"),
        (None, NO_OUTPUT),
        ("", NO_OUTPUT),
        (" \n\t", NO_OUTPUT),
        (True, "true"),
        (3, "3"),
        (Level.HIGH, "3"),
        ([], "[]"),
        ({}, "{}"),
        (["a", "b"], '["a", "b"]'),
        ({"ä": [1, None, 2.5]}, '{"ä": [1, null, 2.5]}'),
        (float("nan"), '"NaN"'),
        ({"a": float("inf"), "b": [-float("inf")]}, '{"a": "Infinity", "b": ["-Infinity"]}'),
        (Model(name="n", when=datetime.date(2026, 1, 2)), '{"name": "n", "when": "2026-01-02"}'),
        (Record(path="p", size=float("nan")), '{"path": "p", "size": "NaN"}'),
        ([Record(path="p", size=1.0)], '[{"path": "p", "size": 1.0}]'),
        (Pair(1, 2), "[1, 2]"),
        ({1: "a", False: "b", None: "c"}, '{"1": "a", "false": "b", "null": "c"}'),
        ({datetime.date(2026, 1, 2): 1, (1, 2): 2}, '{"2026-01-02": 1, "[1, 2]": 2}'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (PurePosixPath("a/b"), '"a/b"'),
        ({"raw": b"\xff"}, '{"raw": "_w=="}'),
        (frozenset({1}), "[1]"),
    ],
)
def test_a_value_becomes_text(value: object, content: str) -> None:
    result = shown(value)
    assert result.content == content
    assert not result.is_error
    assert result.whole is None


def test_surrogates_are_mended_in_texts_keys_and_values() -> None:
    assert unbroken("a\ud800b\udc00") == "a\ufffdb\ufffd"
    assert unbroken("\ud83d\ude00") == "😀"
    assert shown("x\udfff").content == "x\ufffd"
    assert shown({"k\ud800": ["v\ud800"]}).content == '{"k\ufffd": ["v\ufffd"]}'
    assert shown(Record(path="\ud800", size=1.0)).content == '{"path": "\ufffd", "size": 1.0}'


def endless() -> Iterator[int]:
    while True:
        yield 1


class Opaque:
    pass


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"bytes", ["decode", "Image(data, media_type)"]),
        (endless(), ["generator", "return a list"]),
        ({"rows": endless()}, ["generator", "return a list"]),
        (map(str, [1]), ["map", "return a list"]),
        (Opaque(), ["Opaque", "return a text"]),
        ([{"a": Opaque()}], ["Opaque"]),
        ({"picture": PNG}, ["Image", "list of texts and images"]),
    ],
)
def test_a_value_without_a_form_is_refused_with_advice(value: object, words: list[str]) -> None:
    with pytest.raises(NotPlain) as refused:
        shown(value)
    for word in words:
        assert word in str(refused.value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(NotPlain, match="contains itself"):
        plain(loop)


def test_an_image_becomes_a_block() -> None:
    assert shown(PNG) == ToolResult(content=[PNG_BLOCK], is_error=False, chars=0)


def test_a_list_with_an_image_becomes_blocks_in_order_without_empty_texts() -> None:
    result = shown(["before", PNG, "", {"n": 1}, None])
    assert result.content == [{"type": "text", "text": "before"}, PNG_BLOCK, {"type": "text", "text": '{"n": 1}'}]
    assert result.chars == len("before") + len('{"n": 1}')


def test_too_long_texts_among_images_become_one_bounded_text_before_them() -> None:
    result = shown(["a" * 900, PNG, "b" * 900])
    assert isinstance(result.content, list)
    text, image = result.content
    assert image == PNG_BLOCK
    assert len(text["text"]) <= 1000
    assert result.whole == "a" * 900 + "\n\n" + "b" * 900
    assert result.chars == 1802


@pytest.mark.parametrize(("data", "media_type"), [(b"", "image/png"), ("text", "image/png"), (b"x", "image/tiff")])
def test_an_image_the_api_would_refuse_is_refused_when_it_is_made(data: Any, media_type: str) -> None:
    with pytest.raises(ValueError, match=r"must be|none of"):
        Image(data, media_type)


def test_a_long_text_is_cut_to_head_and_tail_and_kept_whole() -> None:
    text = "".join(f"line {n}\n" for n in range(1000))
    result = shown(text)
    assert isinstance(result.content, str)
    assert len(result.content) <= 1000
    assert result.content.startswith("line 0\nline 1\n")
    assert result.content.endswith("line 998\nline 999\n")
    assert 'read_result(call_id="toolu_1", offset=' in result.content
    assert result.whole == text
    assert result.chars == len(text)


def test_the_note_says_how_much_is_missing_and_from_where() -> None:
    cut = bounded("h" * 5000 + "t" * 5000, 1000, call_id="toolu_1")
    head, tail = cut.count("h" * 3), cut.count("t" * 3)
    assert head > tail > 0
    shown_head = len(cut) - len(cut.lstrip("h"))
    shown_tail = len(cut) - len(cut.rstrip("t"))
    assert f"[... {10_000 - shown_head - shown_tail} of 10000 characters are left out here; " in cut
    assert f"offset={shown_head})" in cut


def test_a_text_of_exactly_the_limit_is_not_cut() -> None:
    assert bounded("x" * 1000, 1000) == "x" * 1000


def test_a_limit_without_room_for_the_note_is_refused() -> None:
    with pytest.raises(ValueError, match=str(MIN_RESULT_CHARS)):
        bounded("x", MIN_RESULT_CHARS - 1)


def test_plain_data_is_json_without_extensions() -> None:
    data = plain({"a": [float("nan"), (1, 2)], 2: {3}})
    assert json.loads(json.dumps(data, allow_nan=False)) == {"a": ["NaN", [1, 2]], "2": [3]}
