"""A whole fleet in one thread: real turns, calls, joins, beats and sweeps over the record in memory, in virtual time.

Every call that a worker makes to the outside (record, model, broker, tool) is a step with a number, once before it is
made and once after. A `Plan` says at which steps fate strikes, and how. Nothing is left to chance, so what failed once
fails again.

    over = play_out(PLAYS["once"], Plan(strikes={17: Strike.KILL}))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

from support.runs import BATCH, a_row

from paceline.core.agent import Agent
from paceline.core.ids import RunId, batch_tag, idempotency_key, tag_of
from paceline.core.ledger import EffectRuledOut, Entry, Source
from paceline.core.metrics import Counts
from paceline.core.run import Run
from paceline.core.step import ModelCallFailed
from paceline.core.transcript import Fragment
from paceline.core.unknown_effect import OnUnknownEffect
from paceline.core.wire import Queue
from paceline.producer.approvals import Approve, Deny, decided, told_to_model
from paceline.producer.redrive import redrive_run
from paceline.store.memory import MemoryRunStore
from paceline.store.port import BatchCounts, CallState, NewRun, OpenCall, RunRecord
from paceline.tools import Tool, ToolResult
from paceline.worker.call_result import call_result
from paceline.worker.messages import TurnMessage
from paceline.worker.model import ModelClient
from paceline.worker.scripted_model import ModelRequest, Reply, ScriptedModel
from paceline.worker.telemetry.tracer import Tracer

from .broker import Broker
from .plan import Plan, Strike
from .virtual_time import run_in_virtual_time
from .worker import SETTINGS, TOOLS, Killed, Worker

FROZEN_SECONDS = 42.0
"""As long as it takes to give a worker up: whoever was frozen wakes up while another has its turn."""
OUTAGE_SECONDS = 60.0
LONGEST_SECONDS = 3600.0
_LOOK_SECONDS = 0.5
_SETTLING_SECONDS = 15.0
"""Longer than sweepers wait for each other when the record is back, and a sweep."""
MODEL_SECONDS = 7.0
"""Longer than the time between two beats, in which a cancelled run's call is cut."""

Play = Callable[[ModelRequest, int], Reply]
"""What the model says to a request, of whose turn it has seen so many before."""

EPOCH_MS = 1_800_000_000_000
"""The record's time, less that of the loop."""
ROW = a_row()


