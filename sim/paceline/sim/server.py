"""The HTTP side: each request judged, answered by the playbook, spoiled by a fault if one is due, and journaled."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from paceline.sim.answer import Answer, speak
from paceline.sim.api import MAX_BODY_BYTES, Accepted, Api
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
HOST = "127.0.0.1"
# How long a request may go on when the server stops. Zero would be for ever.
CANCEL_AFTER_SECONDS = 0.01
MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"


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

    def _refuse(self, exchange: Exchange, refusal: Refusal, headers: dict[str, str] | None = None) -> web.Response:
        rule = refusal.rule
        exchange.note(verdict="refused", rule=rule.number, reason=refusal.text)
        return exchange.reply(rule.status, refusal_body(refusal, exchange.request_id), headers)

    async def _take(self, exchange: Exchange, accepted: Accepted) -> web.StreamResponse:
        """Answer a sound request, within the rate limits."""
        _note_request(exchange, accepted)
        charge = self._cache.charge(accepted.prompt, accepted.model, accepted.scope, exchange.started)
        if self._limiter is None:
            return await self._play(exchange, accepted, charge, {})
        uncached = charge.usage.input_tokens + charge.usage.cache_creation_input_tokens
        limited = self._limiter.enter(accepted.model, uncached)
        headers = self._limiter.headers(accepted.model)
        if limited is not None:
            if limited.retry_after_s is not None:
                headers["retry-after"] = str(limited.retry_after_s)
            return self._refuse(exchange, limited.refusal, headers)
        try:
            return await self._play(exchange, accepted, charge, headers)
        finally:
            self._limiter.leave(accepted.model, exchange.usage.output_tokens)

    async def _play(
        self, exchange: Exchange, accepted: Accepted, charge: Charge, headers: dict[str, str]
    ) -> web.StreamResponse:
        request = accepted.request
        try:
            answer = self._playbook.answer(request)
            if answer is None:
                return self._refuse(exchange, _unplanned(request), headers)
            fault = self._injector.strike(request) or answer.fault
            if fault is not None:
                answer = misspoken(fault, answer, request)
        except Exception as error:
            # A mistake in a user's function must reach the user, not end as a bare 500.
            exchange.note(verdict="refused", reason=f"the playbook raised {type(error).__name__}")
            text = f"paceline.sim: the playbook raised {error!r}; mend the function or the fault that it names"
            return self._fail(exchange, ErrorReply(status=500, error_type="api_error", text=text), headers)
        exchange.note_answer(fault)
        if fault is not None and fault.stage is Stage.REFUSED:
            return self._fail(exchange, error_of(fault, request), headers)
        return await self._speak(exchange, accepted, charge, answer, fault, headers)

    def _fail(self, exchange: Exchange, error: ErrorReply, headers: dict[str, str]) -> web.Response:
        return exchange.reply(
            error.status, error.body(exchange.request_id), headers | dict(error.headers), error.content_type
        )

    async def _speak(
        self,
        exchange: Exchange,
        accepted: Accepted,
        charge: Charge,
        answer: Answer,
        fault: Fault | None,
        headers: dict[str, str],
    ) -> web.StreamResponse:
        request = accepted.request
        spoken = speak(answer, request.conversation, request.max_tokens)
        usage = charge.usage + Usage(output_tokens=spoken.output_tokens)
        self._cache.read(charge)
        exchange.note(status=200, usage=usage, stop_reason=spoken.stop_reason, tool_use_ids=tuple(spoken.call_ids))
        if answer.delay_s:
            await asyncio.sleep(answer.delay_s)
        self._cache.begin(charge)
        return await deliver(
            exchange.http,
            message_of(spoken, usage, request),
            exchange.headers(headers),
            streamed=request.stream,
            fault=fault,
            ended=exchange.end,
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


class Door:
    """A port of the loopback that can be shut and opened again."""

    def __init__(self, server: MessagesServer, port: int) -> None:
        self._server = server
        self._port = port
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    async def open(self) -> None:
        """Listen; a port of 0 becomes the free one that was found, and stays it."""
        # The low-level server: no router and no middleware stand in the way of a benchmark.
        web_server = web.Server(self._server.handle, request_factory=_request_factory())
        runner = web.ServerRunner(web_server, shutdown_timeout=CANCEL_AFTER_SECONDS, access_log=None)
        await runner.setup()
        self._runner = runner
        await web.TCPSite(runner, HOST, self._port, reuse_address=True).start()
        self._port = runner.addresses[0][1]

    async def shut(self) -> None:
        """Stop listening and drop every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            await self._server.wait_idle()
            self._runner = None


def _request_factory() -> Callable[..., web.BaseRequest]:
    """Requests with room for the largest body that the API takes."""
    loop = asyncio.get_running_loop()

    def make(
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)

    return make


@contextlib.asynccontextmanager
async def listening(server: MessagesServer, port: int) -> AsyncIterator[Door]:
    """Serve on the loopback until left."""
    door = Door(server, port)
    try:
        await door.open()
        yield door
    finally:
        await door.shut()


async def serve(
    playbook: Playbook,
    *,
    clock: Clock,
    port: int = 0,
    journal_path: str | Path | None = None,
    limits: Limits | None = None,
    ready: Callable[[str], None] = print,
) -> None:
    """Serve in the foreground until SIGTERM or SIGINT; `ready` is called with the URL."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    injector = Injector(clock)
    for injection in playbook.injections():
        injector.add(injection)
    journal = Journal(journal_path, keep=False)
    try:
        server = MessagesServer(playbook, journal, injector, clock=clock, limits=limits)
        async with listening(server, port) as door:
            ready(door.url)
            await stop.wait()
    finally:
        journal.close()
