"""A collector that takes traces and forgets them: `python -m bench.otlp_sink`. Prints its port."""

from __future__ import annotations

import asyncio

from aiohttp import web

_LARGEST_BODY = 64 * 2**20


async def _take(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(content_type="application/x-protobuf")


async def _serve() -> None:
    app = web.Application(client_max_size=_LARGEST_BODY)
    app.router.add_post("/v1/traces", _take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
