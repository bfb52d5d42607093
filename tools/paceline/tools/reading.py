"""`read_result`: how a model pages through a result that was too long to be shown whole, or was cleared since."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, TypeAlias

from pydantic import Field

from paceline.core.ids import CallId, RunId
from paceline.core.tool_spec import READ_RESULT

from .context import ToolContext
from .decorate import tool
from .definition import Tool
from .errors import ToolError

PAGE_CHARS = 20_000
"""The most that one call of `read_result` returns, its own notes aside."""

_NOTES_CHARS = 500

WholeResult: TypeAlias = Callable[[RunId, CallId], Awaitable[str | None]]
"""The whole text of a call's result in the record; None if there is none."""


def read_result_tool(whole_result: WholeResult) -> Tool:
    """The built-in that each agent has beside its own tools, reading through `whole_result`."""

    @tool(effect="reads", placement="inline", name=READ_RESULT, max_result_chars=PAGE_CHARS + _NOTES_CHARS)
    async def read_result(
        call_id: Annotated[str, Field(description="The call, as the note in the result names it.")],
        offset: Annotated[int, Field(ge=0, description="Characters to skip.")] = 0,
        limit: Annotated[int, Field(ge=1, le=PAGE_CHARS, description="Characters to return.")] = PAGE_CHARS // 2,
        *,
        ctx: ToolContext,
    ) -> str:
        """Read an earlier tool result that was cleared, or of which only the head and the tail were shown."""
        whole = await whole_result(ctx.run_id, CallId(call_id))
        if whole is None:
            raise ToolError(
                f"there is no result of a call {call_id[:100]!r}",
                hint="take the call_id from the note in a result that was cleared or shortened",
            )
        return page(whole, offset=offset, limit=limit)

    return replace(read_result, spec=replace(read_result.spec, path=f"paceline.tools:{READ_RESULT}"))


def page(whole: str, *, offset: int, limit: int) -> str:
    """The `limit` characters from `offset` on, and a note that says where they stand and what comes next."""
    end = min(offset + limit, len(whole))
    if offset >= len(whole):
        return f"[offset {offset} is past the end: the result has {len(whole)} characters]"
    next_part = f"; go on with offset={end}" if end < len(whole) else ", the end"
    return f"{whole[offset:end]}\n\n[characters {offset} to {end} of {len(whole)}{next_part}]"
