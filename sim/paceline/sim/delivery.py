"""The way back: an answer written to the client, or what a fault leaves of it."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from paceline.sim.faults import Fault
from paceline.sim.mishaps import HTML
from paceline.sim.stream import PING, event, events

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
_PING_EVERY_SECONDS = 0.1
_TRICKLE_STEPS = 20
_LOOK_EVERY_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer in the parts it is sent in. A plain answer has one part; `length` is what its header claims."""

    headers: Mapping[str, str]
    parts: Sequence[bytes]
    streamed: bool
    length: int | None = None


def is_connected(http: web.BaseRequest) -> bool:
    """Whether the client is still there."""
    return http.transport is not None and not http.transport.is_closing()


def reset(http: web.BaseRequest) -> web.Response:
    """Drop the connection as a crashed peer would, with RST; what is returned reaches nobody."""
    if http.transport is not None:
        connection = http.transport.get_extra_info("socket")
        if connection is not None:
            # Linger on with zero seconds: closing discards what is unsent and sends RST.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        http.transport.abort()
    return web.Response()


def reply_of(message: dict[str, Any], headers: Mapping[str, str], *, streamed: bool) -> Reply:
    """A message ready to send."""
    if streamed:
        return Reply(headers={**headers, "content-type": EVENTS}, parts=tuple(events(message)), streamed=True)
    body = json.dumps(message).encode()
    return Reply(headers={**headers, "content-type": JSON}, parts=(body,), streamed=False)


async def deliver(
    http: web.BaseRequest,
    message: dict[str, Any],
    headers: Mapping[str, str],
    *,
    streamed: bool,
    fault: Fault | None,
    ended: Callable[[bool], None],
) -> web.StreamResponse:
    """Send a message, or what the fault leaves of it. `ended` is told, just before the last byte goes out,
    whether the client gets all of it."""
    if fault is not None and fault.name in ("never_answers", "reset_after_read", "slow_first_byte"):
        if await _is_lost_before(http, fault):
            ended(False)
            return reset(http)
        fault = None
    reply = reply_of(_misshapen(message, fault), headers, streamed=streamed)
    if fault is None and not streamed:
        ended(is_connected(http))
        return web.Response(body=reply.parts[0], headers=reply.headers)
    return await _write(http, _broken(reply, fault), fault, ended)


async def _is_lost_before(http: web.BaseRequest, fault: Fault) -> bool:
    """Whether the connection is gone before the first byte."""
    match fault.name:
        case "never_answers":
            while is_connected(http):
                await asyncio.sleep(_LOOK_EVERY_SECONDS)
            return True
        case "slow_first_byte":
            await asyncio.sleep(fault.seconds)
            return False
        case _:
            return True


def _misshapen(message: dict[str, Any], fault: Fault | None) -> dict[str, Any]:
    match fault:
        case Fault(name="missing_usage"):
            return {name: value for name, value in message.items() if name != "usage"}
        case Fault(name="null_content"):
            return {**message, "content": None}
        case _:
            return message


def _broken(reply: Reply, fault: Fault | None) -> Reply:
    """The parts that a fault lets through, or puts in."""
    parts = tuple(reply.parts)
    half = len(parts) // 2
    match fault.name if fault else None:
        case "bad_json":
            return replace(reply, parts=(parts[0][: len(parts[0]) // 2],))
        case "html":
            page = HTML % (b"Welcome", b"Welcome")
            return replace(reply, parts=(page,), headers={**reply.headers, "content-type": "text/html"})
        case "empty_body":
            return replace(reply, parts=(b"",))
        case "short_body" | "reset_in_body" if not reply.streamed:
            return replace(reply, parts=(parts[0][: len(parts[0]) // 2],), length=len(parts[0]))
        case "trickle" if not reply.streamed:
            return replace(reply, parts=tuple(_slices(parts[0])), length=len(parts[0]))
        case "stream_cut" | "reset_in_body":
            return replace(reply, parts=parts[:half])
        case "stream_without_end":
            return replace(reply, parts=parts[:-1])
        case "stream_error":
            return replace(reply, parts=(*parts[:half], _mid_stream_error(reply.headers)))
        case "stream_unknown_event":
            return replace(reply, parts=(*parts[:half], event("content_weather", sky="clear"), *parts[half:]))
        case "stream_bad_data":
            bad = b'event: content_block_delta\ndata: {"type": "content_block_de\n\n'
            return replace(reply, parts=(*parts[:half], bad, *parts[half:]))
        case "stream_empty":
            return replace(reply, parts=())
        case _:
            return reply


def _slices(body: bytes) -> Iterator[bytes]:
    step = max(1, -(-len(body) // _TRICKLE_STEPS))
    for start in range(0, len(body), step):
        yield body[start : start + step]


def _mid_stream_error(headers: Mapping[str, str]) -> bytes:
    error = {"details": None, "type": "overloaded_error", "message": "Overloaded"}
    return event("error", error=error, request_id=headers.get("request-id"))


async def _write(
    http: web.BaseRequest, reply: Reply, fault: Fault | None, ended: Callable[[bool], None]
) -> web.StreamResponse:
    response = web.StreamResponse(headers=reply.headers)
    if not reply.streamed:
        response.content_length = sum(map(len, reply.parts)) if reply.length is None else reply.length
    is_whole = fault is None or fault.name in ("trickle", "stream_pings", "stream_unknown_event")
    try:
        await response.prepare(http)
        last = len(reply.parts) - 1
        async for index, part in _paced(reply.parts, fault):
            if index == last:
                ended(is_whole and is_connected(http))
            await response.write(part)
    except ConnectionError:
        ended(False)
        return response
    ended(False)
    return _end(http, response, fault)


async def _paced(parts: Sequence[bytes], fault: Fault | None) -> AsyncIterator[tuple[int, bytes]]:
    """The parts with their numbers, at the pace of the fault; pings have the number -1."""
    pause = fault.seconds / max(1, len(parts)) if fault and fault.name == "trickle" else 0.0
    for index, part in enumerate(parts):
        yield index, part
        if index == 0 and fault and fault.name == "stream_pings":
            for _ in range(max(1, int(fault.seconds / _PING_EVERY_SECONDS))):
                await asyncio.sleep(_PING_EVERY_SECONDS)
                yield -1, PING
        if pause:
            await asyncio.sleep(pause)


def _end(http: web.BaseRequest, response: web.StreamResponse, fault: Fault | None) -> web.StreamResponse:
    match fault.name if fault else None:
        case "reset_in_body":
            return reset(http)
        case "stream_cut" if http.transport is not None:
            # A chunk that claims 4 KB and breaks off after a few bytes.
            http.transport.write(b"1000\r\nevent: content_block_delta\nda")
            http.transport.close()
        case "short_body" if http.transport is not None:
            http.transport.close()
    return response
