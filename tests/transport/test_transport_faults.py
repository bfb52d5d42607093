"""The broker and the workers die under running tasks: real Valkey, real Celery workers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.waiting import wait_until
from transport.harness import Broker, running_worker

each_pool = pytest.mark.parametrize("pool", ["threads", "prefork"])


@each_pool
def test_a_restarted_broker_finds_the_worker_alive_and_each_task_carried_out_once(
    broker: Broker, tmp_path: Path, pool: str
) -> None:
    with running_worker(broker.url, tmp_path, pool=pool) as worker:
        broker.publish("ends-in-outage", "ends-later")
        worker.wait_for("started", "ends-in-outage", "ends-later")
        broker.kill()
        worker.open_gate("ends-in-outage")
        worker.wait_for("ended", "ends-in-outage")
        broker.start()
        broker.publish("next")
        worker.open_gate("next")
        worker.wait_for("ended", "next")
        worker.open_gate("ends-later")
        wait_until(broker.is_settled, "every message acknowledged")
        assert sorted(worker.notes("started")) == ["ends-in-outage", "ends-later", "next"]
        assert sorted(worker.notes("ended")) == ["ends-in-outage", "ends-later", "next"]
        assert worker.process.poll() is None


@each_pool
def test_a_task_whose_connection_is_dropped_is_carried_out_once(broker: Broker, tmp_path: Path, pool: str) -> None:
    with running_worker(broker.url, tmp_path, pool=pool) as worker:
        broker.publish("long")
        worker.wait_for("started", "long")
        broker.drop_connections()
        broker.publish("next")
        worker.open_gate("next")
        worker.wait_for("ended", "next")
        worker.open_gate("long")
        wait_until(broker.is_settled, "every message acknowledged")
        assert sorted(worker.notes("started")) == ["long", "next"]
        assert worker.process.poll() is None


@pytest.mark.parametrize(
    ("setting", "refusing", "taking"), [("maxmemory", "1", "0"), ("min-replicas-to-write", "1", "0")]
)
def test_a_broker_that_refuses_writes_is_waited_for(
    broker: Broker, tmp_path: Path, setting: str, refusing: str, taking: str
) -> None:
    with running_worker(broker.url, tmp_path, pool="threads") as worker:
        broker.publish("begun", "begun-too")
        worker.wait_for("started", "begun")
        broker.client.config_set(setting, refusing)
        worker.open_gate("begun", "begun-too")
        worker.wait_for("ended", "begun")
        broker.drop_connections()  # what a worker has to ask for anew is refused too
        worker.wait_for_log("broker")
        broker.client.config_set(setting, taking)
        broker.publish("next")
        worker.open_gate("next")
        worker.wait_for("ended", "begun-too", "next")
        wait_until(broker.is_settled, "every message acknowledged")
        assert worker.process.poll() is None


@each_pool
def test_the_messages_of_a_killed_worker_go_to_another(broker: Broker, tmp_path: Path, pool: str) -> None:
    with running_worker(broker.url, tmp_path, pool=pool, visibility_s=1) as worker:
        broker.publish("orphan")
        worker.wait_for("started", "orphan")
        worker.kill()
    with running_worker(broker.url, tmp_path, pool=pool, visibility_s=1) as heir:
        heir.open_gate("orphan")
        heir.wait_for("ended", "orphan")
        wait_until(broker.is_settled, "the message acknowledged")
        assert heir.notes("started") == ["orphan", "orphan"]


@each_pool
def test_a_terminated_worker_ends_what_it_began_and_takes_nothing_more(
    broker: Broker, tmp_path: Path, pool: str
) -> None:
    with running_worker(broker.url, tmp_path, pool=pool, slots=2) as worker:
        broker.publish("begun", "begun-too", "waiting")
        worker.wait_for("started", "begun", "begun-too")
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for_log("Warm shutdown")
        worker.open_gate("begun", "begun-too")
        assert worker.process.wait(10) == 0
        assert sorted(worker.notes("ended")) == ["begun", "begun-too"]
        assert (broker.queued, broker.unacked) == (1, 0)


@pytest.mark.parametrize("dropped", [False, True], ids=["connection-kept", "connection-lost"])
def test_a_terminated_worker_gives_back_what_it_had_not_begun(broker: Broker, tmp_path: Path, dropped: bool) -> None:
    # The threads pool would begin them all: only prefork holds messages that it has not begun.
    with running_worker(broker.url, tmp_path, pool="prefork", slots=1, prefetch=4) as worker:
        broker.publish("begun", "held", "held-too")
        worker.wait_for("started", "begun")
        wait_until(lambda: broker.unacked == 3, "three messages in the worker's hands")
        if dropped:
            broker.drop_connections()
            worker.wait_for_log("Trying to re-establish")
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for_log("Warm shutdown")
        worker.open_gate("begun")
        assert worker.process.wait(10) == 0
        assert worker.notes("started") == ["begun"]
        assert (broker.queued, broker.unacked) == (2, 0)
