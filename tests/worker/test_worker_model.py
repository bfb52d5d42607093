"""Whatever comes back from the API, or does not, becomes one value; no text of a key or a prompt is in it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate

import pytest

from paceline.core.answer import Answer
from paceline.core.endings import ErrorClass
from paceline.core.step import FailureKind, ModelCallFailed
from paceline.sim import Answer as Says
from paceline.sim import Fault, Request, Simulator
from paceline.worker.model import AnthropicModel

pytestmark = pytest.mark.anyio

KEY = "sk-ant-a-secret-of-ours"
PROMPT = "the secret name of the fox is Reynard"
BODY = json.dumps(
    {
        "model": "claude-sonnet-5-5",
        "messages": [{"role": "user", "content": [{"type": "text", "text": PROMPT}]}],
        "max_tokens": 100,
        "metadata": {"user_id": "run-1"},
    }
).encode()
ANY_SECONDS = 5.0


def fox(request: Request) -> Says:
    return Says(text="A fox it is.")


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    with Simulator(fox) as running:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        yield running


async def call(
    *, seconds: float = ANY_SECONDS, body: bytes = BODY, betas: Sequence[str] = ()
) -> Answer | ModelCallFailed:
    model = AnthropicModel(longest_seconds=ANY_SECONDS)
    try:
        came = await model.call(body, seconds=seconds, betas=betas)
    finally:
        await model.aclose()
    if isinstance(came, ModelCallFailed):
        assert KEY not in came.message
        assert PROMPT not in came.message
    return came


async def failure(*, seconds: float = ANY_SECONDS) -> ModelCallFailed:
    came = await call(seconds=seconds)
    assert isinstance(came, ModelCallFailed), came
    return came


async def test_betas_are_asked_for_in_the_header(simulator: Simulator) -> None:
    edited = json.dumps(json.loads(BODY) | {"context_management": {"edits": []}}).encode()
    assert isinstance(await call(body=edited, betas=["context-management-2025-06-27"]), Answer)
    refused = await call(body=edited)
    assert isinstance(refused, ModelCallFailed)
    assert "context_management: Extra inputs are not permitted" in refused.message


async def test_an_answer_is_kept_as_it_came(simulator: Simulator) -> None:
    came = await call()
    assert isinstance(came, Answer)
    assert (came.text, came.stop_reason, came.calls) == ("A fox it is.", "end_turn", ())
    assert came.fragment == b'{"role":"assistant","content":[{"type": "text", "text": "A fox it is."}]}'


NOTHING, KNOWN, POSSIBLE = "nothing", "known", "possible"


@pytest.mark.parametrize(
    ("fault", "bill"),
    [
        ("reset_before_read", POSSIBLE),
        ("reset_after_read", POSSIBLE),
        ("reset_in_body", POSSIBLE),
        ("short_body", POSSIBLE),
        ("empty_body", POSSIBLE),
        ("bad_json", POSSIBLE),
        ("html", POSSIBLE),
        ("missing_usage", POSSIBLE),
        ("null_content", KNOWN),
        ("server_error", NOTHING),
        ("bad_gateway", POSSIBLE),
        ("unavailable", POSSIBLE),
        ("gateway_timeout", POSSIBLE),
    ],
)
async def test_what_may_pass_is_tried_again_and_what_may_be_billed_is_told(
    simulator: Simulator, fault: str, bill: str
) -> None:
    simulator.inject(fault)
    came = await failure()
    assert (came.kind, came.retry_after_seconds) == (FailureKind.TRANSIENT, None)
    assert came.message
    assert (came.billed is not None, came.may_be_billed) == (bill == KNOWN, bill == POSSIBLE)
    assert isinstance(await call(), Answer)
    [faulty, *_] = simulator.journal
    assert not faulty.billed or bill in (KNOWN, POSSIBLE)
    if came.billed:
        assert came.billed.usage.total == faulty.usage.input_tokens + faulty.usage.output_tokens


async def test_nobody_at_the_address_may_pass(simulator: Simulator) -> None:
    with simulator.refusing_connections():
        came = await failure()
    assert (came.kind, came.may_be_billed) == (FailureKind.TRANSIENT, False)


@pytest.mark.parametrize("fault", [Fault("never_answers", seconds=30), Fault("trickle", seconds=30)])
async def test_a_call_ends_at_its_deadline(simulator: Simulator, fault: Fault) -> None:
    simulator.inject(fault)
    began = time.monotonic()
    came = await failure(seconds=0.3)
    assert time.monotonic() - began < 2
    assert (came.kind, came.message) == (FailureKind.TRANSIENT, "no answer within 0.3 s")
    assert came.may_be_billed


async def test_no_room_waits_as_long_as_the_api_says(simulator: Simulator) -> None:
    simulator.inject(Fault("rate_limited", retry_after=17))
    came = await failure()
    assert (came.kind, came.retry_after_seconds, came.blames) == (FailureKind.THROTTLED, 17.0, ErrorClass.QUOTA)
    assert "429 rate_limit_error" in came.message


async def test_no_room_may_name_a_date(simulator: Simulator) -> None:
    simulator.inject(Fault("rate_limited", retry_after=formatdate(time.time() + 90, usegmt=True)))
    assert (await failure()).retry_after_seconds == pytest.approx(89, abs=2)


@pytest.mark.parametrize("said", ["soon", "nan", "", "-1 or so"])
async def test_a_wait_that_cannot_be_read_is_ours_to_choose(simulator: Simulator, said: str) -> None:
    simulator.inject(Fault("rate_limited", retry_after=said))
    came = await failure()
    assert (came.kind, came.retry_after_seconds) == (FailureKind.THROTTLED, None)


@pytest.mark.parametrize("said", ["inf", "1e300", "99999999"])
async def test_no_wait_is_longer_than_a_day(simulator: Simulator, said: str) -> None:
    simulator.inject(Fault("rate_limited", retry_after=said))
    assert (await failure()).retry_after_seconds == 86_400.0


@pytest.mark.parametrize("said", ["-5", "0", "Sun, 06 Nov 1994 08:49:37 GMT"])
async def test_a_wait_that_is_over_is_none(simulator: Simulator, said: str) -> None:
    simulator.inject(Fault("rate_limited", retry_after=said))
    assert (await failure()).retry_after_seconds == 0.0


async def test_an_overloaded_api_is_given_room_at_our_own_pace(simulator: Simulator) -> None:
    simulator.inject("overloaded")
    came = await failure()
    assert (came.kind, came.retry_after_seconds) == (FailureKind.THROTTLED, None)
    assert came.message == "529 overloaded_error: Overloaded"


async def test_a_spending_cap_is_looked_at_every_few_minutes(simulator: Simulator) -> None:
    simulator.inject("spend_limit")
    came = await failure()
    assert (came.kind, came.retry_after_seconds, came.blames) == (FailureKind.THROTTLED, 300.0, ErrorClass.QUOTA)


async def test_a_revoked_key_is_the_operators_to_mend(simulator: Simulator) -> None:
    simulator.inject("revoked_key")
    came = await failure()
    assert (came.kind, came.blames) == (FailureKind.REFUSED, ErrorClass.INFRA)
    assert came.message.startswith("401 authentication_error")


async def test_without_a_key_a_worker_is_not_ready_and_says_which_variable_to_set(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("HOME", "/nowhere")
    came = await failure()
    assert came.kind is FailureKind.UNREADY
    assert "ANTHROPIC_API_KEY" in came.message


async def test_a_request_that_breaks_a_rule_is_refused_in_the_apis_words(simulator: Simulator) -> None:
    came = await call(body=BODY.replace(b'"role": "user"', b'"role": "assistant"'))
    assert isinstance(came, ModelCallFailed)
    assert (came.kind, came.blames) == (FailureKind.REFUSED, ErrorClass.INPUT)
    assert came.message.startswith("400 invalid_request_error: ")


async def test_a_request_that_does_not_fit_the_window_is_told_from_others_that_are_refused(
    simulator: Simulator,
) -> None:
    simulator.inject("prompt_too_long")
    came = await call()
    assert isinstance(came, ModelCallFailed)
    assert (came.kind, came.is_too_long) == (FailureKind.REFUSED, True)
    assert "prompt is too long: " in came.message


async def test_a_stop_reason_that_nobody_knows_is_passed_on(simulator: Simulator) -> None:
    body = answer_with(stop_reason="tired")
    async with answering(b"200 OK", b"content-type: application/json", body) as url:
        came = await call_at(url)
    assert isinstance(came, Answer)
    assert came.stop_reason == "tired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """What stands on the wire, and what is made of it."""

    status: bytes
    header: bytes = b"x-nothing: 1"
    body: bytes = b"{}"
    kind: FailureKind
    retry_after_seconds: float | None = None
    blames: ErrorClass | None = None


WIRE = {
    "a proxy's 413, not wrapped": Raw(
        status=b"413 Payload Too Large",
        body=b'{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}',
        kind=FailureKind.REFUSED,
        blames=ErrorClass.INPUT,
    ),
    "a compatible server's plain body": Raw(
        status=b"400 Bad Request", body=b'{"detail":"no"}', kind=FailureKind.REFUSED, blames=ErrorClass.INPUT
    ),
    "a model that is gone": Raw(status=b"404 Not Found", kind=FailureKind.REFUSED, blames=ErrorClass.INFRA),
    "milliseconds to wait": Raw(
        status=b"429 Too Many Requests",
        header=b"retry-after-ms: 1500",
        kind=FailureKind.THROTTLED,
        retry_after_seconds=1.5,
        blames=ErrorClass.QUOTA,
    ),
    "milliseconds that are none": Raw(
        status=b"429 Too Many Requests",
        header=b"retry-after-ms: \xc2\xb2",
        kind=FailureKind.THROTTLED,
        blames=ErrorClass.QUOTA,
    ),
    "a server that comes back at a known time": Raw(
        status=b"503 Service Unavailable",
        header=b"retry-after: 30",
        kind=FailureKind.TRANSIENT,
        retry_after_seconds=30.0,
    ),
    "a place elsewhere": Raw(status=b"307 Temporary Redirect", header=b"x-no-location: 1", kind=FailureKind.TRANSIENT),
    "a timeout of the server": Raw(status=b"408 Request Timeout", kind=FailureKind.TRANSIENT),
    "a success without content": Raw(status=b"204 No Content", body=b"", kind=FailureKind.TRANSIENT),
    "JSON without an end": Raw(status=b"200 OK", body=b"[" * 200_000, kind=FailureKind.TRANSIENT),
    "a list": Raw(status=b"200 OK", body=b"[]", kind=FailureKind.TRANSIENT),
    "bytes that are no text": Raw(status=b"200 OK", body=b"\xff\xfe", kind=FailureKind.TRANSIENT),
    "a body that is not what its header says": Raw(
        status=b"200 OK", header=b"content-encoding: gzip", body=b"not gzip", kind=FailureKind.TRANSIENT
    ),
}


@pytest.mark.parametrize("name", WIRE)
async def test_whatever_stands_on_the_wire_becomes_a_value(simulator: Simulator, name: str) -> None:
    raw = WIRE[name]
    async with answering(raw.status, raw.header, raw.body) as url:
        came = await call_at(url)
    assert isinstance(came, ModelCallFailed)
    assert (came.kind, came.retry_after_seconds, came.blames) == (raw.kind, raw.retry_after_seconds, raw.blames)
    assert came.may_be_billed is not raw.status.startswith(b"4")


async def call_at(url: str) -> Answer | ModelCallFailed:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_BASE_URL", url)
        return await call()


def answer_with(**fields: object) -> bytes:
    message = {
        "type": "message",
        "model": "claude-sonnet-5-5",
        "content": [{"type": "text", "text": "A fox."}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
        **fields,
    }
    return json.dumps(message).encode()


@asynccontextmanager
async def answering(status: bytes, header: bytes, body: bytes) -> AsyncIterator[str]:
    """A server that answers each request so, whatever it asks."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        length = b"content-length: %d\r\n" % len(body)
        writer.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\n" + header + b"\r\n" + length + b"\r\n" + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
