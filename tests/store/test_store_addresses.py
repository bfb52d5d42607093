"""The ways to a server: in the clear, over TLS, by one node of a cluster; and with what rights."""

from __future__ import annotations

import socket
import uuid

import pytest
from redis.sentinel import MasterNotFoundError
from support.acl import documented_rules, set_rules
from support.runs import BATCH, Driven, a_call, a_result, a_row, ruled_out, submitted
from support.tls import with_another_authority

from paceline.core.errors import InfrastructureError, UsageError
from paceline.core.ids import CallId, Incarnation, batch_tag
from paceline.core.lifecycle import State
from paceline.core.tool_spec import Effect
from paceline.core.transcript import user_text
from paceline.store.border import border
from paceline.store.connect import check_server, connect
from paceline.store.port import Submitted, WorkerReport
from paceline.store.record import RedisRunStore

pytestmark = pytest.mark.anyio

NEEDED = sorted({rule for rule in documented_rules()[0] if rule.startswith("+")} - {"+ping", "+eval"})
"""What a day in a record's life shows to be needed. `ping` keeps idle connections in good health, and `eval` tells a
server a script that it has forgotten."""


async def a_day(store: RedisRunStore) -> None:
    """Everything that workers and producers ask of the record, once."""
    await check_server(store)
    await store.put_agent(BATCH.agent, b"frozen")
    await store.agent(BATCH.agent)
    assert await submitted(store, a_row()) == [Submitted.CREATED]
    driven = Driven(store, a_row().run_id)
    await driven.in_tools(a_call("c1"), a_call("c2", Effect.ONCE))
    held = await driven.begin_call("c1")
    await store.recover_call(held)
    await store.finish_call(await driven.begin_call("c1"), a_result("c1", whole="all of it"))
    await driven.doubt("c2")
    await store.resolve(driven.run_id, CallId("c2"), ruled_out("c2"))
    await store.cancel(driven.run_id)
    await store.cancel_requested([driven.run_id])
    await store.whole_result(driven.run_id, held.call_id)
    await _another_run(store)
    await _a_worker(store)
    await _a_reader(store, driven)


async def _another_run(store: RedisRunStore) -> None:
    await submitted(store, a_row("other"))
    driven = Driven(store, a_row("other").run_id)
    await driven.in_tools(a_call("c1"))
    await store.hold_model("claude-sonnet-5-5", seconds=1)
    await driven.run_call("c1")
    assert await store.results(driven.run_id, 1) is not None
    await store.join(await driven.now_held(), user_text("results"))
    await driven.bring_to(State.FAILED)


async def _a_worker(store: RedisRunStore) -> None:
    report = WorkerReport(
        incarnation=Incarnation("worker-1"), host="node", pid=1, started_ms=1, concurrency=1, in_flight=0
    )
    await store.servers()
    await store.beat(report, alive_seconds=1)
    await store.may_sweep(report.incarnation, seconds=1)
    await store.due(limit=10)
    await store.alive_ms([report.incarnation])
    await store.workers()
    await store.retire(report.incarnation)


async def _a_reader(store: RedisRunStore, driven: Driven) -> None:
    tag = batch_tag(BATCH.name)
    await store.batches(limit=10)
    await store.batch_rows(tag, start=0, count=10)
    await store.counts(tag)
    await store.dead(limit=10)
    await store.transcript(driven.run_id)
    await store.ledger(driven.run_id)
    await store.metrics()


def a_prefix() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


async def _spend_a_day(url: str, *, rights: list[str] | None = None, without: str = "") -> None:
    prefix = a_prefix()
    if rights is not None:
        denied = [f"-{without[1:]}"] if without else []
        url = set_rules(url, prefix, [*rights, "resetkeys", f"~{prefix}:*", *denied])
    store = connect(url, prefix=prefix)
    try:
        await a_day(store)
    finally:
        await store.aclose()


async def test_the_documented_rights_are_enough(valkey_url: str) -> None:
    await _spend_a_day(valkey_url, rights=documented_rules()[0])


@pytest.mark.parametrize("right", NEEDED)
async def test_no_documented_right_is_without_need(valkey_url: str, right: str) -> None:
    with pytest.raises(InfrastructureError, match=r"no permissions|EXEC without MULTI"):
        await _spend_a_day(valkey_url, rights=documented_rules()[0], without=right)


async def test_a_user_reaches_no_key_of_others(valkey_url: str) -> None:
    store = connect(set_rules(valkey_url, "elsewhere", documented_rules()[0]), prefix=a_prefix())
    with pytest.raises(InfrastructureError, match="No permissions to access a key"):
        await store.put_agent(BATCH.agent, b"frozen")
    await store.aclose()


async def test_the_record_is_reached_over_tls(tls_url: str) -> None:
    await _spend_a_day(tls_url)


async def test_a_server_that_another_authority_vouches_for_is_not_trusted(tls_url: str) -> None:
    store = connect(with_another_authority(tls_url))
    with pytest.raises(InfrastructureError, match=r"(?i)certificate verify failed"):
        await store.now_ms()
    await store.aclose()


async def test_one_node_is_enough_to_find_a_cluster(cluster_url: str) -> None:
    one = cluster_url.partition(",")[0]
    await _spend_a_day(one)


async def test_a_cluster_that_cannot_be_reached_is_the_operators_to_mend() -> None:
    store = connect("redis+cluster://127.0.0.1:1")
    with pytest.raises(InfrastructureError, match="could not be reached"):
        await store.now_ms()
    with pytest.raises(InfrastructureError, match="cannot be reached"):
        await check_server(store, url="redis+cluster://user:secret@127.0.0.1:1")
    await store.aclose()


@pytest.mark.parametrize("url", ["", "http://x", "redis+cluster://host:port"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is not a Redis URL"):
        connect(url)


def test_what_is_wrong_with_an_address_is_told_without_its_password() -> None:
    with pytest.raises(UsageError, match="'port'") as port:
        connect("redis://:secret@host:port/0")
    with pytest.raises(UsageError, match="write %2F for /") as sign:
        connect("redis://user:se#cret@host:6379/0")
    assert "secret" not in str(port.value)
    assert "cret" not in str(sign.value) + str(sign.value.__cause__)


async def test_a_server_that_says_nothing_is_told_of_before_anybody_gives_up_waiting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://:secret@127.0.0.1:{silent.getsockname()[1]}/0"
        store = connect(url)
        with pytest.raises(InfrastructureError, match=r"has not answered for 0\.2 s; is it running") as told:
            await check_server(store, url=url, within_seconds=0.2)
        await store.aclose()
    assert "secret" not in str(told.value)


def test_sentinels_that_know_no_primary_are_told_of_in_words() -> None:
    with pytest.raises(InfrastructureError, match="No master found for 'main'") as told, border():
        raise MasterNotFoundError("No master found for 'main' : <redis.asyncio.client.Redis(<...>)> - ConnectionError")
    assert "<redis" not in str(told.value)
