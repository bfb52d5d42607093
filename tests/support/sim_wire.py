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

from paceline.sim.api import Accepted, Api
from paceline.sim.thinking import signed_content

HEADERS = {"authorization": "Bearer key", "anthropic-version": "2026-10-21", "content-type": "application/json"}
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
    url: str, method: str, path: str, headers: Mapping[str, str] | None = None, data: bytes | None = None
) -> Reply:
    """Send any request; without headers, with sound ones."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request(method, path, data, dict(HEADERS if headers is None else headers))
        response = connection.getresponse()
        return Reply(response.status, dict(response.getheaders()), json.loads(response.read()))
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


def signed(sends: object, *blocks: Mapping[str, object]) -> dict[str, object]:
    """The assistant message of these blocks that the simulator would answer a request with, its thinking signed."""
    judged = Api(clock=lambda: NOW).judge(CIMultiDict(HEADERS), json.dumps(sends).encode())
    assert isinstance(judged, Accepted), judged
    request = judged.request
    return assistant(*signed_content(blocks, request.model, judged.prompt.prefix, request.sent, "answer"))


def thought(words: str = "hm", **more: object) -> dict[str, object]:
    return {"type": "thinking", "thinking": words, **more}


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
