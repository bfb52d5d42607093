"""The HTTP side: each request judged, answered by the playbook, spoiled by a fault if one is due, and journaled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from paceline.sim.answer import Answer, speak
from paceline.sim.api import Accepted, Api
from paceline.sim.cache import Charge, PromptCache
from paceline.sim.delivery import deliver, is_connected, reset
from paceline.sim.exchange import Exchange
from paceline.sim.faults import Fault, Injector, Stage
from paceline.sim.journal import Journal, Usage
from paceline.sim.limits import Limits, RateLimiter
from paceline.sim.mishaps import ErrorReply, error_of, misspoken
from paceline.sim.playbook import Playbook
from paceline.sim.request import Request
from paceline.sim.rules import Refusal, Rule, error_body, refusal_body, refuse
from paceline.sim.wire import message_of

Clock = Callable[[], float]
MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"


@dataclass(frozen=True, slots=True)
class Turn:
    """An accepted request on its way to an answer: what its prompt costs, and the rate limit headers to send."""

    exchange: Exchange
    request: Request
    charge: Charge
    headers: Mapping[str, str]

    def fail(self, error: ErrorReply) -> web.Response:
        """Send an error in place of the answer."""
        body = error.body(self.exchange.request_id)
        return self.exchange.reply(error.status, body, {**self.headers, **error.headers}, error.content_type)


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
    ) -> None:
        self._playbook = playbook
        self._journal = journal
        self._injector = injector
        self._clock = clock
        self._api = Api(keys)
        self._cache = PromptCache()
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
        exchange = Exchange(http, request_id, self._journal, self._clock)
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
        http = exchange.http
        if http.method != "POST" or http.path not in (MESSAGES, COUNT_TOKENS):
            exchange.note(verdict="refused", reason="no such path")
            return exchange.reply(404, error_body("not_found_error", "Not found", exchange.request_id))
        unread = self._injector.strike(None)
        if unread is not None:
            return self._lose(exchange, unread)
        counting = http.path == COUNT_TOKENS
        try:
            judged = self._api.judge(http.headers, await http.read(), counting=counting)
        except web.HTTPRequestEntityTooLarge:
            judged = refuse(Rule.TOO_LARGE)
        if isinstance(judged, Refusal):
            return self._refuse(exchange, judged)
        if counting:
            exchange.note(verdict="accepted")
            return exchange.reply(200, json.dumps({"input_tokens": judged.prompt.tokens}).encode())
        return await self._take(exchange, judged)

    def _lose(self, exchange: Exchange, fault: Fault) -> web.Response:
        exchange.note_answer(fault)
        exchange.end(delivered=False)
        return reset(exchange.http)

    def _refuse(self, exchange: Exchange, refusal: Refusal, headers: Mapping[str, str] | None = None) -> web.Response:
        rule = refusal.rule
        exchange.note(verdict="refused", rule=rule.number, reason=refusal.text)
        return exchange.reply(rule.status, refusal_body(refusal, exchange.request_id), headers)

    async def _take(self, exchange: Exchange, accepted: Accepted) -> web.StreamResponse:
        """Answer a sound request, within the rate limits."""
        _note_request(exchange, accepted)
        charge = self._cache.charge(accepted.prompt, accepted.model, accepted.scope, exchange.started)
        if self._limiter is None:
            return await self._play(Turn(exchange, accepted.request, charge, {}))
        uncached = charge.usage.input_tokens + charge.usage.cache_creation_input_tokens
        limited = self._limiter.enter(accepted.model, uncached)
        headers = self._limiter.headers(accepted.model)
        if limited is not None:
            return self._refuse(exchange, limited.refusal, headers | limited.headers)
        try:
            return await self._play(Turn(exchange, accepted.request, charge, headers))
        finally:
            self._limiter.leave(accepted.model, exchange.usage.output_tokens)

    async def _play(self, turn: Turn) -> web.StreamResponse:
        """Answer as the playbook says, unless a fault is due."""
        try:
            answer = self._playbook.answer(turn.request)
            if answer is None:
                return self._refuse(turn.exchange, _unplanned(turn.request), turn.headers)
            fault = self._injector.strike(turn.request) or answer.fault
            if fault is not None:
                answer = misspoken(fault, answer, turn.request)
        except Exception as error:
            # A mistake in a user's function must reach the user, not end as a bare 500.
            turn.exchange.note(verdict="refused", reason=f"the playbook raised {type(error).__name__}")
            text = f"paceline.sim: the playbook raised {error!r}; mend the function or the fault that it names"
            return turn.fail(ErrorReply(status=500, error_type="api_error", text=text))
        turn.exchange.note_answer(fault)
        if fault is not None and fault.stage is Stage.REFUSED:
            return turn.fail(error_of(fault, turn.request))
        return await self._speak(turn, answer, fault)

    async def _speak(self, turn: Turn, answer: Answer, fault: Fault | None) -> web.StreamResponse:
        request = turn.request
        spoken = speak(answer, request.conversation, request.max_tokens)
        usage = turn.charge.usage + Usage(output_tokens=spoken.output_tokens)
        self._cache.read(turn.charge)
        turn.exchange.note(status=200, usage=usage, stop_reason=spoken.stop_reason, tool_use_ids=tuple(spoken.call_ids))
        if answer.delay_s:
            await asyncio.sleep(answer.delay_s)
        self._cache.begin(turn.charge)
        is_spoken = fault is None or fault.stage is Stage.SPOKEN
        return await deliver(
            turn.exchange.http,
            message_of(spoken, usage, request),
            turn.exchange.headers(turn.headers),
            streamed=request.stream,
            fault=None if is_spoken else fault,
            ended=turn.exchange.end,
        )


def _unplanned(request: Request) -> Refusal:
    last = request.sent[-1].role
    return refuse(Rule.NO_PLAYBOOK_RULE, turn=request.turn, model=request.model, last=last)


def _note_request(exchange: Exchange, accepted: Accepted) -> None:
    request = accepted.request
    exchange.note(
        model=request.model,
        run=request.run,
        messages=len(request.sent),
        turn=request.turn,
        message_hashes=tuple(message.digest for message in request.sent),
        prefix_sha256=accepted.prompt.prefix.sha256,
        tool_result_ids=tuple(result.call_id for result in request.tool_results),
    )
