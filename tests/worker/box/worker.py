"""A worker of a fleet in a box: everything that makes one in production, but for Celery and the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from paceline.core.errors import InfrastructureError
from paceline.core.ids import Incarnation
from paceline.store.port import CallWritten, RunStore
from paceline.tools import NotRan, Registry, Tool, ToolContext, tool
from paceline.worker.call import run_call
from paceline.worker.call_result import RanCall
from paceline.worker.desk import Desk
from paceline.worker.join import join_turn
from paceline.worker.liveness import beat_forever
from paceline.worker.messages import JoinMessage, Message, TurnMessage
from paceline.worker.model import ModelClient
from paceline.worker.process import retire
from paceline.worker.record_clock import now_ms
from paceline.worker.settings import Settings
from paceline.worker.sweeper import Sweeper
from paceline.worker.telemetry.traced_store import traced
from paceline.worker.turn import take_turn

from .broker import Delivery, ToolCall

if TYPE_CHECKING:
    from .box import Box

SETTINGS = Settings(claim_seconds=30.0, sweep_seconds=5.0)
TOOL_SECONDS = 1.0


class Killed(BaseException):
    """This worker is no more. Not an Exception: nobody handles it."""


_here: ContextVar[Worker] = ContextVar("_here")
"""The worker whose task this is."""


async def _act(ctx: ToolContext) -> str:
    await _here.get().step("before a tool")
    await asyncio.sleep(TOOL_SECONDS)
    await _here.get().step("after a tool")
    return f"done {ctx.call_id}"


async def look(ctx: ToolContext) -> str:
    """Look, at once."""
    return await _act(ctx)


async def fetch(ctx: ToolContext) -> str:
    """Fetch."""
    return await _act(ctx)


async def put(ctx: ToolContext) -> str:
    """Put."""
    return await _act(ctx)


async def charge(ctx: ToolContext) -> str:
    """Charge."""
    _here.get().box.charges.append(ctx.idempotency_key)
    return await _act(ctx)


async def pay(ctx: ToolContext) -> str:
    """Pay, if a person approves it."""
    return await charge(ctx)


async def bill(ctx: ToolContext) -> str:
    """Bill; whether it was done can be found out."""
    return await charge(ctx)


async def _find_bill(ctx: ToolContext) -> str | NotRan:
    await _here.get().step("before a reconcile")
    return f"done {ctx.call_id}" if ctx.idempotency_key in _here.get().box.charges else NotRan()


def at_its_path(made: Tool) -> Tool:
    """A tool as workers of the box have it: by a path of its own."""
    return replace(made, spec=replace(made.spec, path=f"box:{made.spec.name}"))


TOOLS = (
    at_its_path(tool(effect="reads", placement="inline")(look)),
    at_its_path(tool(effect="reads")(fetch)),
    at_its_path(tool(effect="idempotent")(put)),
    at_its_path(tool(effect="once")(charge)),
    at_its_path(tool(effect="once", approval="always")(pay)),
    at_its_path(tool(effect="once", reconcile=_find_bill)(bill)),
)
"""A tool of each kind."""


class Port:
    """A port as one worker has it: each call through it is a step before it is made, and one after."""

    def __init__(self, real: object, worker: Worker, name: str) -> None:
        self._real, self._worker, self._name = real, worker, name

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method, what = getattr(self._real, verb), f"{self._name}.{verb}"

        async def call(*args: object, **options: object) -> object:
            await self._worker.step(f"before {what}", reaches_record=self._name == "store")
            answer = await method(*args, **options)
            await self._worker.step(f"after {what}", reaches_record=self._name == "store")
            return answer

        return call


class SteppingDesk(Desk):
    """A desk whose worker takes a step before it sends, and one after."""

    step: Callable[[str], Coroutine[Any, Any, None]]

    async def send(self, messages: Sequence[Message]) -> None:
        if messages:
            await self.step("before a send")
            await super().send(messages)
            await self.step("after a send")


class Worker:
    """A worker process: what is left of one are the tasks that take and carry out messages, beat and sweep."""

    def __init__(self, box: Box, number: int) -> None:
        self.box = box
        self.is_dead = False
        self.wakes_at = 0.0
        self.stopping: asyncio.Future[None] | None = None
        self.desk = SteppingDesk(
            settings=SETTINGS,
            store=self._store(),
            model=cast(ModelClient, Port(box.model, self, "model")),
            registry=Registry(),
            built_in={made.spec.path: made for made in box.tools},
            incarnation=Incarnation(f"worker-{number}"),
            send=self._send,
        )
        self.desk.step = self.step
        self._unacknowledged: set[Delivery] = set()
        sweeper = Sweeper(desk=self.desk, empty_queues=box.broker.empty_queues)
        self.desk.background.append(self._start(lambda: beat_forever(self.desk)))
        self.desk.background.append(self._start(sweeper.sweep_forever))
        self.working: set[asyncio.Future[None]] = set()
        self.taking = self._start(self._take_messages)

    def _store(self) -> RunStore:
        store, tracer = cast(RunStore, Port(self.box.store, self, "store")), self.box.tracer
        return traced(store, tracer, now_ms=now_ms) if tracer else store

    async def step(self, what: str, *, reaches_record: bool = False) -> None:
        """Everything a worker does to the outside passes here, and whatever happens to workers happens here."""
        await self._wake()
        if self.is_dead:
            raise Killed
        await self.box.strike(self, what)
        await self._wake()
        if reaches_record and asyncio.get_running_loop().time() < self.box.record_returns_at:
            raise InfrastructureError("the record cannot be reached")

    async def _wake(self) -> None:
        while self.wakes_at > (now := asyncio.get_running_loop().time()):
            await asyncio.sleep(self.wakes_at - now)

    def die(self) -> None:
        """As on SIGKILL: whatever it does next, it does not."""
        self.is_dead = True
        self.taking.cancel()
        for delivery in self._unacknowledged:
            self.box.broker.deliver_again(delivery)

    async def stop(self) -> None:
        """As on SIGTERM with no grace: nothing more is taken, what is under way is given back, then it is gone."""
        self.taking.cancel()
        self.desk.in_flight.cut_tasks()
        await asyncio.gather(*self.working, return_exceptions=True)
        with suppress(Killed):
            await retire(self.desk)
        self.is_dead = True

    def end(self) -> list[asyncio.Future[None]]:
        """Let no task of this worker outlive the box; answers with those that are ending."""
        self.is_dead = True
        tasks = [*self.desk.background, *self.working, self.taking, *([self.stopping] if self.stopping else [])]
        for task in tasks:
            task.cancel()
        return tasks

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Future[None]:
        async def until_death() -> None:
            _here.set(self)
            with suppress(Killed):
                await work()

        return asyncio.ensure_future(until_death())

    async def _take_messages(self) -> None:
        while True:
            delivery = await self.box.broker.next()
            self._unacknowledged.add(delivery)
            self.desk.in_flight.note_delivery(delivery.queue, delivery.sent_ms)
            task = self._start(partial(self._handle, delivery))
            self.working.add(task)
            task.add_done_callback(self.working.discard)
            await asyncio.sleep(0)

    async def _handle(self, delivery: Delivery) -> None:
        await self._carry_out(delivery)
        await self.step("before an acknowledgement")
        self._unacknowledged.discard(delivery)
        await self.step("after an acknowledgement")

    async def _carry_out(self, delivery: Delivery) -> None:
        match delivery.envelope:
            case TurnMessage(run_id=run_id, turn=turn):
                await self._task(take_turn(self.desk, run_id, turn))
            case JoinMessage(run_id=run_id, turn=turn):
                await self._task(join_turn(self.desk, run_id, turn))
            case ToolCall(run_id=run_id, turn=turn, call_id=call_id):
                ran = await self._task(run_call(self.desk, run_id, turn, call_id))
                if isinstance(ran, RanCall) and ran.written is CallWritten.LAST:
                    await self.desk.send([JoinMessage(run_id=run_id, turn=turn)])

    async def _task(self, work: Coroutine[Any, Any, Sequence[Message] | RanCall]) -> Sequence[Message] | RanCall:
        """As the Celery task around it: what it answers with is sent; what it raises is on record, and forgotten."""
        try:
            done = await work
        except Exception as error:
            self.box.raised.append(error)
            return ()
        await self.desk.send(done.messages if isinstance(done, RanCall) else done)
        return done

    def _send(self, messages: Sequence[Message]) -> None:
        if self.is_dead:
            raise Killed
        self.box.broker.send(messages)
