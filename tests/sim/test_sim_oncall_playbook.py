"""The playbook of the on-call example leads every row to its rotation, with the example's own tools."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import anthropic
import pytest
import yaml

from paceline.sim import Journal, Playbook, Simulator
from paceline.tools import ToolError

EXAMPLE = Path(__file__).parents[2] / "examples" / "oncall"
AGENT: dict[str, Any] = yaml.safe_load((EXAMPLE / "agent.yaml").read_text())
ROWS: list[dict[str, str]] = [json.loads(line) for line in (EXAMPLE / "rows.jsonl").read_text().splitlines()]


class Loop:
    """The agent's loop at its plainest: the client, the tools' functions, and nothing kept."""

    def __init__(self, client: anthropic.Anthropic, tools: ModuleType) -> None:
        self.client = client
        self.tools = {tool.spec.name: tool for tool in (tools.search_wiki, tools.get_page)}
        self.recovered: set[str] = set()
        self.definitions: list[Any] = [
            {"name": name, "description": tool.spec.description, "input_schema": tool.spec.input_schema}
            for name, tool in self.tools.items()
        ]

    def run(self, row: dict[str, str]) -> str:
        messages: list[Any] = [{"role": "user", "content": AGENT["prompt"].format(**row)}]
        for _ in range(AGENT["limits"]["turns"]):
            message = self.ask(messages, row["id"])
            messages.append({"role": "assistant", "content": message["content"]})
            calls = [block for block in message["content"] if block["type"] == "tool_use"]
            if not calls:
                return str(message["content"][0]["text"])
            results = [self.result(call) for call in calls]
            if any(result.get("is_error") for result in results):
                self.recovered.add(row["id"])
            messages.append({"role": "user", "content": results})
        raise AssertionError(f"{row['id']} did not end")

    def ask(self, messages: list[Any], run: str) -> Any:
        message = self.client.messages.create(
            model=AGENT["model"],
            max_tokens=AGENT["max_tokens"],
            system=AGENT["system"],
            tools=self.definitions,
            messages=messages,
            metadata={"user_id": run},
            cache_control={"type": "ephemeral"},
        )
        return message.to_dict()

    def result(self, call: dict[str, Any]) -> dict[str, Any]:
        answer = {"type": "tool_result", "tool_use_id": call["id"]}
        try:
            return {**answer, "content": self.tools[call["name"]](**call["input"])}
        except ToolError as error:
            return {**answer, "content": str(error), "is_error": True}


@pytest.fixture(scope="module")
def tools() -> ModuleType:
    spec = importlib.util.spec_from_file_location("oncall_wiki_tools", EXAMPLE / "wiki_tools.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclass looks its own module up while it is made.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Played:
    """Every row's answer, the rows that met a tool's error on the way, and the journal of them all."""

    answers: dict[str, str]
    recovered: set[str]
    journal: Journal


@pytest.fixture(scope="module")
def played(tools: ModuleType) -> Played:
    playbook = Playbook.load(EXAMPLE / "playbook.yaml").delayed(0)
    with (
        Simulator(playbook) as simulator,
        anthropic.Anthropic(api_key="k", base_url=simulator.url, max_retries=0, timeout=10) as client,
    ):
        loop = Loop(client, tools)
        answers = {row["id"]: loop.run(row) for row in ROWS}
    return Played(answers, loop.recovered, simulator.journal)


def test_every_row_is_answered_with_its_rotation_in_one_sentence(played: Played) -> None:
    for row in ROWS:
        answer = played.answers[row["id"]]
        assert answer.startswith(f"The rotation for {row['service']} is {row['expected_rotation']}; "), row["id"]
        assert answer.endswith(" is primary.")


def test_no_request_is_refused_and_every_run_grows_by_appending(played: Played) -> None:
    assert played.journal.rejected() == []
    assert len(played.journal.by_run()) == len(ROWS)
    assert all(played.journal.grows_by_appending(row["id"]) for row in ROWS)


def test_runs_differ_some_read_two_pages_at_once_and_some_recover_from_a_lost_page(played: Played) -> None:
    runs = played.journal.by_run().values()
    parallel = [entries for entries in runs if any(len(entry.tool_use_ids) == 2 for entry in entries)]
    assert {len(entries) for entries in runs} == {4, 5, 6, 7}
    assert len(parallel) == 16
    assert len(played.recovered) == 28


def test_answers_take_their_time() -> None:
    written = yaml.safe_load((EXAMPLE / "playbook.yaml").read_text())
    delays = {rule["answer"].get("delay_s", written["delay_s"]) for rule in written["rules"]}
    assert min(delays) >= 0.2
    assert max(delays) <= 0.4
