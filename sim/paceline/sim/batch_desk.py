"""The Message Batches API over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from aiohttp import web

from paceline.sim.answer import make_id
from paceline.sim.api import Api, Asked
from paceline.sim.batch_body import Item, batch_refusals, items_of, read_batch
from paceline.sim.batch_work import BatchWork
from paceline.sim.batches import Batch, BatchPlan, BatchShelf
from paceline.sim.delivery import reset
from paceline.sim.exchange import Exchange
from paceline.sim.faults import ON_BATCH, ON_RESULTS, Injector
from paceline.sim.mishaps import api_error
from paceline.sim.paging import page
from paceline.sim.rules import Refusal

_JSON_LINES = "application/x-jsonl"


class BatchDesk:
    """Takes batches, tells how they stand, and hands out their results."""

    def __init__(
        self, api: Api, work: BatchWork, injector: Injector, plan: BatchPlan, clock: Callable[[], float]
    ) -> None:
        self._api = api
        self._work = work
        self._injector = injector
        self._plan = plan
        self._clock = clock
        self._shelf = BatchShelf(plan)
        self._count = 0

    async def answer(self, exchange: Exchange, asked: Asked, parts: Sequence[str]) -> web.Response | None:
        """Answer a request whose path goes on with `parts` after `/v1/messages/batches`; None for an unknown one."""
        match exchange.http.method, *parts:
            case ("POST",):
                return await self._create(exchange, asked)
            case ("GET",):
                return self._list(exchange, asked)
            case method, batch_id, *action:
                batch = self._shelf.find(batch_id, asked.workspace)
                if isinstance(batch, Refusal):
                    return exchange.refuse(batch)
                return self._of_one(exchange, batch, (method, *action))
        return None

    def _of_one(self, exchange: Exchange, batch: Batch, wanted: tuple[str, ...]) -> web.Response | None:
        match wanted:
            case ("GET",):
                return self._tell(exchange, batch)
            case ("GET", "results"):
                return self._results(exchange, batch)
            case ("POST", "cancel"):
                return self._cancel(exchange, batch)
            case ("DELETE",):
                return self._delete(exchange, batch)
        return None

    async def _create(self, exchange: Exchange, asked: Asked) -> web.Response:
        data = await exchange.read()
        read = data if isinstance(data, Refusal) else read_batch(data)
        if isinstance(read, Refusal):
            return exchange.refuse(read)
        refusal = self._api.first(batch_refusals(read))
        if refusal is not None:
            return exchange.refuse(refusal)
        return self._take(exchange, asked, items_of(read))

    def _take(self, exchange: Exchange, asked: Asked, items: Sequence[Item]) -> web.Response:
        now = self._clock()
        self._count += 1
        batch_id = make_id("msgbatch_01", now, self._count)
        tasks = [
            self._work.task(item, asked, batch_id, number, self._plan.seconds) for number, item in enumerate(items)
        ]
        fault = self._injector.strike(None, ON_BATCH)
        batch = self._shelf.add(batch_id, asked.workspace, tasks, now, fault.name if fault else None)
        if fault is not None and fault.name == "batch_lost":
            exchange.note(verdict="fault", fault=fault.name, status=200)
            exchange.end(delivered=False)
            return reset(exchange.http)
        told = batch.written("in_progress", now, _base_url(exchange))
        return _reply(exchange, told, fault.name if fault else None)

    def _list(self, exchange: Exchange, asked: Asked) -> web.Response:
        now, base = self._clock(), _base_url(exchange)
        rows = [batch.written(batch.settle(now), now, base) for batch in self._shelf.all_of(asked.workspace)]
        listed = page(rows, exchange.http.query)
        return exchange.refuse(listed) if isinstance(listed, Refusal) else _reply(exchange, listed)

    def _tell(self, exchange: Exchange, batch: Batch) -> web.Response:
        now = self._clock()
        return _reply(exchange, batch.written(batch.settle(now), now, _base_url(exchange)))

    def _results(self, exchange: Exchange, batch: Batch) -> web.Response:
        fault = self._injector.strike(None, ON_RESULTS)
        if fault is not None:
            exchange.note(verdict="fault", fault=fault.name)
            return exchange.fail(api_error(500, "api_error", "Internal server error"))
        refusal = batch.results_refusal(self._clock())
        if refusal is not None:
            return exchange.refuse(refusal)
        exchange.note(verdict="accepted")
        return exchange.reply(200, batch.lines(), content_type=_JSON_LINES)

    def _cancel(self, exchange: Exchange, batch: Batch) -> web.Response:
        now = self._clock()
        refusal = self._shelf.cancel(batch, now)
        if refusal is not None:
            return exchange.refuse(refusal)
        return _reply(exchange, batch.written("canceling", now, _base_url(exchange)))

    def _delete(self, exchange: Exchange, batch: Batch) -> web.Response:
        refusal = self._shelf.delete(batch, self._clock())
        if refusal is not None:
            return exchange.refuse(refusal)
        return _reply(exchange, {"id": batch.id, "type": "message_batch_deleted"})


def _reply(exchange: Exchange, answer: object, fault: str | None = None) -> web.Response:
    exchange.note(verdict="accepted" if fault is None else "fault", fault=fault)
    return exchange.reply(200, json.dumps(answer).encode())


def _base_url(exchange: Exchange) -> str:
    return f"{exchange.http.scheme}://{exchange.http.host}"
