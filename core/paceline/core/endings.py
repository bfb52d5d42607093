"""How runs end: every stop reason, the status it gives, the class of its error, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from .errors import PacelineError
from .lifecycle import Event, Status


class StopReason(StrEnum):
    """Why a run ended. Each run has exactly one."""

    FINAL_ANSWER = "final_answer"
    FINISH_TOOL = "finish_tool"
    MAX_TURNS = "max_turns"
    TOKEN_BUDGET = "token_budget"
    TIME_BUDGET = "time_budget"
    DEADLINE = "deadline"
    COST_BUDGET = "cost_budget"
    BATCH_BUDGET = "batch_budget"
    REPEAT_CALLS = "repeat_calls"
    TOOL_ERRORS = "tool_errors"
    OUTPUT_TRUNCATED = "output_truncated"
    INVALID_OUTPUT = "invalid_output"
    CONTEXT_WINDOW = "context_window"
    REFUSAL = "refusal"
    MODEL_ERROR = "model_error"
    UNKNOWN_EFFECT = "unknown_effect"
    DENIED = "denied"
    POISON = "poison"
    INTERNAL_ERROR = "internal_error"
    CANCELLED = "cancelled"


class ErrorClass(StrEnum):
    """Who or what an ending points at."""

    BUDGET = "budget"
    LOOP = "loop"
    MODEL = "model"
    TOOL = "tool"
    QUOTA = "quota"
    INFRA = "infra"
    INPUT = "input"
    CANCELLED = "cancelled"


class RunEndedWithoutAnswer(PacelineError):
    """A run ended without an answer; the subclass says how."""

    def __init__(self, run: str, message: str) -> None:
        super().__init__(f"run {run}: {message}")
        self.run = run


class MaxTurnsExceeded(RunEndedWithoutAnswer):
    """`limits.turns` was reached."""


class TokenBudgetExceeded(RunEndedWithoutAnswer):
    """The next call could have passed `limits.tokens`."""


class TimeBudgetExceeded(RunEndedWithoutAnswer):
    """`limits.seconds` of working time were used up."""


class DeadlineExceeded(RunEndedWithoutAnswer):
    """`limits.deadline` passed before the run was done."""


class CostBudgetExceeded(RunEndedWithoutAnswer):
    """The next call could have passed `limits.usd`."""


class BatchBudgetExceeded(RunEndedWithoutAnswer):
    """The next call could have passed the budget of the run's batch."""


class CallsRepeated(RunEndedWithoutAnswer):
    """The model asked for the same call once more than `limits.repeats` allows."""


class ToolsFailed(RunEndedWithoutAnswer):
    """Every call failed in `limits.error_turns` turns in a row."""


class OutputTruncated(RunEndedWithoutAnswer):
    """The model's answer was cut at the model's own maximum, twice in a row."""


class OutputInvalid(RunEndedWithoutAnswer):
    """The model did not hand in an output that fits the agent's `finish` schema."""


class ContextWindowExceeded(RunEndedWithoutAnswer):
    """The conversation no longer fits the model's window."""


class ModelRefused(RunEndedWithoutAnswer):
    """The model refused to go on."""


class ModelFailed(RunEndedWithoutAnswer):
    """The model's API refused the request, or failed too often."""


class EffectUnknown(RunEndedWithoutAnswer):
    """Nobody knows whether a call took effect, and the agent may not wait for a person who does."""


class Denied(RunEndedWithoutAnswer):
    """A person denied a call, and the agent may not go on without it."""


class RunPoisoned(RunEndedWithoutAnswer):
    """The run took too many workers down with it."""


class RunBroken(RunEndedWithoutAnswer):
    """A fault of paceline's own."""


class RunCancelled(RunEndedWithoutAnswer):
    """Somebody cancelled the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What one stop reason means."""

    status: Status
    event: Event
    error_class: ErrorClass | None
    exception: type[RunEndedWithoutAnswer] | None


def _stopped(error_class: ErrorClass, exception: type[RunEndedWithoutAnswer]) -> Ending:
    return Ending(status=Status.STOPPED, event=Event.STOP, error_class=error_class, exception=exception)


def _failed(error_class: ErrorClass, exception: type[RunEndedWithoutAnswer]) -> Ending:
    return Ending(status=Status.FAILED, event=Event.FAIL, error_class=error_class, exception=exception)


_SUCCEEDED = Ending(status=Status.SUCCEEDED, event=Event.SUCCEED, error_class=None, exception=None)

ENDINGS: Mapping[StopReason, Ending] = MappingProxyType(
    {
        StopReason.FINAL_ANSWER: _SUCCEEDED,
        StopReason.FINISH_TOOL: _SUCCEEDED,
        StopReason.MAX_TURNS: _stopped(ErrorClass.BUDGET, MaxTurnsExceeded),
        StopReason.TOKEN_BUDGET: _stopped(ErrorClass.BUDGET, TokenBudgetExceeded),
        StopReason.TIME_BUDGET: _stopped(ErrorClass.BUDGET, TimeBudgetExceeded),
        StopReason.DEADLINE: _stopped(ErrorClass.BUDGET, DeadlineExceeded),
        StopReason.COST_BUDGET: _stopped(ErrorClass.BUDGET, CostBudgetExceeded),
        StopReason.BATCH_BUDGET: _stopped(ErrorClass.BUDGET, BatchBudgetExceeded),
        StopReason.REPEAT_CALLS: _stopped(ErrorClass.LOOP, CallsRepeated),
        StopReason.TOOL_ERRORS: _stopped(ErrorClass.TOOL, ToolsFailed),
        StopReason.OUTPUT_TRUNCATED: _stopped(ErrorClass.MODEL, OutputTruncated),
        StopReason.INVALID_OUTPUT: _stopped(ErrorClass.MODEL, OutputInvalid),
        StopReason.CONTEXT_WINDOW: _stopped(ErrorClass.BUDGET, ContextWindowExceeded),
        StopReason.REFUSAL: _failed(ErrorClass.MODEL, ModelRefused),
        StopReason.MODEL_ERROR: _failed(ErrorClass.MODEL, ModelFailed),
        StopReason.UNKNOWN_EFFECT: _failed(ErrorClass.TOOL, EffectUnknown),
        StopReason.DENIED: _stopped(ErrorClass.INPUT, Denied),
        StopReason.POISON: _failed(ErrorClass.INFRA, RunPoisoned),
        StopReason.INTERNAL_ERROR: _failed(ErrorClass.INFRA, RunBroken),
        StopReason.CANCELLED: Ending(
            status=Status.CANCELLED,
            event=Event.CANCEL,
            error_class=ErrorClass.CANCELLED,
            exception=RunCancelled,
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ends: why, in words for a person, and its answer if (and only if) it succeeded.

    The answer of a run that ended by `finish` is what it handed in, as JSON text.
    """

    reason: StopReason
    message: str = ""
    answer: str | None = None
    error_class: ErrorClass | None = None
    """Set where it differs from the reason's own (a model error that is the input's fault)."""

    @property
    def ending(self) -> Ending:
        return ENDINGS[self.reason]

    @property
    def blames(self) -> ErrorClass | None:
        """The class of the error; None for a success."""
        return self.error_class or self.ending.error_class
