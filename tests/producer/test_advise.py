"""`paceline advise`: what the finished runs of a batch say about its limits, in words and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from support.producing import AGENT, MemoryFleet
from support.runs import SPENT

from paceline.core.agent import Limits
from paceline.core.endings import Outcome, StopReason
from paceline.core.errors import UnknownBatch
from paceline.core.ids import BatchName, RunId, run_id
from paceline.producer.cli import run_command
from paceline.producer.commands import advise as command
from paceline.producer.fleet import Batch, Fleet
from paceline.producer.observed import batch_advice

TOKENS = SPENT.usage.total


def submitted(behind: MemoryFleet, rows: int, limits: Limits | None = None) -> tuple[Batch, list[RunId]]:
    agent = replace(AGENT, limits=limits or Limits(), max_tokens=20)
    ids = [f"row-{number}" for number in range(rows)]
    batch = behind.fleet.submit(agent, [{"id": row, "prompt": "x"} for row in ids], batch="nightly")
    return batch, [run_id(BatchName("nightly"), row) for row in ids]


@pytest.fixture
def opened(behind: MemoryFleet, monkeypatch: pytest.MonkeyPatch) -> MemoryFleet:
    """The fleet that the command finds."""

    @contextmanager
    def opened_fleet() -> Iterator[Fleet]:
        yield behind.fleet

    monkeypatch.setattr(command, "opened_fleet", opened_fleet)
    return behind


def said(capsys: pytest.CaptureFixture[str]) -> str:
    assert run_command(["advise", "nightly"]) == 0
    return capsys.readouterr().out


def said_json(capsys: pytest.CaptureFixture[str]) -> Any:
    assert run_command(["advise", "nightly", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_runs_that_are_over_are_read_from_the_record(behind: MemoryFleet) -> None:
    batch, runs = submitted(behind, 4)
    behind.finish(runs[0])
    behind.finish(runs[1])
    behind.finish(runs[2], Outcome(reason=StopReason.TOKEN_BUDGET, message="too many"))
    advice = batch_advice(batch)
    turns, tokens, seconds, usd = advice.limits
    assert (advice.finished, advice.succeeded) == (3, 2)
    assert (turns.p95, tokens.p95, seconds.p95, usd.p95) == (1, TOKENS, 0.25, 0.000007)
    assert (turns.today, tokens.today, seconds.today, usd.today) == (25, 300_000, 600, 1)
    assert (turns.recommended, tokens.recommended, seconds.recommended) == (2, 2 * TOKENS, 1)
    assert (turns.cut_runs, tokens.cut_runs) == (0, 1)


def test_a_batch_whose_agent_is_gone_is_told_of(behind: MemoryFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, _ = submitted(behind, 1)

    async def gone(digest: str) -> None:
        return None

    monkeypatch.setattr(behind.store, "agent", gone)
    with pytest.raises(UnknownBatch, match="the agent of batch 'nightly' is no longer on record"):
        batch_advice(batch)


def test_limits_that_idle_and_limits_that_cut_are_named(
    opened: MemoryFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    _, runs = submitted(opened, 4, Limits(turns=5, tokens=200, seconds=None))
    opened.finish(runs[0])
    opened.finish(runs[1], Outcome(reason=StopReason.TOKEN_BUDGET, message="too many"))
    opened.finish(runs[2], Outcome(reason=StopReason.DEADLINE, message="too late"))
    lines = said(capsys).splitlines()
    assert lines[0] == "batch nightly: 1 of 3 runs succeeded, 1 are not over"
    assert [line.split() for line in lines[3:5]] == [
        ["turns", "5", "1", "1", "2"],
        ["tokens", "200", "163", "163", "326", "cut", "1", "run"],
    ]
    assert lines[5].split() == ["seconds", "none", "0.2", "s", "0.2", "s", "1.0", "s"]
    assert lines[6].endswith("idles at 142857 x p95")
    assert lines[8:] == [
        "only 1 run succeeded, so p95 is the largest: look again when there are more",
        "usd: more than 2 x p95, to leave room for the worst case of a run's last call",
        "see what tokens cut: paceline runs --batch nightly --stop-reason token_budget",
        "1 run came too late for limits.deadline: raise it, or add workers",
        "for the agent file: limits: {turns: 2, tokens: 326, seconds: 1, usd: 0.0003}",
    ]


def test_without_a_success_nothing_is_recommended(opened: MemoryFleet, capsys: pytest.CaptureFixture[str]) -> None:
    submitted(opened, 1)
    text = said(capsys)
    assert "no run has succeeded yet" in text
    assert "for the agent file" not in text


def test_the_advice_is_json_in_whole_figures(opened: MemoryFleet, capsys: pytest.CaptureFixture[str]) -> None:
    _, runs = submitted(opened, 20)
    for run in runs:
        opened.finish(run)
    found = said_json(capsys)
    assert {name: found[name] for name in ("batch", "finished", "succeeded", "active", "deadline_cut_runs")} == {
        "batch": "nightly", "finished": 20, "succeeded": 20, "active": 0, "deadline_cut_runs": 0
    }  # fmt: skip
    assert found["limits"][0] == {
        "name": "turns",
        "reason": "max_turns",
        "today": 25,
        "p50": 1,
        "p95": 1,
        "recommended": 2,
        "is_raised": False,
        "cut_runs": 0,
        "is_idle": True,
    }


@pytest.mark.usefixtures("opened")
def test_a_batch_that_is_not_on_record_is_the_callers_to_mend(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["advise", "nightly"]) == 2
    assert "no batch 'nightly' is on record" in capsys.readouterr().err
