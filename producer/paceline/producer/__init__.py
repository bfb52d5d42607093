"""Submit rows to a fleet, watch them, collect the results: `from paceline.producer import Fleet`.

What can go wrong is here too, to be caught: see `paceline.core.errors` and `paceline.core.endings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.core.endings import (
    BatchBudgetExceeded,
    CallsRepeated,
    ContextWindowExceeded,
    CostBudgetExceeded,
    DeadlineExceeded,
    Denied,
    EffectUnknown,
    MaxTurnsExceeded,
    ModelFailed,
    ModelRefused,
    OutputInvalid,
    OutputTruncated,
    RunBroken,
    RunCancelled,
    RunEndedWithoutAnswer,
    RunPoisoned,
    TimeBudgetExceeded,
    TokenBudgetExceeded,
    ToolsFailed,
)
from paceline.core.errors import (
    AgentFileError,
    InfrastructureError,
    PacelineError,
    RowError,
    ToolLoadError,
    UnknownBatch,
    UnknownRun,
    UsageError,
)

if TYPE_CHECKING:
    from .fleet import Batch, BatchStatus, Fleet
    from .result import Result

__all__ = [
    "AgentFileError",
    "Batch",
    "BatchBudgetExceeded",
    "BatchStatus",
    "CallsRepeated",
    "ContextWindowExceeded",
    "CostBudgetExceeded",
    "DeadlineExceeded",
    "Denied",
    "EffectUnknown",
    "Fleet",
    "InfrastructureError",
    "MaxTurnsExceeded",
    "ModelFailed",
    "ModelRefused",
    "OutputInvalid",
    "OutputTruncated",
    "PacelineError",
    "Result",
    "RowError",
    "RunBroken",
    "RunCancelled",
    "RunEndedWithoutAnswer",
    "RunPoisoned",
    "TimeBudgetExceeded",
    "TokenBudgetExceeded",
    "ToolLoadError",
    "ToolsFailed",
    "UnknownBatch",
    "UnknownRun",
    "UsageError",
]


def __getattr__(name: str) -> object:
    # Late, so that `paceline --help` need not wait for Redis and kombu to be imported.
    if name in ("Batch", "BatchStatus", "Fleet"):
        from . import fleet

        return getattr(fleet, name)
    if name == "Result":
        from .result import Result

        return Result
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
