from __future__ import annotations

import asyncio

from paceline.core.ids import CallId, RunId
from paceline.tools import ToolContext, ToolResult, read_result_tool, run_tool
from paceline.tools.reading import PAGE_CHARS, page

WHOLE = "".join(f"{n:05}" for n in range(10_000))


async def kept(run: RunId, call: CallId) -> str | None:
    return WHOLE if (run, call) == ("run-1", "toolu_1") else None


def read(arguments: dict[str, object], run: str = "run-1") -> ToolResult:
    ctx = ToolContext(run_id=RunId(run), turn=2, call_id=CallId("toolu_2"))
    return asyncio.run(run_tool(read_result_tool(kept), arguments, ctx))


def test_the_spec_is_that_of_a_cheap_read() -> None:
    spec = read_result_tool(kept).spec
    assert (spec.name, spec.path) == ("read_result", "paceline.tools:read_result")
    assert (spec.effect, spec.placement) == ("reads", "inline")
    assert list(spec.input_schema["properties"]) == ["call_id", "offset", "limit"]


def test_a_page_says_where_it_stands_and_how_to_go_on() -> None:
    result = read({"call_id": "toolu_1", "offset": 5, "limit": 10})
    assert result.content == "0000100002\n\n[characters 5 to 15 of 50000; go on with offset=15]"


def test_the_pages_together_are_the_whole() -> None:
    pages = [page(WHOLE, offset=offset, limit=PAGE_CHARS) for offset in range(0, len(WHOLE), PAGE_CHARS)]
    assert "".join(text.rpartition("\n\n[")[0] for text in pages) == WHOLE
    assert pages[-1].endswith(", the end]")


def test_the_largest_page_is_not_cut_again() -> None:
    result = read({"call_id": "toolu_1", "limit": PAGE_CHARS})
    assert result.whole is None
    assert not result.is_error


def test_an_offset_past_the_end_is_told() -> None:
    assert read({"call_id": "toolu_1", "offset": 50_000}).content == (
        "[offset 50000 is past the end: the result has 50000 characters]"
    )


def test_an_unknown_call_and_another_runs_call_are_answered_with_a_hint() -> None:
    for result in (read({"call_id": "toolu_9"}), read({"call_id": "toolu_1"}, run="run-2")):
        assert result.is_error
        assert "Hint: take the call_id from the note" in str(result.content)
