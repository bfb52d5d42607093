"""The result backend: it keeps nothing. A chord is complete when the record says so, not when a counter does."""

# mypy: allow-subclassing-any
# Celery ships no type information.

from __future__ import annotations

from typing import Any

from celery.backends.base import BaseBackend
from celery.canvas import maybe_signature

from paceline.store.port import CallWritten


class RecordBackend(BaseBackend):
    """Celery's extension point, filled with the answer of `finish_call`.

    A chord part returns that answer. The part whose result was the last of its turn sends the body; a repeated part
    finds its call answered and sends nothing. So a chord needs no keys and no count of its own.
    """

    def store_result(self, *_args: object, **_options: object) -> None:
        """Results are in the record."""

    def get_task_meta_for(self, *_args: object, **_options: object) -> None:
        """Nobody waits for a task: runs are waited for in the record."""

    def apply_chord(self, header_result_args: Any, body: Any, **_options: object) -> None:
        """There is nothing to prepare."""

    def on_chord_part_return(self, request: Any, state: str, result: object, **_options: object) -> None:
        """Send the chord's body if this part brought the last result."""
        if result == CallWritten.LAST:
            maybe_signature(request.chord, app=self.app).apply_async()
