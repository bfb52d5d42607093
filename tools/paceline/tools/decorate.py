"""`@tool`: a function becomes something a model may call."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Literal, ParamSpec, TypeVar, overload

from paceline.core.tool_spec import MAX_RESULT_CHARS, Approval, Effect, Placement, ToolSpec

from .bounding import MIN_RESULT_CHARS
from .context import ToolContext
from .definition import ToolFunction
from .errors import ToolDefinitionError
from .schema import parameters_of

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=StrEnum)

# The API takes 128 characters by now, some of its other hosts 64.
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@overload
def tool(function: Callable[P, R], /) -> ToolFunction[P, R]: ...
@overload
def tool(
    *,
    effect: Effect | Literal["reads", "idempotent", "once"] = ...,
    placement: Placement | Literal["fleet", "inline"] = ...,
    timeout_s: float = ...,
    max_result_chars: int = ...,
    repeatable: bool = ...,
    approval: Approval | Literal["never", "always"] = ...,
    name: str | None = ...,
    reconcile: Callable[[ToolContext], object] | None = ...,
) -> Callable[[Callable[P, R]], ToolFunction[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    effect: str = Effect.ONCE,
    placement: str = Placement.FLEET,
    timeout_s: float = 60.0,
    max_result_chars: int = MAX_RESULT_CHARS,
    repeatable: bool = False,
    approval: str = Approval.NEVER,
    name: str | None = None,
    reconcile: Callable[[ToolContext], object] | None = None,
) -> ToolFunction[P, R] | Callable[[Callable[P, R]], ToolFunction[P, R]]:
    """Make a tool of a function: its docstring is the description, its type hints are the schema.

    A parameter annotated `ToolContext` is filled in and not shown to the model. Both `def` and `async def` will do: a
    plain function runs in a thread, a coroutine function on the worker's loop, which it must not block.

    effect            `once` (the default, the safest): never run twice unseen, and never beside another `once` call of
                      the same turn; `idempotent`: may run again with the same idempotency key; `reads`: changes nothing
    placement         `fleet`: a task of its own on any worker; `inline`: within the turn, for what reads and takes
                      milliseconds
    timeout_s         seconds until the call is given up. A plain function cannot be stopped from outside: it is given
                      up, but keeps its thread until it returns, so give what it calls a timeout too
    max_result_chars  what is longer reaches the model as head and tail; the whole is kept
    repeatable        polling: the same call may be made again and again
    approval          `always`: not before a person has approved the call (`paceline approve`, `paceline deny`)
    name              the name the model sees; the function's name if None
    reconcile         of a `once` tool: a function of the context that finds out what became of a call whose worker was
                      lost, by `ctx.idempotency_key` say. It returns what the tool would have returned, or `NotRan()`
                      if the call has not taken effect and may run, or `Unknown()`; then a person is asked

    Raises ToolDefinitionError, which names the function and the fix.
    """

    def decorate(function: Callable[P, R]) -> ToolFunction[P, R]:
        _refuse_unusable(function)
        where = f"tool {function.__module__}:{function.__qualname__}"
        parameters = parameters_of(function)
        spec = ToolSpec(
            name=_name(where, name or function.__name__),
            path=f"{function.__module__}:{function.__qualname__}",
            description=_description(where, function),
            input_schema=parameters.schema(),
            effect=_choice(where, "effect", Effect, effect),
            placement=_choice(where, "placement", Placement, placement),
            timeout_s=timeout_s,
            max_result_chars=max_result_chars,
            repeatable=repeatable,
            approval=_choice(where, "approval", Approval, approval),
            reconciles=reconcile is not None,
        )
        _refuse_unsound(where, spec)
        if reconcile is not None:
            _refuse_unusable_reconcile(where, reconcile)
        return ToolFunction(spec=spec, parameters=parameters, function=function, reconcile=reconcile)

    return decorate if function is None else decorate(function)


def _refuse_unusable(function: Callable[..., object]) -> None:
    if not inspect.isfunction(function):
        raise ToolDefinitionError(
            f"@tool was put on {function!r}: put it on a function, written with `def` or `async def`"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolDefinitionError(
            f"tool {function.__module__}:{function.__qualname__} yields: collect what it yields, and return a list or "
            "a text"
        )


def _name(where: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ToolDefinitionError(
            f'{where}: the name {name!r} is not one the API takes: use `name="..."` with 1 to 64 of the characters '
            "a-z A-Z 0-9 _ -"
        )
    return name


def _description(where: str, function: Callable[..., object]) -> str:
    text = inspect.getdoc(function) or ""
    if not text.strip():
        raise ToolDefinitionError(f"{where} has no docstring: write one, the model chooses its tools by it")
    return text


def _choice(where: str, option: str, kind: type[E], value: str) -> E:
    try:
        return kind(value)
    except ValueError:
        raise ToolDefinitionError(f"{where}: {option}={value!r} is none of {', '.join(kind)}") from None


def _refuse_unsound(where: str, spec: ToolSpec) -> None:
    if not (0 < spec.timeout_s < math.inf):
        raise ToolDefinitionError(f"{where}: timeout_s={spec.timeout_s} must be more than 0 and finite")
    if spec.max_result_chars < MIN_RESULT_CHARS:
        raise ToolDefinitionError(
            f"{where}: max_result_chars={spec.max_result_chars} must be at least {MIN_RESULT_CHARS}"
        )
    if spec.placement is Placement.INLINE and spec.effect is not Effect.READS:
        raise ToolDefinitionError(
            f'{where}: placement="inline" is for tools with effect="reads", not {spec.effect}: leave the placement away'
        )
    if spec.placement is Placement.INLINE and spec.approval is Approval.ALWAYS:
        raise ToolDefinitionError(
            f'{where}: approval="always" is not for tools with placement="inline", which run within the turn and wait '
            "for nobody: leave the placement away"
        )
    if spec.reconciles and spec.effect is not Effect.ONCE:
        raise ToolDefinitionError(
            f'{where}: reconcile is for tools with effect="once": one that is {spec.effect} is simply run again'
        )


def _refuse_unusable_reconcile(where: str, reconcile: Callable[[ToolContext], object]) -> None:
    try:
        inspect.signature(reconcile).bind(None)
    except TypeError as error:
        raise ToolDefinitionError(
            f"{where}: its reconcile must be a function of one ToolContext ({error}): the model's arguments are in "
            "`ctx.arguments`"
        ) from error
