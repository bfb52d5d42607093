"""A tool: what is told of it, how its arguments are checked, and the function that does the work."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, ParamSpec, TypeVar, cast

from paceline.core.tool_spec import ToolSpec

from .context import ToolContext
from .schema import Parameters

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something a model may call. `dataclasses.replace(tool, spec=...)` runs it under the spec frozen into a run."""

    spec: ToolSpec
    parameters: Parameters
    function: Callable[..., object]
    reconcile: Callable[[ToolContext], object] | None = None
    """Finds out what became of a call whose worker was lost; see `reconcile.py`."""

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function, run on the loop; if not it is run in a thread."""
        return inspect.iscoroutinefunction(self.function)

    def call(self, arguments: Mapping[str, object], ctx: ToolContext) -> object:
        """Call the function with arguments that were accepted. For a coroutine function: its coroutine."""
        bound = self.parameters.bind(arguments, ctx)
        return self.function(*bound.args, **bound.kwargs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFunction(Tool, Generic[P, R]):
    """A tool made of a function by `@tool`: still callable as that function was, for its own tests say."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self.function(*args, **kwargs))
