"""The texts of what went wrong in a call, written for the model: what happened, and what to do about it."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from paceline.core.tool_spec import Effect, ToolSpec

from .errors import ToolError

_RUN_AGAIN = {
    Effect.READS: "Try again, or ask for less.",
    Effect.IDEMPOTENT: "It may have taken effect or not: check before you call it again.",
    Effect.ONCE: "It may have taken effect or not: check before you call it again.",
}


def wrong_arguments(spec: ToolSpec, problems: Sequence[str]) -> str:
    """The model sent arguments that do not fit the schema."""
    lines = "\n".join(f"- {problem}" for problem in problems)
    return f"{spec.name} was not run, its arguments are wrong:\n{lines}\nMend them and call it again."


def timed_out(spec: ToolSpec, after_s: float) -> str:
    """The tool did not return in time."""
    return f"{spec.name} did not finish within {after_s:g} s and was given up. {_RUN_AGAIN[spec.effect]}"


def too_late(spec: ToolSpec) -> str:
    """The deadline passed before the tool began."""
    return f"{spec.name} was not run: no time was left for it."


def not_presentable(spec: ToolSpec, reason: str) -> str:
    """The tool did its work and returned something that has no form as a result."""
    return f"{spec.name} ran to its end, but what it returned cannot be shown: {reason}. Do not run it again for this."


def raised(spec: ToolSpec, error: BaseException) -> str:
    """The tool raised: the author's own words for a ToolError, else the exception's type and text."""
    match error:
        case ToolError(hint=str(hint)):
            return f"{_text(error)}\nHint: {hint}"
        case ToolError():
            return _text(error)
        case _:
            return f"{spec.name} failed: {_described(error)}"


def frames(error: BaseException) -> str:
    """Where an exception came from, without its text and its values: those may hold what no log may."""
    where = "".join(traceback.format_tb(error.__traceback__))
    return f"{where}{type(error).__qualname__}"


def _described(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_described(member) for member in error.exceptions)
    text = _text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text cannot be read)"
