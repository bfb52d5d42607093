"""The simulator's rules, cache and faults as the model of a fleet in a box: in this process, in virtual time.

Only the socket is missing: what comes back passes the real client, which finds out what is wrong with it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import httpx2
from anthropic import APIConnectionError
from multidict import CIMultiDict
from support.sim_wire import HEADERS

from paceline.core.answer import Answer
from paceline.core.step import ModelCallFailed
from paceline.core.usage import Usage
from paceline.sim import Answer as Says
from paceline.sim import Fault, Request
from paceline.sim.api import Accepted, Api
from paceline.sim.cache import PromptCache
from paceline.sim.dialects import ANTHROPIC
from paceline.sim.faults import ON_PLAIN, Injection, Injector
from paceline.sim.mishaps import ErrorReply
from paceline.sim.playbook import Playbook
from paceline.sim.rules import Refusal
from paceline.sim.speaking import Failed, Said, Speaker
from paceline.worker.model import AnthropicModel
from paceline.worker.scripted_model import ModelRequest

ANSWER_SECONDS = 3.0
_ADDRESS = httpx2.Request("POST", "http://simulated/v1/messages")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What the model says to the next request, and what goes wrong with it."""

    says: Says
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """A request that the API bills, whatever the client gets to know of it."""

    model: str
    usage: Usage


class SimulatedModel(AnthropicModel):
    """A ModelClient for boxes, one after another: making a client is dear.

    `billed` and `refused` are the journal; `seconds` is what each call was given.
    """

    def __init__(self) -> None:
        super().__init__(longest_seconds=600.0)
        self.begin(iter(()), lambda: 0.0)

    def begin(self, lines: Iterator[Line], now_seconds: Callable[[], float]) -> None:
        """Say these lines to whoever asks from now on, as an API that remembers nothing."""
        self.billed: list[Billed] = []
        self.refused: list[str] = []
        self.seconds: list[float] = []
        self.requests: list[ModelRequest] = []
        self.failed = 0
        self._lines = lines
        self._now_seconds = now_seconds
        self._api, self._cache, self._injector = Api(clock=now_seconds), PromptCache(), Injector(now_seconds)
        self._next_says = Says(text="done")
        self._speaker = Speaker(Playbook(self._say), self._injector, self._cache, now_seconds, ANTHROPIC)

    async def call(self, body: bytes, *, seconds: float, betas: Sequence[str] = ()) -> Answer | ModelCallFailed:
        self.seconds.append(seconds)
        self.requests.append(ModelRequest(fields=json.loads(body), betas=betas))
        came = await super().call(body, seconds=seconds, betas=betas)
        if isinstance(came, Answer):
            return came
        self.failed += 1
        return replace(came, chance=0.0)  # the client's random number would make another run of the same plan

    async def _post(self, body: bytes, betas: Sequence[str]) -> bytes:
        began = self._now_seconds()
        judged = self._api.judge(CIMultiDict(HEADERS), body)
        if isinstance(judged, Refusal):
            self.refused.append(f"{judged.rule.name}: {judged.text}")
            raise self._error(ErrorReply(status=400))
        line = next(self._lines, Line(says=Says(text="done")))
        self._next_says = line.says
        self._injector.clear()
        if line.fault:
            self._injector.add(Injection(fault=Fault(line.fault)))
        return await self._answer(judged, began)

    async def _answer(self, judged: Accepted, began: float) -> bytes:
        charge = self._cache.charge(judged.prompt, judged.model, judged.scope, began)
        line = self._speaker.line(judged, ON_PLAIN)
        if isinstance(line, Failed):
            await asyncio.sleep(ANSWER_SECONDS)
            raise self._error(line.error)
        said = self._speaker.say(line, judged, charge)
        if line.fault is None or line.fault.is_billed:
            self._bill(judged, said)
        self._cache.begin(charge)
        await asyncio.sleep(ANSWER_SECONDS)
        return await _delivered(said, line.fault)

    def _say(self, request: Request) -> Says:
        return self._next_says

    def _bill(self, judged: Accepted, said: Said) -> None:
        used = said.usage
        usage = Usage(
            input=used.input_tokens,
            cache_read=used.cache_read_input_tokens,
            cache_write=used.cache_creation_input_tokens,
            output=used.output_tokens,
        )
        self.billed.append(Billed(model=judged.request.model, usage=usage))

    def _error(self, error: ErrorReply) -> Exception:
        content = b"<html>" if error.failure is None else ANTHROPIC.write(error.failure, "req_1")
        response = httpx2.Response(error.status, headers=dict(error.headers), content=content, request=_ADDRESS)
        return self._client._make_status_error_from_response(response)


async def _delivered(said: Said, fault: Fault | None) -> bytes:
    """The body as it reaches the client, if it does."""
    message, body = said.message, json.dumps(said.message).encode()
    match fault.name if fault else None:
        case "reset_after_read" | "reset_in_body" | "short_body":
            raise APIConnectionError(request=_ADDRESS)
        case "never_answers":
            await asyncio.sleep(3600)
            raise AssertionError("the client gave it an hour")
        case "bad_json":
            return body[: len(body) // 2]
        case "html":
            return b"<html>Welcome</html>"
        case "empty_body":
            return b""
        case "missing_usage":
            return json.dumps({name: value for name, value in message.items() if name != "usage"}).encode()
        case "null_content":
            return json.dumps({**message, "content": None}).encode()
        case _:
            return body