AGENT = Agent(
    name="boxer",
    model="claude-sonnet-5-5",
    tools=tuple(each.spec for each in TOOLS),
    on_unknown_effect=OnUnknownEffect.TELL,
)
"""Tells the model of a call that may have taken effect: its runs wait for nobody."""
STOPPING = replace(AGENT, on_unknown_effect=OnUnknownEffect.STOP)
"""Fails rather than wait."""
WAITING = replace(AGENT, on_unknown_effect=OnUnknownEffect.WAIT)
"""Awaits the decision of a person, who knows what has taken effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """How a run ended, and what there is to tell of it."""

    agent: Agent
    record: RunRecord
    transcript: tuple[Fragment, ...]
    ledger: tuple[Entry, ...]
    counts: BatchCounts
    metrics: Counts
    requests: tuple[ModelRequest, ...]
    failed_calls: int
    calls_after_cancel: int
    """Model calls that began after somebody had cancelled the run."""
    messages: int
    """Sent through the broker until the end."""
    charges: tuple[str, ...]
    """The idempotency keys that the `once` tool was called with."""
    raised: tuple[Exception, ...]
    """What came out of Celery tasks."""
    due_later: tuple[RunId, ...]
    """Runs that a sweeper would look at, long after the end."""
    seconds: float
    """From the submission to the end."""
    steps: tuple[str, ...]
    """What was done until then; step n of a plan is the n-th of these."""


class BoxModel(ModelClient, Protocol):
    """A ModelClient that keeps what was asked of it."""

    requests: list[ModelRequest]


class Box:
    """One run, two workers, and what may happen to them. `budget` is the batch's, in nano-dollars."""

    def __init__(
        self,
        play: Play,
        plan: Plan,
        agent: Agent,
        tools: Sequence[Tool] = TOOLS,
        tracer: Tracer | None = None,
        *,
        budget: int | None = None,
        model: BoxModel | None = None,
    ) -> None:
        self._agent = agent
        self._budget = budget
        self.tools = tools
        self.tracer = tracer
        self._plan = plan
        self._redrives_left = plan.redrives
        self._denials = iter(plan.denials)
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._workers: list[Worker] = []
        self.store = MemoryRunStore(self._now_ms, claim_seconds=SETTINGS.claim_seconds)
        self.broker = Broker(plan.fates, self._now_ms)
        self.model = model or ScriptedModel(self._answer)
        self._play = play
        self._failed_calls = self._calls_at_cancel = 0
        self.charges: list[str] = []
        self.raised: list[Exception] = []
        self.steps: list[str] = []
        self.record_returns_at = 0.0

    async def play_out(self) -> Over:
        """Submit the run, wait until it is over, and look whether anything still changes then."""
        began = self._loop.time()
        await self._submit([ROW])
        run_id = ROW.run_id
        for _ in range(2):
            self._start_worker()
        while not await self._is_over(run_id) or await self._goes_on(run_id):
            await asyncio.sleep(_LOOK_SECONDS)
            await self._decide(run_id)
            assert self._loop.time() - began < LONGEST_SECONDS, await self._stuck(run_id)
        seconds, steps = self._loop.time() - began, tuple(self.steps)
        await self._settle()
        await self._end()
        return await self._over(run_id, seconds, steps)

    async def _settle(self) -> None:
        """Give everybody the time to do what they might still do; the record may go away even now."""
        settled_at = self._loop.time() + (FROZEN_SECONDS if Strike.FREEZE in self._plan.strikes.values() else 0.0)
        while self._loop.time() < max(settled_at, self.record_returns_at) + _SETTLING_SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)

    async def strike(self, worker: Worker, what: str) -> None:
        """Take a step, and whatever fate has in store for it."""
        self.steps.append(what)
        match self._plan.strikes.get(len(self.steps)):
            case Strike.KILL:
                worker.die()
                self._start_worker()
                raise Killed
            case Strike.FREEZE:
                worker.wakes_at = self._loop.time() + FROZEN_SECONDS
            case Strike.OUTAGE:
                self.record_returns_at = self._loop.time() + OUTAGE_SECONDS
            case Strike.STOP:
                worker.stopping = asyncio.ensure_future(worker.stop())
                self._start_worker()
                await asyncio.sleep(0.001)
            case Strike.CANCEL:
                self._calls_at_cancel = len(self.model.requests)
                await self.store.cancel(ROW.run_id)
            case None:
                pass

    def _start_worker(self) -> None:
        self._workers.append(Worker(self, next(self._numbers)))

    def _now_ms(self) -> int:
        return EPOCH_MS + round(self._loop.time() * 1000)

    async def _submit(self, rows: Sequence[NewRun]) -> None:
        await self.store.put_agent(self._agent.digest, self._agent.freeze())
        has_budget = self._budget is not None
        batch = await self.store.open_batch(replace(BATCH, agent=self._agent.digest, has_budget=has_budget))
        if self._budget is not None:
            await self.store.set_budget(batch_tag(BATCH.name), self._budget)
        await self.store.submit(batch, rows)
        self.broker.send([TurnMessage(run_id=row.run_id, turn=1, queue=Queue.STARTS) for row in rows])

    async def _answer(self, request: ModelRequest) -> Reply:
        seen = sum(earlier.messages == request.messages for earlier in self.model.requests) - 1
        await asyncio.sleep(MODEL_SECONDS)
        reply = self._play(request, seen)
        self._failed_calls += isinstance(reply, ModelCallFailed)
        return reply

    async def _is_over(self, run_id: RunId) -> bool:
        record = await self.store.run(run_id)
        return record is not None and record.run.state.is_terminal

    async def _goes_on(self, run_id: RunId) -> bool:
        """As a person has it who looks at runs that came to nothing."""
        if not self._redrives_left or not await redrive_run(self.store, run_id):
            return False
        self._redrives_left -= 1
        return True

    async def _decide(self, run_id: RunId) -> None:
        """As a person does who looks whether there was a charge, and says yes or no to those that are asked for."""
        record = await self.store.run(run_id)
        assert record is not None
        for state in await self.store.open_call_states(run_id):
            if state.awaits_person and self._agent.on_unknown_effect is OnUnknownEffect.WAIT:
                await self._resolve(record.run, state.call)
            if state.awaits_approval and self._plan.decides:
                await self._rule(record.run, state)

    async def _resolve(self, run: Run, call: OpenCall) -> None:
        if idempotency_key(run.run_id, run.turn, call.call_id) in self.charges:
            done = ToolResult(content=f"done {call.call_id}", is_error=False, chars=0)
            result = call_result(run.turn, call, done, attempt=1, took_ms=0, worker="", source=Source.PERSON)
            await self.store.resolve(run.run_id, call.call_id, result)
        else:
            entry = EffectRuledOut(turn=run.turn, call=call.call_id, tool=call.tool, at_ms=0, source=Source.PERSON)
            await self.store.resolve(run.run_id, call.call_id, entry)

    async def _rule(self, run: Run, state: CallState) -> None:
        verdict = Deny("too much") if next(self._denials, False) else Approve()
        told = told_to_model(verdict, run, self._agent, state, now_ms=0)
        entry = decided(verdict, run, state, now_ms=0)
        await self.store.approve(run.run_id, state.call.call_id, entry, told)

    async def _stuck(self, run_id: RunId) -> str:
        return f"stuck: {await self.store.run(run_id)}, calls: {await self.store.open_call_states(run_id)}"

    async def _end(self) -> None:
        tasks = [task for worker in self._workers for task in worker.end()]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _due_later(self) -> list[RunId]:
        await asyncio.sleep(LONGEST_SECONDS)
        return await self.store.due(limit=1)

    async def _over(self, run_id: RunId, seconds: float, steps: tuple[str, ...]) -> Over:
        record = await self.store.run(run_id)
        assert record is not None
        return Over(
            agent=self._agent,
            record=record,
            transcript=await self.store.transcript(run_id),
            ledger=await self.store.ledger(run_id),
            counts=await self.store.counts(tag_of(run_id)),
            metrics=(await self.store.metrics()).counts,
            requests=tuple(self.model.requests),
            failed_calls=self._failed_calls,
            calls_after_cancel=len(self.model.requests) - self._calls_at_cancel,
            messages=self.broker.sent,
            charges=tuple(self.charges),
            raised=tuple(self.raised),
            due_later=tuple(await self._due_later()),
            seconds=seconds,
            steps=steps,
        )


def play_out(
    play: Play,
    plan: Plan | None = None,
    agent: Agent = AGENT,
    *,
    tools: Sequence[Tool] | None = None,
    tracer: Tracer | None = None,
    budget: int | None = None,
) -> Over:
    """A run from its submission until nothing happens any more.

    Workers have `tools` in place of the box's own, and tell a `tracer` what they write. `budget` is the batch's, in
    nano-dollars.
    """

    async def main() -> Over:
        own_tools = TOOLS if tools is None else tools
        return await Box(play, plan or Plan(), agent, own_tools, tracer, budget=budget).play_out()

    return run_in_virtual_time(main())
