"""The HTTP side: one handler for every path, each request answered, journaled, and never in one's way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiohttp import web

from paceline.sim.answer import Answer, Spoken, make_id, speak
from paceline.sim.api import MAX_BODY_BYTES, Accepted, Api
from paceline.sim.journal import Entry, Journal, Usage
from paceline.sim.playbook import Playbook
from paceline.sim.rules import Refusal, Rule, error_body, refusal_body, refuse

Clock = Callable[[], float]
HOST = "127.0.0.1"
MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"
ORGANIZATION = "00000000-0000-4000-8000-000000000001"


@dataclass(slots=True)
class Exchange:
    """One request on its way to an answer. `entry` is what the journal will say of it."""

    http: web.BaseRequest
    entry: Entry

    @property
    def request_id(self) -> str:
        return self.entry.request_id

    def note(self, **changes: Any) -> None:
        self.entry = replace(self.entry, **changes)

    def reply(self, status: int, body: bytes) -> web.Response:
        headers = {
            "request-id": self.request_id,
            "anthropic-organization-id": ORGANIZATION,
            "content-type": "application/json",
        }
        return web.Response(status=status, body=body, headers=headers)


class MessagesServer:
    """Answers requests as the API would, with what the playbook says."""

    def __init__(self, playbook: Playbook, journal: Journal, *, keys: Collection[str] | None, clock: Clock) -> None:
        self._playbook = playbook
        self._journal = journal
        self._api = Api(keys)
        self._clock = clock
        self._count = 0
        self._started = int(clock() * 1000)

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        if http.path == "/health":
            return web.json_response({"status": "ok"})
        exchange = Exchange(http, self._entry(http))
        try:
            return await self._answer(exchange)
        finally:
            exchange.note(latency_s=round(self._clock() - exchange.entry.time, 6))
            self._journal.write(exchange.entry)

    def _entry(self, http: web.BaseRequest) -> Entry:
        self._count += 1
        request_id = f"req_011{self._started:013x}{self._count:08x}"
        return Entry(time=self._clock(), request_id=request_id, verdict="refused", status=None, path=http.path)

    async def _answer(self, exchange: Exchange) -> web.StreamResponse:
        http = exchange.http
        if http.method != "POST" or http.path not in (MESSAGES, COUNT_TOKENS):
            exchange.note(status=404, reason="no such path")
            return exchange.reply(404, error_body("not_found_error", "Not found", exchange.request_id))
        counting = http.path == COUNT_TOKENS
        try:
            data = await http.read()
        except web.HTTPRequestEntityTooLarge:
            return self._refuse(exchange, refuse(Rule.TOO_LARGE))
        judged = self._api.judge(http.headers, data, counting=counting)
        if isinstance(judged, Refusal):
            return self._refuse(exchange, judged)
        if counting:
            exchange.note(verdict="accepted", status=200)
            return exchange.reply(200, json.dumps({"input_tokens": judged.prompt_tokens}).encode())
        return await self._speak(exchange, judged)

    def _refuse(self, exchange: Exchange, refusal: Refusal) -> web.Response:
        rule = refusal.rule
        exchange.note(verdict="refused", status=rule.status, rule=rule.number, reason=refusal.text)
        return exchange.reply(rule.status, refusal_body(refusal, exchange.request_id))

    async def _speak(self, exchange: Exchange, accepted: Accepted) -> web.StreamResponse:
        request = accepted.request
        exchange.note(
            model=request.model,
            run=request.run,
            messages=len(request.sent),
            turn=request.turn,
            message_hashes=tuple(message.digest for message in request.sent),
            prefix_sha256=accepted.prefix.sha256,
            tool_result_ids=tuple(result.call_id for result in request.tool_results),
        )
        answer = self._playbook.answer(request)
        if answer is None:
            last = request.sent[-1].role
            return self._refuse(
                exchange, refuse(Rule.NO_PLAYBOOK_RULE, turn=request.turn, model=request.model, last=last)
            )
        return await self._send(exchange, accepted, answer)

    async def _send(self, exchange: Exchange, accepted: Accepted, answer: Answer) -> web.StreamResponse:
        request = accepted.request
        spoken = speak(answer, request.conversation, request.max_tokens)
        usage = Usage(input_tokens=accepted.prompt_tokens, output_tokens=spoken.output_tokens)
        exchange.note(
            verdict="accepted",
            status=200,
            billed=True,
            usage=usage,
            stop_reason=spoken.stop_reason,
            tool_use_ids=tuple(spoken.call_ids),
        )
        if answer.delay_s:
            await asyncio.sleep(answer.delay_s)
        body = json.dumps(message_of(spoken, usage, request.model, request.conversation)).encode()
        return exchange.reply(200, body)


def message_of(spoken: Spoken, usage: Usage, model: str, conversation: str) -> dict[str, Any]:
    """The message as the API writes it."""
    return {
        "id": make_id("msg_01", conversation),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": spoken.content,
        "stop_reason": spoken.stop_reason,
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        "usage": usage_of(usage),
    }


def usage_of(usage: Usage) -> dict[str, Any]:
    """Usage as the API writes it."""
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_creation_5m_tokens,
            "ephemeral_1h_input_tokens": usage.cache_creation_1h_tokens,
        },
        "output_tokens": usage.output_tokens,
        "server_tool_use": None,
        "service_tier": "standard",
        "inference_geo": "not_available",
        "speed": "standard",
    }


@contextlib.asynccontextmanager
async def listening(server: MessagesServer, port: int) -> AsyncIterator[str]:
    """Serve on the loopback; the value is the server's URL."""
    # The low-level server: no router and no middleware stand in the way of a benchmark.
    runner = web.ServerRunner(web.Server(server.handle, client_max_size=MAX_BODY_BYTES), shutdown_timeout=0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        await site.start()
        yield f"http://{HOST}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def serve(
    playbook: Playbook,
    *,
    port: int = 0,
    journal_path: str | Path | None = None,
    ready: Callable[[str], None] = print,
    clock: Clock,
) -> None:
    """Serve in the foreground until SIGTERM or SIGINT; `ready` is called with the URL."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    journal = Journal(journal_path, keep=False)
    try:
        async with listening(MessagesServer(playbook, journal, keys=None, clock=clock), port) as url:
            ready(url)
            await stop.wait()
    finally:
        journal.close()
