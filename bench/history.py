"""What a turn costs a worker and the record after few turns and after many, with as many bytes to send."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from redis.asyncio import Redis

from paceline.core.agent import Agent, Limits
from paceline.core.answer import Answer, read_answer
from paceline.core.ids import BatchName, CallId, Incarnation, RunId, run_id
from paceline.core.step import ModelCallFailed
from paceline.core.transcript import Fragment, assistant_content, result_block, results_message, user_text
from paceline.store.port import BatchInfo, NewRun
from paceline.store.record import RedisRunStore
from paceline.tools import Registry
from paceline.worker.desk import Desk
from paceline.worker.settings import Settings
from paceline.worker.turn import take_turn

from .gauges import cpu_seconds
from .look_tools import look_inline
from .stage import valkey

FEW, MANY = 10, 1000
RESULT_BYTES = 1_000
"""Of each of the many turns; those of the few are as much larger."""
_RUNS = 40
_ROUNDS = 5
_LOOK = replace(look_inline, spec=replace(look_inline.spec, path="bench:look"))
_AGENT = Agent(
    name="history",
    model="claude-opus-4-8",
    tools=(_LOOK.spec,),
    limits=Limits(turns=None, tokens=None, seconds=None, usd=None, repeats=None),
    compact_at=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCost:
    """CPU of one turn, in milliseconds."""

    worker_ms: float
    server_ms: float

    @property
    def ms(self) -> float:
        return self.worker_ms + self.server_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCost:
    """A turn of runs that have taken few turns, and of runs that have taken many; the median of the rounds."""

    few: TurnCost
    many: TurnCost

    def told(self) -> str:
        """For people."""
        lines = [
            f"a turn after {turns:>4} turns: {cost.worker_ms:.2f} ms worker, {cost.server_ms:.2f} ms server"
            for turns, cost in ((FEW, self.few), (MANY, self.many))
        ]
        size = MANY * RESULT_BYTES / 1e6
        return "\n".join([*lines, f"ratio {self.many.ms / self.few.ms:.2f}, with {size:.0f} MB to send in both"])


def measure_history() -> HistoryCost:
    """Measure on a server of its own."""
    with tempfile.TemporaryDirectory() as folder, valkey(Path(folder)) as port:
        return asyncio.run(_measure(port))


async def _measure(port: int) -> HistoryCost:
    async with Redis(host="127.0.0.1", port=port) as redis:
        server = int((await redis.info("server"))["process_id"])
        store = RedisRunStore(redis)
        await store.put_agent(_AGENT.digest, _AGENT.freeze())
        costs = {FEW: list[TurnCost](), MANY: list[TurnCost]()}
        for number in range(_ROUNDS):
            for turns, found in costs.items():
                runs = await _runs(store, turns, f"{number}-{turns}")
                await _take_turns(store, runs, 1)  # what is sent is counted once, before the first answer
                before = _cpu_seconds(), cpu_seconds(server)
                await _take_turns(store, runs, 2)
                found.append(
                    TurnCost(
                        worker_ms=1000 * (_cpu_seconds() - before[0]) / _RUNS,
                        server_ms=1000 * (cpu_seconds(server) - before[1]) / _RUNS,
                    )
                )
                await redis.flushdb()
                await store.put_agent(_AGENT.digest, _AGENT.freeze())
    few, many = (sorted(found, key=lambda cost: cost.ms)[_ROUNDS // 2] for found in costs.values())
    return HistoryCost(few=few, many=many)


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


async def _runs(store: RedisRunStore, turns: int, name: str) -> Sequence[RunId]:
    """Runs whose rows bring a conversation of so many turns."""
    batch = BatchInfo(name=BatchName(name), tenant="default", agent=_AGENT.digest, agent_name=_AGENT.name)
    opened = await store.open_batch(batch)
    ids = [run_id(batch.name, str(index)) for index in range(_RUNS)]
    first = tuple(_conversation(turns))
    for index, id_ in enumerate(ids):
        await store.submit(opened, [NewRun(run_id=id_, row_id=str(index), index=index, digest="d", first=first)])
    return ids


def _conversation(turns: int) -> Sequence[Fragment]:
    text = "x" * (RESULT_BYTES * MANY // turns)
    fragments = [user_text("Begin.")]
    for call in (CallId(f"toolu_{number}") for number in range(turns)):
        block = {"type": "tool_use", "id": call, "name": _LOOK.spec.name, "input": {"key": "a page"}}
        result = result_block(call, text, is_error=False)
        fragments += [assistant_content(json.dumps([block]).encode()), results_message([call], {call: result})]
    return fragments


async def _take_turns(store: RedisRunStore, runs: Sequence[RunId], turn: int) -> None:
    desk = Desk(
        settings=Settings(),
        store=store,
        model=_AsksOnce(),
        registry=Registry(),
        built_in={_LOOK.spec.path: _LOOK},
        incarnation=Incarnation("bench"),
        send=lambda messages: None,
    )
    for run in runs:
        sent = await take_turn(desk, run, turn)
        if not sent:
            raise RuntimeError(f"turn {turn} of run {run} came to nothing")


class _AsksOnce:
    """A model that reads nothing, and asks for one call."""

    def __init__(self) -> None:
        self._asked = 0

    async def call(self, body: bytes, *, seconds: float, betas: Sequence[str] = ()) -> Answer | ModelCallFailed:
        self._asked += 1
        call = {"type": "tool_use", "id": f"toolu_new{self._asked}_{len(body)}", "name": _LOOK.spec.name}
        message = {
            "type": "message",
            "model": _AGENT.model,
            "content": [{**call, "input": {"key": "a page"}}],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 100, "output_tokens": 10},
        }
        return read_answer(json.dumps(message).encode())

    async def aclose(self) -> None:
        """There is nothing to give back."""
