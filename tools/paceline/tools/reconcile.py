"""Asking a tool what became of a call whose worker was lost: did it take effect, and with what result?"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeAlias, cast

from .context import ToolContext
from .definition import Tool
from .failures import frames, raised
from .results import ToolResult
from .run import presented, within
from .threads import ThreadPerCall

Reconcile: TypeAlias = Callable[[ToolContext], object]
"""A function, or a coroutine function, that looks at the world and changes nothing. It answers with what the tool would
have returned, or with `NotRan()`, or with `Unknown()`."""


@dataclass(frozen=True, slots=True)
class NotRan:
    """The call has not taken effect, and never will: it is run now."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It cannot be found out; `why` is told to the person who is asked next."""

    why: str = "its reconcile cannot tell"


async def reconcile_tool(
    tool: Tool, ctx: ToolContext, *, executor: Executor | None = None
) -> ToolResult | NotRan | Unknown:
    """Ask the tool's `reconcile`. Whatever goes wrong with it is Unknown: no guess is made about an effect.

    Raises only CancelledError, when the caller is cancelled. The tool's own timeout bounds the question.
    """
    if tool.reconcile is None:
        return Unknown("its code on this worker has no reconcile")
    allowed_s = min(tool.spec.timeout_s, ctx.deadline - time.time())
    try:
        said = await within(allowed_s, _start(tool.reconcile, ctx, executor or ThreadPerCall()))
    except (Exception, SystemExit) as error:
        ctx.log.warning("the reconcile of tool %s raised\n%s", tool.spec.name, frames(error))
        return Unknown(f"its reconcile failed: {raised(tool.spec, error)}")
    if said is None:
        return Unknown(f"its reconcile did not finish within {allowed_s:g} s")
    return _verdict(tool, ctx, said[0])


def _start(reconcile: Reconcile, ctx: ToolContext, executor: Executor) -> asyncio.Future[tuple[object]]:
    if inspect.iscoroutinefunction(reconcile):
        return asyncio.ensure_future(_ask(reconcile, ctx))
    context = contextvars.copy_context()
    return asyncio.wrap_future(executor.submit(context.run, lambda: (reconcile(ctx),)))


async def _ask(reconcile: Reconcile, ctx: ToolContext) -> tuple[object]:
    return (await cast("asyncio.Future[object]", reconcile(ctx)),)


def _verdict(tool: Tool, ctx: ToolContext, said: object) -> ToolResult | NotRan | Unknown:
    if isinstance(said, NotRan | Unknown):
        return said
    result = presented(tool, ctx, said)
    return Unknown(f"its reconcile: {result.content}") if result.is_error else result
