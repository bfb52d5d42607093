"""A model that knows one conversation and answers after a latency: `python -m bench.model_server SECONDS`.

Prints its port. It checks nothing (the simulator does that): what it costs must not drown what is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys

from aiohttp import web

from .work import ANSWER, MODEL, TOOL_NAME, asked_for

_BYTES_PER_TOKEN = 8
"""More than in truth: a thousand turns are to fit the model's window, past which no call is made."""
_LARGEST_BODY = 64 * 2**20


class ModelServer:
    """Answers each request with the next message of its conversation."""

    def __init__(self, *, latency_seconds: float) -> None:
        self._latency_seconds = latency_seconds
        self._numbers = itertools.count()

    async def answer(self, request: web.Request) -> web.Response:
        """How far a conversation is shows in the number of answers it holds."""
        body = await request.read()
        if self._latency_seconds:
            await asyncio.sleep(self._latency_seconds)
        turns, calls = asked_for(body)
        is_last = body.count(b'"assistant"') + 1 >= turns
        message = _message(next(self._numbers), 0 if is_last else calls, input_tokens=len(body) // _BYTES_PER_TOKEN)
        return web.Response(body=json.dumps(message), content_type="application/json")


def _message(number: int, calls: int, *, input_tokens: int) -> dict[str, object]:
    content: list[dict[str, object]] = [{"type": "text", "text": ANSWER}]
    content += [
        {"type": "tool_use", "id": f"toolu_{number:08}{call:04}", "name": TOOL_NAME, "input": {"key": f"page {call}"}}
        for call in range(calls)
    ]
    return {
        "id": f"msg_{number:08}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": input_tokens, "output_tokens": 300},
    }


async def _serve(latency_seconds: float) -> None:
    app = web.Application(client_max_size=_LARGEST_BODY)
    app.router.add_post("/v1/messages", ModelServer(latency_seconds=latency_seconds).answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
