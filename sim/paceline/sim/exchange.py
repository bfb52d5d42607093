"""One request on its way to an answer, and what the journal will say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from paceline.sim.delivery import JSON
from paceline.sim.faults import Fault, Stage
from paceline.sim.journal import Entry, Journal, Usage
from paceline.sim.limits import ORGANIZATION


class Exchange:
    """Gathers what happens to one request and writes it to the journal once."""

    def __init__(self, http: web.BaseRequest, request_id: str, journal: Journal, clock: Callable[[], float]) -> None:
        self.http = http
        self.request_id = request_id
        self._journal = journal
        self._clock = clock
        self._facts: dict[str, Any] = {"verdict": "unread", "status": None}
        self.started = clock()
        self._is_written = False

    def note(self, **facts: Any) -> None:
        """Add to what the journal will say."""
        self._facts |= facts

    def note_answer(self, fault: Fault | None) -> None:
        """An answer is on its way, or the fault in its place; it is billed once the model has spoken."""
        if fault is None:
            self.note(verdict="accepted", billed=True)
        else:
            self.note(verdict="fault", fault=fault.name, billed=fault.stage not in (Stage.UNREAD, Stage.REFUSED))

    @property
    def usage(self) -> Usage:
        """Tokens billed so far."""
        usage = self._facts.get("usage")
        return usage if isinstance(usage, Usage) else Usage()

    def headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Headers of every answer."""
        return {"request-id": self.request_id, "anthropic-organization-id": ORGANIZATION, **(more or {})}

    def reply(
        self, status: int, body: bytes, more: Mapping[str, str] | None = None, content_type: str = JSON
    ) -> web.Response:
        """A whole answer."""
        self.note(status=status)
        return web.Response(status=status, body=body, headers=self.headers(more) | {"content-type": content_type})

    def end(self, delivered: bool) -> None:
        """Write the entry, unless it is written."""
        if self._is_written:
            return
        self._is_written = True
        facts = {"request_id": self.request_id, "path": self.http.path, **self._facts, "delivered": delivered}
        self._journal.write(Entry(time=self.started, latency_s=round(self._clock() - self.started, 6), **facts))
