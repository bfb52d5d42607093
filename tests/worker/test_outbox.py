"""Exports: together where they can be, and of no weight where nobody takes them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from paceline.worker.telemetry.outbox import Outbox

pytestmark = pytest.mark.anyio


class Receiver:
    """Takes what is exported while `is_there`; waits for `gate` first."""

    def __init__(self) -> None:
        self.is_there = True
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[int]] = []
        self.tries = 0

    @property
    def taken(self) -> list[int]:
        return [number for batch in self.batches for number in batch]

    def __call__(self, batch: Sequence[int]) -> bool:
        self.tries += 1
        self.gate.wait(10)
        if self.is_there:
            self.batches.append(list(batch))
        return self.is_there


async def test_who_flushes_at_once_shares_an_export() -> None:
    receiver = Receiver()
    outbox = Outbox(receiver)
    receiver.gate.clear()

    async def tell(number: int) -> None:
        outbox.add(number)
        await outbox.flush()

    telling = [asyncio.ensure_future(tell(number)) for number in range(100)]
    await asyncio.sleep(0)
    receiver.gate.set()
    await asyncio.gather(*telling)
    assert sorted(receiver.taken) == list(range(100))
    assert receiver.tries <= 2


async def test_an_export_waits_a_moment_for_others_to_join_it() -> None:
    receiver = Receiver()
    outbox = Outbox(receiver)
    outbox.add(1)
    first = asyncio.ensure_future(outbox.flush())
    await asyncio.sleep(0)
    outbox.add(2)
    await outbox.flush()
    await first
    assert receiver.batches == [[1, 2]]


async def test_nobody_waits_any_more_after_a_failure() -> None:
    receiver = Receiver()
    outbox = Outbox(receiver)
    receiver.is_there = False
    for number in range(5):
        outbox.add(number)
        await outbox.flush()
    assert receiver.tries == 1


async def test_what_waited_goes_out_when_there_is_somebody_again() -> None:
    receiver = Receiver()
    outbox = Outbox(receiver, pause_seconds=0.0, gather_seconds=0.0)
    receiver.is_there = False
    outbox.add(1)
    await outbox.flush()
    receiver.is_there = True
    added = 1
    async with asyncio.timeout(5):
        while receiver.taken[-1:] != [added]:  # until a flush is waited for again
            await asyncio.sleep(0)
            added += 1
            outbox.add(added)
            await outbox.flush()
    assert receiver.taken == list(range(1, added + 1))


async def test_a_receiver_that_hangs_is_waited_for_once() -> None:
    receiver = Receiver()
    outbox = Outbox(receiver, wait_seconds=0.05)
    receiver.gate.clear()
    loop = asyncio.get_running_loop()
    outbox.add(1)
    began = loop.time()
    await outbox.flush()
    first_seconds = loop.time() - began
    outbox.add(2)
    began = loop.time()
    await outbox.flush()
    assert first_seconds >= 0.05 > loop.time() - began
    receiver.gate.set()


async def test_of_too_many_the_oldest_are_given_up() -> None:
    receiver = Receiver()
    outbox = Outbox(receiver)
    for number in range(5000):
        outbox.add(number)
    await outbox.flush()
    assert receiver.taken == list(range(5000 - 4096, 5000))
