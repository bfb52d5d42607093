"""The HTTP side: each request judged, answered by the playbook, spoiled by a fault if one is due, and journaled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from paceline.sim.api import Accepted, Api
from paceline.sim.batch_desk import BatchDesk
from paceline.sim.batch_work import BatchWork
from paceline.sim.cache import Charge, PromptCache
from paceline.sim.catalogue import models, one_model
from paceline.sim.delivery import deliver, is_connected, reset
from paceline.sim.dialects import ANTHROPIC, Dialect
from paceline.sim.exchange import Exchange, request_facts
from paceline.sim.faults import ON_ARRIVAL, ON_PLAIN, ON_STREAM, Fault, Injector, Stage
from paceline.sim.journal import Journal
from paceline.sim.limits import Limits, RateLimiter
from paceline.sim.mishaps import api_error
from paceline.sim.miswritten import misheaded
from paceline.sim.paging import page
from paceline.sim.playbook import Playbook
from paceline.sim.rules import Refusal
from paceline.sim.speaking import Failed, Line, Speaker
from paceline.sim.switches import Switches

Clock = Callable[[], float]
MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"
MODELS = "/v1/models"
BATCHES = "/v1/messages/batches"
# What is broken on its way; the rest is whole when it leaves.
_ON_THE_WAY = (Stage.LOST, Stage.STREAM, Stage.BODY)


@dataclass(frozen=True, slots=True)
class Turn:
    """An accepted request on its way to an answer: what its prompt costs, and the rate limit headers to send."""

    exchange: Exchange
    accepted: Accepted
    charge: Charge
    headers: Mapping[str, str]


class MessagesServer:
    """Answers requests as the API would, with what the playbook says."""

    def __init__(
        self,
        playbook: Playbook,
        journal: Journal,
        injector: Injector,
        *,
        clock: Clock,
        keys: Collection[str] | None = None,
        limits: Limits | None = None,
        switches: Switches | None = None,
        dialect: Dialect = ANTHROPIC,
    ) -> None:
        self._journal = journal
        self._injector = injector
        self._clock = clock
        self._dialect = dialect
        self._api = Api(keys, clock=clock, switches=switches, dialect=dialect)
        self._cache = PromptCache()
        self._speaker = Speaker(playbook, injector, self._cache, clock, dialect)
        work = BatchWork(self._api, self._speaker, self._cache, journal, clock)
        self._batches = BatchDesk(self._api, work, injector, playbook.batches, clock)
        self._limiter = RateLimiter(limits, clock) if limits is not None else None
        self._at_work: set[asyncio.Task[Any] | None] = set()
        self._count = 0
        self._started = int(clock() * 1000)

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        if http.path == "/health":
            return web.json_response({"status": "ok"})
        self._count += 1
        request_id = f"req_011{self._started:011x}{self._count:08x}"
        exchange = Exchange(http, request_id, self._journal, self._clock, self._dialect)
        task = asyncio.current_task()
        self._at_work.add(task)
        try:
            response = await self._answer(exchange)
            exchange.end(delivered=is_connected(http))
        except ConnectionError:
            # The client went away while it sent.
            response = web.Response()
        finally:
            exchange.end(delivered=False)
            self._at_work.discard(task)
        return response

    async def wait_idle(self) -> None:
        """Wait until every request has its end, written in the journal; they must have been answered or cancelled."""
        if self._at_work:
            await asyncio.wait([task for task in self._at_work if task is not None])

    async def _answer(self, exchange: Exchange) -> web.StreamResponse:
        unread = self._injector.strike(None, ON_ARRIVAL)
        if unread is not None:
            return self._lose(exchange, unread)
        http = exchange.http
        if http.path == MESSAGES and http.method == "POST":
            judged = await self._judge(exchange, counting=False)
            return exchange.refuse(judged) if isinstance(judged, Refusal) else await self._take(exchange, judged)
        if http.path == COUNT_TOKENS and http.method == "POST":
            return self._count_tokens(exchange, await self._judge(exchange, counting=True))
        return await self._look_up(exchange)

    async def _judge(self, exchange: Exchange, *, counting: bool) -> Accepted | Refusal:
        data = await exchange.read()
        if isinstance(data, Refusal):
            return data
        return self._api.judge(exchange.http.headers, data, counting=counting)

    def _lose(self, exchange: Exchange, fault: Fault) -> web.Response:
        exchange.note_answer(fault)
        exchange.end(delivered=False)
        return reset(exchange.http)

    def _count_tokens(self, exchange: Exchange, judged: Accepted | Refusal) -> web.Response:
        if isinstance(judged, Refusal):
            return exchange.refuse(judged)
        exchange.note(verdict="accepted")
        counted: dict[str, Any] = {"input_tokens": judged.prompt.tokens}
        if judged.edited is not None:
            counted["context_management"] = {"original_input_tokens": judged.edited.original_tokens}
        return exchange.reply(200, json.dumps(counted).encode())

    async def _look_up(self, exchange: Exchange) -> web.Response:
        """Answer what is not a message: models and batches."""
        http = exchange.http
        if not http.path.startswith((MODELS, BATCHES)):
            return _not_found(exchange)
        asked = self._api.admit(http.headers)
        if isinstance(asked, Refusal):
            return exchange.refuse(asked)
        if http.path.startswith(MODELS):
            return self._models(exchange)
        parts = [part for part in http.path.removeprefix(BATCHES).split("/") if part]
        return await self._batches.answer(exchange, asked, parts) or _not_found(exchange)

    def _models(self, exchange: Exchange) -> web.Response:
        http = exchange.http
        model_id = http.path.removeprefix(MODELS).strip("/")
        lifecycles = [*http.query.getall("lifecycle", []), *http.query.getall("lifecycle[]", [])]
        now = self._clock()
        found = one_model(model_id, now) if model_id else page(models(now, lifecycles), http.query)
        if isinstance(found, Refusal):
            return exchange.refuse(found)
        exchange.note(verdict="accepted")
        return exchange.reply(200, json.dumps(found).encode())

    async def _take(self, exchange: Exchange, accepted: Accepted) -> web.StreamResponse:
        """Answer a sound request, within the rate limits."""
        exchange.note(**request_facts(accepted))
        charge = self._cache.charge(accepted.prompt, accepted.model, accepted.scope, exchange.started)
        if self._limiter is None:
            return await self._play(Turn(exchange, accepted, charge, {}))
        uncached = charge.usage.input_tokens + charge.usage.cache_creation_input_tokens
        limited = self._limiter.enter(accepted.model, uncached)
        headers = self._limiter.headers(accepted.model)
        if limited is not None:
            return exchange.refuse(limited.refusal, headers | limited.headers)
        try:
            return await self._play(Turn(exchange, accepted, charge, headers))
        finally:
            self._limiter.leave(accepted.model, exchange.usage.output_tokens)

    async def _play(self, turn: Turn) -> web.StreamResponse:
        """Answer as the playbook says, unless a fault is due."""
        request = turn.accepted.request
        line = self._speaker.line(turn.accepted, ON_STREAM if request.stream else ON_PLAIN)
        if isinstance(line, Failed):
            return _fail(turn, line)
        turn.exchange.note_answer(line.fault)
        return await self._speak(turn, line)

    async def _speak(self, turn: Turn, line: Line) -> web.StreamResponse:
        fault = line.fault
        said = self._speaker.say(line, turn.accepted, turn.charge)
        turn.exchange.note(
            status=200,
            usage=said.usage,
            stop_reason=said.spoken.stop_reason,
            tool_use_ids=tuple(said.spoken.call_ids),
        )
        if line.answer.delay_s:
            await asyncio.sleep(line.answer.delay_s)
        self._cache.begin(turn.charge)
        return await deliver(
            turn.exchange.http,
            said.message,
            turn.exchange.headers(misheaded(turn.headers, fault)),
            streamed=turn.accepted.request.stream,
            fault=fault if fault is not None and fault.stage in _ON_THE_WAY else None,
            ended=turn.exchange.end,
        )


def _fail(turn: Turn, failed: Failed) -> web.Response:
    """Send an error in place of the answer, and note whose fault it is."""
    refusal = failed.error.refusal
    if failed.fault is not None:
        turn.exchange.note_answer(failed.fault)
    elif refusal is not None:
        turn.exchange.note(verdict="refused", rule=refusal.rule.number, reason=refusal.text)
    else:
        turn.exchange.note(verdict="refused", reason=failed.reason)
    return turn.exchange.fail(failed.error, turn.headers)


def _not_found(exchange: Exchange) -> web.Response:
    exchange.note(verdict="refused", reason="no such path")
    return exchange.fail(api_error(404, "not_found_error", "Not found"))
