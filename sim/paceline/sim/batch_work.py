"""The requests of a batch, judged and answered one by one, as the Messages API would and for half the price."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.sim.api import Accepted, Api, Asked
from paceline.sim.batch_body import Item, item_refusals
from paceline.sim.batches import Task
from paceline.sim.cache import PromptCache
from paceline.sim.dialects import ANTHROPIC, Failure
from paceline.sim.exchange import request_facts
from paceline.sim.faults import ON_ITEM
from paceline.sim.journal import Entry, Journal
from paceline.sim.mishaps import ErrorReply, api_error, refusal_reply
from paceline.sim.rules import Refusal
from paceline.sim.speaking import Failed, Line, Speaker

PATH = "/v1/messages/batches"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Post:
    """One request of a batch, and the name the journal gives it."""

    item: Item
    batch_id: str
    request_id: str
    came: float


class BatchWork:
    """Turns the requests of a batch into tasks. What is not billed until the batch has ended is not journaled
    before, either."""

    def __init__(
        self,
        api: Api,
        speaker: Speaker,
        cache: PromptCache,
        journal: Journal,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._speaker = speaker
        self._cache = cache
        self._journal = journal
        self._clock = clock

    def task(self, item: Item, asked: Asked, batch_id: str, number: int, seconds: float) -> Task:
        """One request of a batch that takes `seconds` by itself."""
        now = self._clock()
        post = _Post(item=item, batch_id=batch_id, request_id=f"{batch_id}_{number}", came=now)
        accepted = self._judge(item, asked)
        if isinstance(accepted, Refusal):
            return self._failing(post, refusal_reply(accepted), now + seconds)
        line = self._speaker.line(accepted, ON_ITEM)
        if isinstance(line, Failed):
            return self._failing(post, line.error, now + seconds, line.fault.name if line.fault else None)
        return self._speaking(post, line, accepted, now + max(seconds, line.answer.delay_s))

    def _judge(self, item: Item, asked: Asked) -> Accepted | Refusal:
        refused = self._api.first(item_refusals(item.params))
        return refused or self._api.judge_body(asked, item.text.encode("utf-8", "surrogatepass"))

    def _failing(self, post: _Post, error: ErrorReply, done_at: float, fault: str | None = None) -> Task:
        def finish() -> dict[str, Any]:
            refusal = error.refusal if fault is None else None
            self._write(
                post,
                done_at,
                verdict="refused" if fault is None else "fault",
                fault=fault,
                status=error.status,
                rule=refusal.rule.number if refusal else None,
                reason=_failure(error).text,
            )
            return _errored(error, post.request_id)

        return Task(custom_id=post.item.custom_id, done_at=done_at, finish=finish)

    def _undone(self, post: _Post, fault: str, done_at: float) -> Task:
        def finish() -> dict[str, Any]:
            self._write(post, done_at, verdict="fault", fault=fault, status=None)
            return {"type": fault.removeprefix("item_")}

        return Task(custom_id=post.item.custom_id, done_at=done_at, finish=finish)

    def _speaking(self, post: _Post, line: Line, accepted: Accepted, done_at: float) -> Task:
        match line.fault.name if line.fault else None:
            case "item_errored":
                error = api_error(500, "api_error", "Internal server error")
                return self._failing(post, error, done_at, "item_errored")
            case ("item_expired" | "item_canceled") as fault:
                return self._undone(post, fault, done_at)

        def finish() -> dict[str, Any]:
            return self._said(post, line, accepted, done_at)

        return Task(custom_id=post.item.custom_id, done_at=done_at, finish=finish)

    def _said(self, post: _Post, line: Line, accepted: Accepted, done_at: float) -> dict[str, Any]:
        charge = self._cache.charge(accepted.prompt, accepted.model, accepted.scope, done_at)
        said = self._speaker.say(line, accepted, charge, service_tier="batch")
        self._cache.begin(charge)
        self._write(
            post,
            done_at,
            verdict="accepted" if line.fault is None else "fault",
            fault=line.fault.name if line.fault else None,
            status=200,
            billed=line.fault is None or line.fault.is_billed,
            usage=said.usage,
            stop_reason=said.spoken.stop_reason,
            tool_use_ids=tuple(said.spoken.call_ids),
            **request_facts(accepted),
        )
        return {"type": "succeeded", "message": said.message}

    def _write(self, post: _Post, done_at: float, **facts: Any) -> None:
        self._journal.write(
            Entry(
                time=post.came,
                request_id=post.request_id,
                path=PATH,
                batch_id=post.batch_id,
                custom_id=post.item.custom_id,
                latency_s=round(done_at - post.came, 6),
                **facts,
            )
        )


def _errored(error: ErrorReply, request_id: str) -> dict[str, Any]:
    """The result of a request that failed: the error as the API writes it, whole."""
    return {"type": "errored", "error": json.loads(ANTHROPIC.write(_failure(error), request_id))}


def _failure(error: ErrorReply) -> Failure:
    return error.failure or Failure(status=error.status, error_type="api_error", text=error.title)
