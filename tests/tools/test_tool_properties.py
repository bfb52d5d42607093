"""What holds for any value a tool may be given or may return."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.ids import CallId, RunId
from paceline.tools import Image, ToolContext, ToolResult, bounded, run_tool, tool
from paceline.tools.bounding import MIN_RESULT_CHARS
from paceline.tools.results import result_of

CTX = ToolContext(run_id=RunId("r"), turn=1, call_id=CallId("toolu_1"))

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)  # lone surrogates too
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT
ANY_JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4), max_leaves=15
)
IMAGES = st.builds(Image, st.binary(min_size=1, max_size=20), st.just("image/png"))


@tool(effect="reads")
async def probe(name: str, count: int = 1, tags: list[str] | None = None, extra: dict[str, Any] | None = None) -> Any:
    """Give back what was given."""
    return [name, count, tags, extra]


def check_is_sendable(result: ToolResult, *, max_chars: int) -> None:
    """The API would take it: UTF-8, valid JSON, no empty or blank text, no longer than allowed."""
    json.dumps(result.content, ensure_ascii=False, allow_nan=False).encode()
    blocks = [{"type": "text", "text": result.content}] if isinstance(result.content, str) else result.content
    assert blocks
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    assert all(text.strip() for text in texts)
    assert sum(map(len, texts)) <= max_chars


@given(value=ANY_JSON)
def test_any_json_value_becomes_a_sendable_result(value: object) -> None:
    result = result_of(value, max_chars=MIN_RESULT_CHARS, call_id="toolu_1")
    check_is_sendable(result, max_chars=MIN_RESULT_CHARS)
    if not isinstance(value, str) and value is not None:
        assert isinstance(result.content, str)
        json.loads(result.whole or result.content)


@given(members=st.lists(ANY_TEXT | IMAGES | st.integers(), max_size=30), image=IMAGES)
def test_any_mix_of_texts_and_images_becomes_a_sendable_result(members: list[object], image: Image) -> None:
    result = result_of([*members, image], max_chars=MIN_RESULT_CHARS, call_id="toolu_1")
    check_is_sendable(result, max_chars=MIN_RESULT_CHARS)


@given(
    length=st.integers(0, 5000),
    max_chars=st.integers(MIN_RESULT_CHARS, 3000),
    call_id=st.none() | st.text("abc_", max_size=300),
)
def test_a_bounded_text_is_never_too_long_and_never_without_its_note(
    length: int, max_chars: int, call_id: str | None
) -> None:
    text = "".join(chr(0x4E00 + n) for n in range(length))
    cut = bounded(text, max_chars, call_id=call_id)
    assert len(cut) <= max_chars
    if length <= max_chars:
        assert cut == text
    else:
        head, _, rest = cut.partition("\n\n[... ")
        note, _, tail = rest.partition(" ...]\n\n")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert note.startswith(f"{length - len(head) - len(tail)} of {length} characters are left out here")


@settings(max_examples=60)
@given(raw=ANY_JSON | st.dictionaries(st.sampled_from(["name", "count", "tags", "extra", "x"]), ANY_JSON))
def test_no_input_whatever_raises(raw: object) -> None:
    check_is_sendable(asyncio.run(run_tool(probe, raw, CTX)), max_chars=probe.spec.max_result_chars)


@given(value=st.builds(object) | st.binary() | st.complex_numbers() | st.sets(st.integers()) | st.dates() | st.uuids())
@settings(max_examples=40)
def test_no_returned_value_whatever_raises(value: object) -> None:
    @tool(effect="reads")
    async def give() -> object:
        """Give the value."""
        return value

    check_is_sendable(asyncio.run(run_tool(give, {}, CTX)), max_chars=give.spec.max_result_chars)
