"""One request on its way to an answer, and what the journal will say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from paceline.sim.api import Accepted
from paceline.sim.delivery import JSON
from paceline.sim.dialects import ANTHROPIC, Dialect
from paceline.sim.faults import Fault
from paceline.sim.journal import Entry, Journal, Usage
from paceline.sim.limits import ORGANIZATION
from paceline.sim.mishaps import HTML, ErrorReply, refusal_reply
from paceline.sim.rules import Refusal, Rule, proxy_error_body, refuse

# Besides all from 500 on.
RETRIED = frozenset({408, 409, 429})
TOO_LARGE = 413


def request_facts(accepted: Accepted) -> dict[str, Any]:
    """What the journal says of a request, by names of `Entry`."""
    request = accepted.request
    return {
        "model": request.model,
        "run": request.run,
        "messages": len(request.sent),
        "turn": request.turn,
        "message_hashes": tuple(message.digest for message in request.sent),
        "prefix_sha256": accepted.prompt.prefix.sha256,
        "tool_result_ids": tuple(result.call_id for result in request.tool_results),
    }


class Exchange:
    """Gathers what happens to one request and writes it to the journal once."""

    def __init__(
        self,
        http: web.BaseRequest,
        request_id: str,
        journal: Journal,
        clock: Callable[[], float],
        dialect: Dialect = ANTHROPIC,
    ) -> None:
        self.http = http
        self._dialect = dialect
        self.request_id = request_id
        self._journal = journal
        self._clock = clock
        self._facts: dict[str, Any] = {"verdict": "unread", "status": None}
        self.started = clock()
        self._is_written = False

    async def read(self) -> bytes | Refusal:
        """The body, unless it is larger than its path takes."""
        try:
            return await self.http.read()
        except web.HTTPRequestEntityTooLarge:
            return refuse(Rule.TOO_LARGE)

    def note(self, **facts: Any) -> None:
        """Add to what the journal will say."""
        self._facts |= facts

    def note_answer(self, fault: Fault | None) -> None:
        """An answer is on its way, or the fault in its place; it is billed once the model has spoken."""
        if fault is None:
            self.note(verdict="accepted", billed=True)
        else:
            self.note(verdict="fault", fault=fault.name, billed=fault.is_billed)

    @property
    def usage(self) -> Usage:
        """Tokens billed so far."""
        usage = self._facts.get("usage")
        return usage if isinstance(usage, Usage) else Usage()

    def headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Headers of every answer."""
        if not self._dialect.is_marked:
            return {}
        return {
            "request-id": self.request_id,
            "anthropic-organization-id": ORGANIZATION,
            "cf-ray": f"{self.request_id[-16:]}-SIM",
            **(more or {}),
        }

    def reply(
        self, status: int, body: bytes, more: Mapping[str, str] | None = None, content_type: str = JSON
    ) -> web.Response:
        """A whole answer."""
        self.note(status=status)
        return web.Response(status=status, body=body, headers=self.headers(more) | {"content-type": content_type})

    def fail(self, error: ErrorReply, more: Mapping[str, str] | None = None) -> web.Response:
        """Send an error in place of the answer, as the server's kind writes it."""
        again = {"x-should-retry": "true" if error.status in RETRIED or error.status >= 500 else "false"}
        headers = {**again, **(more or {}), **error.headers}
        if error.failure is None:
            title = error.title.encode()
            return self.reply(error.status, HTML % (title, title), headers, "text/html")
        if error.status == TOO_LARGE and self._dialect is ANTHROPIC:
            return self.reply(error.status, proxy_error_body(error.failure.text), headers)
        return self.reply(error.status, self._dialect.write(error.failure, self.request_id), headers)

    def refuse(self, refusal: Refusal, more: Mapping[str, str] | None = None) -> web.Response:
        """Send the error of a broken rule, and note it."""
        self.note(verdict="refused", rule=refusal.rule.number, reason=refusal.text)
        return self.fail(refusal_reply(refusal), more)

    def end(self, delivered: bool) -> None:
        """Write the entry, unless it is written."""
        if self._is_written:
            return
        self._is_written = True
        facts = {"request_id": self.request_id, "path": self.http.path, **self._facts, "delivered": delivered}
        self._journal.write(Entry(time=self.started, latency_s=round(self._clock() - self.started, 6), **facts))
