"""What the record confirms before it counts: by a replica, or by a disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from support.replicas import Pair, running_pair
from support.runs import BATCH, Driven, a_call, a_claim, a_queued_run, a_row, submitted

from paceline.core.errors import InfrastructureError
from paceline.core.ids import RunId
from paceline.core.tool_spec import Effect
from paceline.store.connect import Severity, check_server, connect, server_problems
from paceline.store.durability import Durability
from paceline.store.durable import DurableRunStore
from paceline.store.port import CallBegun, NotBegun, Submitted
from paceline.store.record import RedisRunStore

pytestmark = pytest.mark.anyio

NO_REPLICA = "no replica confirmed"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running_pair(tmp_path_factory.mktemp("pair")) as pair:
        yield pair


@pytest.fixture
def pair(servers: Pair) -> Pair:
    """A primary and its replica, empty."""
    servers.primary.flushdb()
    return servers


@pytest.fixture
async def replicated(pair: Pair) -> AsyncIterator[RedisRunStore]:
    store = connect(pair.url, durability=Durability.REPLICATED)
    yield store
    await store.aclose()


async def _with_a_call(store: RedisRunStore, effect: Effect) -> Driven:
    driven = await a_queued_run(store)
    await driven.in_tools(a_call("c1", effect))
    return driven


async def test_what_is_submitted_is_on_the_replica(pair: Pair, replicated: RedisRunStore) -> None:
    await replicated.put_agent(BATCH.agent, b"frozen")
    runs = [a_row(str(number)) for number in range(50)]
    assert await submitted(replicated, *runs) == [Submitted.CREATED] * 50
    kept = [replicated.keys.agent(BATCH.agent), *(replicated.keys.run(run.run_id) for run in runs)]
    assert pair.replica.exists(*kept) == 51


async def test_a_submission_that_no_replica_has_is_refused_and_can_be_repeated(
    pair: Pair, replicated: RedisRunStore
) -> None:
    batch = await replicated.open_batch(BATCH)
    with pair.frozen_replica(), pytest.raises(InfrastructureError, match=NO_REPLICA):
        await replicated.submit(batch, [a_row()])
    assert await replicated.submit(batch, [a_row()]) == [Submitted.EXISTS]
    assert pair.replica.exists(replicated.keys.run(a_row().run_id)) == 1


async def test_a_wait_that_the_server_breaks_off_is_begun_again(pair: Pair, replicated: RedisRunStore) -> None:
    """As a primary does that becomes a replica."""
    batch = await replicated.open_batch(BATCH)
    with pair.frozen_replica():
        submitting = asyncio.ensure_future(replicated.submit(batch, [a_row()]))
        while not submitting.done() and not _break_off(pair):
            await asyncio.sleep(0.01)
    assert await submitting == [Submitted.CREATED]


def _break_off(pair: Pair) -> bool:
    waiting = [client["id"] for client in pair.primary.client_list() if client["cmd"] == "wait"]
    return any([pair.primary.client_unblock(int(client), error=True) for client in waiting])


@pytest.mark.parametrize("effect", [Effect.ONCE, Effect.IDEMPOTENT])
async def test_a_call_with_an_effect_does_not_begin_before_a_replica_has_its_intent(
    pair: Pair, replicated: RedisRunStore, effect: Effect
) -> None:
    driven = await _with_a_call(replicated, effect)
    claim = a_claim("worker-2")
    for _ in range(2):  # the second time the script finds the claim taken, by itself: it has nothing to write
        with pair.frozen_replica(), pytest.raises(InfrastructureError, match=NO_REPLICA):
            await driven.begin_call("c1", claim)
    assert (await driven.begin_call("c1", claim)).attempt == 1
    assert pair.replica.hexists(replicated.keys.calls(driven.run_id), "c1:claim")


async def test_a_call_that_only_reads_needs_no_replica(pair: Pair, replicated: RedisRunStore) -> None:
    driven = await _with_a_call(replicated, Effect.READS)
    with pair.frozen_replica():
        assert (await driven.run_call("c1")).written == "last"


async def test_what_is_reported_is_on_the_replica(pair: Pair, replicated: RedisRunStore) -> None:
    await a_queued_run(replicated)
    await replicated.settle()
    with pair.frozen_replica(), pytest.raises(InfrastructureError, match=NO_REPLICA):
        await replicated.settle()


async def test_what_a_failover_lost_is_not_confirmed_by_the_new_primary(
    pair: Pair, replicated: RedisRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven = await _with_a_call(replicated, Effect.ONCE)
    begin_call = RedisRunStore.begin_call

    async def begin_and_fail_over(store: RedisRunStore, run: RunId, *rest: object) -> CallBegun | NotBegun:
        begun = await begin_call(store, run, *rest)  # type: ignore[arg-type]  # passed on as they came
        pair.primary.hdel(store.keys.calls(run), "c1:claim")
        return begun

    monkeypatch.setattr(RedisRunStore, "begin_call", begin_and_fail_over)
    with pytest.raises(InfrastructureError, match="lost a write just after it had taken it"):
        await driven.begin_call("c1")


async def test_a_disk_confirms_in_a_moment_where_every_write_is_synced(pair: Pair) -> None:
    store = connect(pair.url, durability=Durability.FSYNC)
    before = time.monotonic()
    await (await _with_a_call(store, Effect.ONCE)).run_call("c1")
    await store.settle()
    assert time.monotonic() - before < 2
    await store.aclose()


async def test_a_server_without_a_file_confirms_nothing(valkey_url: str) -> None:
    store = connect(valkey_url, prefix="fsync", durability=Durability.FSYNC)
    with pytest.raises(InfrastructureError, match="appendonly is disabled"):
        await submitted(store, a_row())
    problems = await check_server(store)
    assert [problem.what for problem in problems if problem.severity is Severity.FAIL] == [
        "PACELINE_DURABILITY is fsync, and the append-only file is off"
    ]
    await store.aclose()


async def test_each_server_of_a_cluster_confirms_what_it_has(cluster_url: str) -> None:
    synced = connect(cluster_url, prefix="synced", durability=Durability.FSYNC)
    rows = [a_row(str(number)) for number in range(20)]
    assert await submitted(synced, *rows) == [Submitted.CREATED] * 20
    driven = Driven(synced, rows[0].run_id)
    await driven.in_tools(a_call("c1", Effect.ONCE))
    await driven.run_call("c1")
    await synced.settle()
    await synced.aclose()


async def test_a_cluster_without_replicas_confirms_no_replica(cluster_url: str) -> None:
    store = connect(cluster_url, prefix="replicated", durability=Durability.REPLICATED)
    with pytest.raises(InfrastructureError, match=NO_REPLICA):
        await store.settle()
    problems = await check_server(store)
    assert len({problem.what for problem in problems if problem.severity is Severity.FAIL}) == 3
    await store.aclose()


@pytest.mark.parametrize(
    ("info", "durability", "wrong"),
    [
        ({"redis_version": "7.0.15", "aof_enabled": 1}, Durability.FSYNC, "has no WAITAOF"),
        ({"redis_version": "7.2.4", "aof_enabled": 0}, Durability.FSYNC, "append-only file is off"),
        ({"redis_version": "7.2.4", "aof_enabled": 1}, Durability.FSYNC, ""),
        ({"redis_version": "7.0.15", "aof_enabled": 1}, Durability.REPLICATED, "no replica is connected"),
        ({"redis_version": "7.0.15", "aof_enabled": 1, "connected_slaves": 1}, Durability.REPLICATED, ""),
        ({"redis_version": "7.0.15", "aof_enabled": 0}, Durability.FAST, ""),
    ],
)
def test_a_server_that_cannot_confirm_is_refused_at_the_start(
    info: dict[str, object], durability: Durability, wrong: str
) -> None:
    problems = [p.what for p in server_problems(info, "noeviction", durability) if p.severity is Severity.FAIL]
    assert len(problems) == bool(wrong)
    assert not wrong or wrong in problems[0]


async def test_nothing_is_asked_where_nothing_was_ordered(valkey_url: str) -> None:
    store = connect(valkey_url)
    assert not isinstance(store, DurableRunStore)
    await store.settle()
    await store.aclose()
