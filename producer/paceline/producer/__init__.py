"""Submit rows to a fleet, watch them, collect the results: `from paceline.producer import Fleet`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .fleet import Batch, BatchStatus, Fleet
    from .result import Result

__all__ = ["Batch", "BatchStatus", "Fleet", "Result"]


def __getattr__(name: str) -> object:
    # Late, so that `paceline --help` need not wait for Redis and kombu to be imported.
    if name in ("Batch", "BatchStatus", "Fleet"):
        from . import fleet

        return getattr(fleet, name)
    if name == "Result":
        from .result import Result

        return Result
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
