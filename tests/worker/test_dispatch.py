"""What goes through the broker: real chords, ids only, and nothing that stays."""

# mypy: allow-untyped-calls
# Celery ships no type information.

from __future__ import annotations

import base64
import json
import logging
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from redis import Redis

from paceline.core.ids import CallId, RunId
from paceline.core.wire import JOIN_TASK, SENT_HEADER, TOOL_TASK, TURN_TASK, Queue
from paceline.store.port import CallWritten
from paceline.worker.app import create_app
from paceline.worker.dispatch import Dispatcher
from paceline.worker.messages import ChordMessage, JoinMessage, TurnMessage
from paceline.worker.settings import Settings

RUN = RunId("batch-run")
CALLS = (CallId("toolu_b"), CallId("toolu_a"))
CHORD = ChordMessage(run_id=RUN, turn=3, calls=CALLS)
NO_CHORD: dict[str, Any] = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def redis(valkey_url: str) -> Iterator[Redis]:
    with Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
def app(valkey_url: str, prefix: str) -> Iterator[Celery]:
    with create_app(Settings(redis_url=valkey_url, prefix=prefix)) as made:
        yield made


def taken(redis: Redis, prefix: str, queue: Queue) -> list[dict[str, Any]]:
    """The messages of a queue, in the order in which they will be taken; they are gone then."""
    key = f"{prefix}:broker:{queue}"
    messages = [json.loads(message) for message in reversed(redis.lrange(key, 0, -1))]
    redis.delete(key)
    return messages


def body(message: dict[str, Any]) -> Any:
    return json.loads(base64.b64decode(message["body"]))


@pytest.mark.parametrize("queue", [Queue.STARTS, Queue.TURNS])
def test_a_turn_is_a_message_of_ids_in_its_queue(app: Celery, redis: Redis, prefix: str, queue: Queue) -> None:
    Dispatcher(app).send([TurnMessage(run_id=RUN, turn=3, queue=queue)])
    (message,) = taken(redis, prefix, queue)
    assert message["headers"]["task"] == TURN_TASK
    assert message["headers"][SENT_HEADER] > 1_700_000_000_000
    assert body(message) == [[RUN, 3], {}, NO_CHORD]


def test_a_join_waits_with_the_turns(app: Celery, redis: Redis, prefix: str) -> None:
    Dispatcher(app).send([JoinMessage(run_id=RUN, turn=3)])
    (message,) = taken(redis, prefix, Queue.TURNS)
    assert (message["headers"]["task"], body(message)) == (JOIN_TASK, [[RUN, 3], {}, NO_CHORD])


def test_the_calls_of_a_turn_are_a_chord_whose_callback_is_the_join(app: Celery, redis: Redis, prefix: str) -> None:
    Dispatcher(app).send([CHORD])
    header = taken(redis, prefix, Queue.TOOLS)
    assert [message["headers"]["task"] for message in header] == [TOOL_TASK] * 2
    assert [body(message)[0] for message in header] == [[RUN, 3, call] for call in CALLS]
    assert len({message["headers"]["group"] for message in header}) == 1
    for message in header:
        callback = body(message)[2]["chord"]
        assert (callback["task"], callback["args"], callback["immutable"]) == (JOIN_TASK, [RUN, 3], True)
    assert taken(redis, prefix, Queue.TURNS) == []


def test_two_hundred_chords_leave_no_key_and_no_subscription(app: Celery, redis: Redis, prefix: str) -> None:
    channels = len(redis.pubsub_channels())
    Dispatcher(app).send([CHORD] * 200)
    assert len(taken(redis, prefix, Queue.TOOLS)) == 400
    assert len(redis.pubsub_channels()) == channels
    assert {key for key in redis.scan_iter("*celery-task*")} == set()
    left = {key.removeprefix(f"{prefix}:broker:".encode()) for key in redis.scan_iter(f"{prefix}*")}
    assert {name for name in left if not name.startswith(b"_kombu.binding")} == set()


@pytest.mark.parametrize(("written", "joins"), [(CallWritten.LAST, 1), (CallWritten.STORED, 0), (CallWritten.LOST, 0)])
def test_only_the_part_with_the_last_result_sends_the_callback(
    app: Celery, redis: Redis, prefix: str, written: CallWritten, joins: int
) -> None:
    Dispatcher(app).send([CHORD])
    part = taken(redis, prefix, Queue.TOOLS)[0]
    request = app.tasks[TOOL_TASK].request_stack
    request.push(type("Request", (), {"chord": body(part)[2]["chord"]}))
    try:
        app.backend.on_chord_part_return(request.top, "SUCCESS", written.value)
    finally:
        request.pop()
    assert len(taken(redis, prefix, Queue.TURNS)) == joins


def test_a_broker_that_is_away_is_told_of_and_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as deaf, caplog.at_level(logging.ERROR):
        deaf.bind(("127.0.0.1", 0))  # nobody listens, and nobody else can
        with create_app(Settings(redis_url=f"redis://127.0.0.1:{deaf.getsockname()[1]}/0")) as app:
            Dispatcher(app).send([CHORD])
    told = [record.getMessage() for record in caplog.records if record.name == "paceline.dispatch"]
    assert told == [f"a message of run {RUN} could not be sent; the sweeper sends it again"]
