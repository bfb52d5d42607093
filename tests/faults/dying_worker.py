"""`python -m faults.dying_worker '{"BATCH": "MOMENT"}'`: workers that are told to end amid a batch, and die of that.

The environment says the rest, as to any worker. Each does what its Celery tasks would have it do, without Celery:
nothing else may take its runs meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import cast

from faults.mortal import Fate, Mortal, die_at_each
from support.waiting import wait_until

from paceline.core.agent import Agent
from paceline.core.errors import InfrastructureError
from paceline.core.ids import RunId
from paceline.core.unknown_effect import OnUnknownEffect
from paceline.producer.fleet import Fleet
from paceline.store.port import RunStore
from paceline.tools import Registry
from paceline.worker.app import create_app
from paceline.worker.call import run_call
from paceline.worker.dispatch import Dispatcher
from paceline.worker.messages import ChordMessage, JoinMessage, Message, TurnMessage
from paceline.worker.process import WorkerProcess
from paceline.worker.record_clock import RecordClock
from paceline.worker.settings import Settings
from paceline.worker.turn import take_turn

ROWS = THINKS, FETCHES, PAYS = ("thinks", "fetches", "pays")
"""What each run of a batch is at when its worker is told to end."""
GRACE_SECONDS = 0.2


class MortalRecord(Mortal):
    """Mends nothing: that is for those who come later."""

    async def may_sweep(self, *_args: object, **_options: object) -> bool:
        return False


class MortalWorker:
    """One process, its record and its broker."""

    def __init__(self, settings: Settings, fate: Fate) -> None:
        self._fate = fate
        self._broker = Mortal(Dispatcher(create_app(settings)), "broker", fate)
        self._process = WorkerProcess(settings, send=self._send, empty_queues=frozenset, clock=RecordClock())
        desk = self._process.start()
        self._record = MortalRecord(desk.store, "store", fate)
        desk.store = cast(RunStore, self._record)

    def live(self, runs: Sequence[RunId]) -> None:
        """Take up these runs; in the midst of it, end as on SIGTERM."""
        with ThreadPoolExecutor() as threads:
            for run in runs:
                threads.submit(self._carry_out, TurnMessage(run_id=run, turn=1))
            wait_until(lambda: self._record.done["begin_call"] == 2, "two tools run, and one model call")
            self._fate.is_waiting = True
            self._process.leave(GRACE_SECONDS)
        self._process.stop()

    def _carry_out(self, message: Message) -> None:
        with suppress(InfrastructureError):
            match message:
                case TurnMessage():
                    self._go_on(self._process.run(lambda desk: take_turn(desk, message.run_id, message.turn)))
                case ChordMessage(calls=(call,)):
                    ran = self._process.run(lambda desk: run_call(desk, message.run_id, message.turn, call))
                    body = [JoinMessage(run_id=message.run_id, turn=message.turn)] if ran.is_last else []
                    self._go_on([*ran.messages, *body])
                case _:
                    raise AssertionError(f"no run comes to that here: {message}")

    def _go_on(self, messages: Sequence[Message]) -> None:
        self._send(messages)
        if not self._fate.is_waiting:
            for message in messages:
                self._carry_out(message)

    def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._broker.send([message])


def submit(batch: str) -> list[RunId]:
    """These runs, of which no other worker is told yet."""
    registry = Registry()
    agent = Agent(
        name="busy",
        model="claude-sonnet-5-5",
        tools=tuple(registry.load(f"integration.effect_tools:{tool}").spec for tool in ("fetch", "pay")),
        on_unknown_effect=OnUnknownEffect.TELL,
    )
    with Fleet() as fleet:
        submitted = fleet.submit(agent, [{"id": row, "prompt": row} for row in ROWS], batch=batch)
        return [record.run.run_id for record in submitted.records()]


def work_and_die(fate: Fate) -> None:
    MortalWorker(Settings.from_environment(os.environ), fate).live(submit(fate.batch))


if __name__ == "__main__":
    die_at_each(json.loads(sys.argv[1]), work_and_die)
