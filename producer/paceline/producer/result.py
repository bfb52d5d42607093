"""The result of a row: what users read, from Python and as a line of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from paceline.core.endings import ENDINGS, StopReason
from paceline.core.errors import NewerVersion
from paceline.core.ids import RunId, trace_id
from paceline.core.lifecycle import Status
from paceline.core.run import Run
from paceline.core.usage import NANO_USD, Usage
from paceline.store.port import RunRecord

_ENDED_BY_AN_ANSWER = frozenset(
    {
        StopReason.FINAL_ANSWER,
        StopReason.FINISH_TOOL,
        StopReason.INVALID_OUTPUT,
        StopReason.REPEAT_CALLS,
        StopReason.OUTPUT_TRUNCATED,
        StopReason.REFUSAL,
        StopReason.CONTEXT_WINDOW,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultError:
    """Why a row has no answer: the class says whom it points at."""

    error_class: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a row. `answer` raises if there is none; `answer_or_none` does not."""

    id: str
    run_id: RunId
    status: Status
    stop_reason: StopReason | None
    answer_or_none: str | None
    output: object | None
    """What the run handed in by `finish`; its answer is the JSON text of it."""
    error: ResultError | None
    turns: int
    """Turns that the model answered."""
    tool_calls: int
    usage: Usage
    cost_usd: float | None
    """None while the price of any of its model calls is unknown."""
    working_seconds: float
    attempts: int
    trace_id: str

    @property
    def answer(self) -> str:
        """The answer. Raises the exception of the run's ending (`MaxTurnsExceeded`, ...) if there is none."""
        if self.answer_or_none is not None:
            return self.answer_or_none
        exception = ENDINGS[self.stop_reason].exception if self.stop_reason else None
        if exception is None:
            raise ValueError(f"run {self.run_id} is {self.status}: it has no answer yet")
        raise exception(self.run_id, self.error.message if self.error else self.status)

    def to_json(self) -> dict[str, Any]:
        """Plain data, as written to results files."""
        error = self.error and {"class": self.error.error_class, "message": self.error.message}
        return {
            "id": self.id,
            "run_id": self.run_id,
            "status": self.status.value,
            "stop_reason": self.stop_reason.value if self.stop_reason else None,
            "answer": self.answer_or_none,
            "output": self.output,
            "error": error,
            "turns": self.turns,
            "tool_calls": self.tool_calls,
            "usage": usage_json(self.usage),
            "cost_usd": self.cost_usd,
            "working_seconds": self.working_seconds,
            "attempts": self.attempts,
            "trace_id": self.trace_id,
        }


def usage_json(usage: Usage) -> dict[str, int]:
    """Tokens as users see them."""
    return {
        "input_tokens": usage.input,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
        "output_tokens": usage.output,
    }


def cost_usd(nanousd: int, unpriced_calls: int) -> float | None:
    """Dollars; None (unknown, which is not 0) if the price of any call is unknown."""
    return None if unpriced_calls else nanousd / NANO_USD


def result_of(record: RunRecord) -> Result:
    """The result of a run as it stands; of one that is not over, without stop reason and answer.

    Raises NewerVersion for a stop reason that is not known here.
    """
    run = record.run
    reason = _stop_reason(record)
    return Result(
        id=run.row_id,
        run_id=run.run_id,
        status=run.state.status,
        stop_reason=reason,
        answer_or_none=record.answer if run.state.status is Status.SUCCEEDED else None,
        output=json.loads(record.answer) if reason is StopReason.FINISH_TOOL and record.answer else None,
        error=ResultError(error_class=record.error_class, message=record.message) if record.error_class else None,
        turns=record.turns or _turns(run, reason),
        tool_calls=run.spent.tool_calls,
        usage=run.spent.usage,
        cost_usd=cost_usd(run.spent.cost_nanousd, run.spent.unpriced_calls),
        working_seconds=run.spent.working_ms / 1000,
        attempts=run.attempts,
        trace_id=trace_id(run.run_id),
    )


def _stop_reason(record: RunRecord) -> StopReason | None:
    try:
        return StopReason(record.reason) if record.reason else None
    except ValueError:
        raise NewerVersion(
            f"run {record.run.run_id} ended by {record.reason!r}, which only a newer paceline knows: upgrade this one"
        ) from None


def _turns(run: Run, reason: StopReason | None) -> int:
    """The turns of a run whose record does not count its answers."""
    # `turn` is the one that is due or under way, and stays where the run ended.
    return run.turn if reason in _ENDED_BY_AN_ANSWER else run.turn - 1
