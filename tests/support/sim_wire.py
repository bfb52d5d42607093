"""Requests written by hand, for what the official client will not send."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from multidict import CIMultiDict

from paceline.sim import Simulator
from paceline.sim.api import Accepted, Api
from paceline.sim.rules import Rule
from paceline.sim.thinking import signed_content

HEADERS = {"authorization": "Bearer key", "anthropic-version": "2026-10-21", "content-type": "application/json"}
# Numbers of the rules about thinking, server tools, schemas and models, and of those about batches.
LATER_RULES = {33, 34, 35, 36, 37, 44, 49, 50, 52, 54, 61, 62}
BATCH_RULES = {63, 64, 65}
# The 15th of November 2026: no model of the tests has retired.
NOW = 1_794_700_800.0
TOOL = {"name": "look", "input_schema": {"type": "object"}}


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def text(self) -> str:
        return str(self.body["error"]["message"])


def post(url: str, body: object, headers: Mapping[str, str] | None = None, path: str = "/v1/messages") -> Reply:
    """Send a body, as JSON unless it is bytes; without headers, with sound ones."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ask(url, "POST", path, headers, data)


def ask(
    url: str,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    data: bytes | None = None,
    *,
    parses: bool = True,
) -> Reply:
    """Send any request; without headers, with sound ones. The body is bytes unless `parses`."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request(method, path, data, dict(HEADERS if headers is None else headers))
        response = connection.getresponse()
        received = response.read()
        return Reply(response.status, dict(response.getheaders()), json.loads(received) if parses else received)
    finally:
        connection.close()


def text(words: str, **more: object) -> dict[str, object]:
    return {"type": "text", "text": words, **more}


def call(call_id: str, tool: str = "look", **more: object) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": {}, **more}


def result(call_id: str, content: object = "seen", **more: object) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def user(*blocks: object) -> dict[str, object]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: object) -> dict[str, object]:
    return {"role": "assistant", "content": list(blocks)}


HELLO = {"role": "user", "content": "hello"}


def body(*messages: object, **fields: object) -> dict[str, object]:
    """A sound request with these messages; a field that is None is left out."""
    whole: dict[str, object] = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 100,
        "messages": list(messages) or [HELLO],
        "tools": [TOOL],
        **fields,
    }
    return {name: value for name, value in whole.items() if value is not None}


def signed(sends: object, *blocks: Mapping[str, Any]) -> dict[str, object]:
    """The assistant message of these blocks that the simulator would answer a request with, its thinking signed."""
    judged = Api(clock=lambda: NOW).judge(CIMultiDict(HEADERS), json.dumps(sends).encode())
    assert isinstance(judged, Accepted), judged
    request = judged.request
    return assistant(*signed_content(blocks, request.model, judged.prompt.prefix, request.sent, "answer"))


def thought(words: str = "hm", **more: object) -> dict[str, object]:
    return {"type": "thinking", "thinking": words, **more}


@dataclass(frozen=True)
class Break:
    """A request that breaks `rule`, and the text it must be refused with (or how that begins, with `...`)."""

    rule: Rule
    says: str
    sends: object = None
    headers: Mapping[str, str] | None = None


def assert_refused(simulator: Simulator, case: Break) -> None:
    """The simulator refuses it as the table says, and the journal tells it."""
    reply = post(simulator.url, body() if case.sends is None else case.sends, case.headers)
    assert reply.status == case.rule.status, reply.body
    start, cut, _ = case.says.partition("...")
    assert reply.text.startswith(start) if cut else reply.text == case.says
    assert reply.body["error"]["type"] == case.rule.error_type
    entry = simulator.journal.entries[-1]
    assert (entry.verdict, entry.rule, entry.reason) == ("refused", case.rule.number, reply.text)
    assert entry.request_id == reply.headers["request-id"]
    assert not entry.billed


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait for another thread; fails with what should have happened."""
    end = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < end, f"should have happened: {what}"
        time.sleep(0.005)


@contextmanager
def sent(url: str, sends: object, *, missing: int = 0) -> Iterator[None]:
    """A connection on which a request was sent, but for its last `missing` bytes; nobody reads the answer."""
    data = json.dumps(sends).encode()
    address = urlsplit(url)
    lines = [f"{name}: {value}" for name, value in {**HEADERS, "host": "x", "content-length": len(data)}.items()]
    whole = "\r\n".join(["POST /v1/messages HTTP/1.1", *lines, "", ""]).encode() + data
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(whole[: len(whole) - missing])
        yield
