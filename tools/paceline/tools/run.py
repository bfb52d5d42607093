"""Running one call: whatever a tool does, the outcome is a result."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import TypeVar, cast

from .bounding import MIN_RESULT_CHARS
from .context import ToolContext
from .definition import Tool
from .errors import ToolError
from .failures import frames, not_presentable, raised, timed_out, too_late, wrong_arguments
from .plain import NotPlain
from .results import ToolResult, result_of, text_result
from .schema import Refused
from .threads import ThreadPerCall

T = TypeVar("T")

STOP_GRACE_S = 1.0
"""How long a cancelled coroutine may take to clean up before it is left to itself."""


async def run_tool(tool: Tool, raw_input: object, ctx: ToolContext, *, executor: Executor | None = None) -> ToolResult:
    """Check the arguments, run the tool, and give its result; every failure is a result too, with `is_error`.

    Raises only CancelledError, when the caller is cancelled; a coroutine tool is then cancelled with it. The call is
    given up after the tool's `timeout_s`, or at the context's deadline if that is sooner. A plain function runs in
    `executor`, by default in a thread of its own: it cannot be stopped, so after a timeout or a cancellation it
    goes on, and keeps its thread, until it returns; what it returns then is dropped.
    """
    allowed_s = min(tool.spec.timeout_s, ctx.deadline - time.time())
    if allowed_s <= 0:
        return _failed(tool, ctx, too_late(tool.spec))
    try:
        checked = tool.parameters.check(raw_input)
        if isinstance(checked, Refused):
            return _failed(tool, ctx, wrong_arguments(tool.spec, checked.problems))
        work = _start(tool, checked.arguments, ctx, executor or ThreadPerCall())
        return await within(allowed_s, work) or _failed(tool, ctx, timed_out(tool.spec, allowed_s))
    except Exception as error:  # Of a validator of the tool's own, or of an executor that takes no more work.
        return _raised(tool, ctx, error)


def _start(
    tool: Tool, arguments: Mapping[str, object], ctx: ToolContext, executor: Executor
) -> asyncio.Future[ToolResult]:
    if tool.is_async:
        return asyncio.ensure_future(_run_coroutine(tool, arguments, ctx))
    context = contextvars.copy_context()
    return asyncio.wrap_future(executor.submit(context.run, _run_function, tool, arguments, ctx))


async def within(allowed_s: float, work: asyncio.Future[T]) -> T | None:
    """The result, or None if there was none in time. Work that ends while it is being stopped still counts."""
    try:
        await asyncio.wait({work}, timeout=allowed_s)
    finally:
        if not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=STOP_GRACE_S)
    return work.result() if work.done() and not work.cancelled() else None


def _run_function(tool: Tool, arguments: Mapping[str, object], ctx: ToolContext) -> ToolResult:
    try:
        value = tool.call(arguments, ctx)
    except BaseException as error:  # In a thread of its own even `sys.exit()` is only a failed call.
        return _raised(tool, ctx, error)
    return presented(tool, ctx, value)


async def _run_coroutine(tool: Tool, arguments: Mapping[str, object], ctx: ToolContext) -> ToolResult:
    try:
        value = await cast("asyncio.Future[object]", tool.call(arguments, ctx))
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        return _raised(tool, ctx, error)
    except (Exception, SystemExit) as error:
        return _raised(tool, ctx, error)
    return presented(tool, ctx, value)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def presented(tool: Tool, ctx: ToolContext, value: object) -> ToolResult:
    """What a tool returned, as its result; an error if it has no form as one."""
    try:
        return result_of(value, max_chars=_max_chars(tool), call_id=ctx.call_id)
    except NotPlain as error:
        return _failed(tool, ctx, not_presentable(tool.spec, str(error)))
    except Exception as error:
        return _failed(tool, ctx, not_presentable(tool.spec, raised(tool.spec, error)))
    finally:
        if inspect.iscoroutine(value):
            value.close()


def _raised(tool: Tool, ctx: ToolContext, error: BaseException) -> ToolResult:
    if not isinstance(error, ToolError):
        ctx.log.warning("tool %s raised\n%s", tool.spec.name, frames(error))
    return _failed(tool, ctx, raised(tool.spec, error))


def _failed(tool: Tool, ctx: ToolContext, text: str) -> ToolResult:
    return text_result(text, max_chars=_max_chars(tool), call_id=ctx.call_id, is_error=True)


def _max_chars(tool: Tool) -> int:
    # A spec from the record was checked by whoever wrote it, perhaps under another rule than today's.
    return max(tool.spec.max_result_chars, MIN_RESULT_CHARS)
