"""A real Prometheus reads the exporter of a real fleet: every panel has something to show, every rule is evaluated."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from integration.fleet import FleetPlan, RealFleet
from support.ports import free_ports
from support.prometheus import Prometheus, serve_prometheus
from support.waiting import wait_until

from paceline.core.agent import Limits
from paceline.producer.children import start_child, stop_children
from paceline.sim import Answer, Call
from paceline.sim.request import Request

FILES = Path(__file__).parents[2] / "helm" / "paceline" / "files"
DASHBOARDS = [json.loads(path.read_text()) for path in sorted((FILES / "dashboards").glob("*.json"))]
PANELS = [(board["title"], panel) for board in DASHBOARDS for panel in board["panels"] if panel["type"] != "row"]
CHOSEN = {"$__rate_interval": "1m", "$__range": "1m", "$job": ".*", "$agent": ".*", "$tool": ".*"}
"""What stands for Grafana's variables."""
OF_A_WEEK = "_7d_before"
"""The end of the names of what can be recorded only after hours."""
RUNS = 30
LIMITS = Limits(turns=6, tokens=None, seconds=None, usd=1.0, repeats=3)


def play(request: Request) -> Answer:
    """Most runs fetch, look and answer; one repeats itself, one uses up its turns, one is refused, one calls badly."""
    match int(request.first_user_text.removeprefix("run ")), request.turn:
        case 1, _:
            return Answer(calls=[Call(tool="look", input={"what": "again"})])
        case 2, turn:
            return Answer(calls=[Call(tool="look", input={"what": f"{turn}"})])
        case 3, _:
            return Answer(stop_reason="refusal")
        case 4, 1:
            return Answer(calls=[Call(tool="fetch", input={"whom": "no such argument"})])
        case number, 1:
            return Answer(calls=[Call(tool=tool, input={"what": f"{number}"}) for tool in ("fetch", "look")])
    return Answer(text="done")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """The server, when it has read of runs that ended in every way."""
    folder = tmp_path_factory.mktemp("watched")
    (port,) = free_ports(1)
    with ExitStack() as stack:
        prometheus = stack.enter_context(serve_prometheus(folder, _config(port)))
        real = stack.enter_context(RealFleet(folder, play, FleetPlan(workers=1)))
        stack.enter_context(_exporter(real, port, folder))
        # The series of the agent and of its tools must have been read before what is to be seen on them happens.
        _run(real, 1, "first")
        wait_until(lambda: _ended(prometheus) == 1, "Prometheus has read of the first run", timeout_s=40)
        real.simulator.inject("overloaded", times=2)
        _run(real, RUNS, "batch")
        wait_until(lambda: _ended(prometheus) == 1 + RUNS, "Prometheus has read of all runs", timeout_s=40)
        read_at = datetime.now(UTC)
        wait_until(lambda: _evaluated(prometheus) > read_at, "every rule was evaluated since")
        yield prometheus


def test_every_panel_has_something_to_show(watched: Prometheus) -> None:
    empty = [
        f"{board}, {panel['title']}: {target['expr']}"
        for board, panel in PANELS
        for target in panel["targets"]
        if OF_A_WEEK not in target["expr"] and not _numbers(watched, target["expr"])
    ]
    assert empty == []


def test_what_is_shown_as_a_share_is_one(watched: Prometheus) -> None:
    for board, panel in PANELS:
        if panel["fieldConfig"]["defaults"]["unit"] == "percentunit" and panel["type"] != "heatmap":
            for target in panel["targets"]:
                shares = _numbers(watched, target["expr"])
                assert all(0 <= share <= 1 for share in shares), (board, panel["title"], shares)


def test_every_rule_is_evaluated_without_an_error(watched: Prometheus) -> None:
    rules = watched.rules()
    assert [rule for rule in rules if rule["health"] != "ok"] == []
    recorded = {rule["name"] for rule in rules if rule["type"] == "recording" and OF_A_WEEK not in rule["name"]}
    assert [name for name in sorted(recorded) if not _numbers(watched, name)] == []


def test_an_alert_tells_of_a_run_that_failed(watched: Prometheus) -> None:
    (alert,) = (rule for rule in watched.rules() if rule["name"] == "PacelineDeadRuns")
    told = [active["annotations"]["description"] for active in alert["alerts"]]
    assert told[0].startswith("1 run(s) of effects failed with refusal in the last 15 minutes."), told


def _config(exporter_port: int) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FILES / "rules.yaml")],
        "scrape_configs": [
            {"job_name": "paceline", "static_configs": [{"targets": [f"127.0.0.1:{exporter_port}"]}]},
        ],
    }


@contextmanager
def _exporter(real: RealFleet, port: int, folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "paceline.producer.cli", "exporter", "--port", str(port), "--every", "0.5"]
    child = start_child(
        "exporter", command, environment={**os.environ, "PACELINE_REDIS_URL": real.url}, log=folder / "exporter.log"
    )
    try:
        yield
    finally:
        stop_children([child], grace_seconds=5)


def _run(real: RealFleet, runs: int, name: str) -> None:
    agent = real.agent(tools=("look", "fetch"), limits=LIMITS)
    real.wait_ended(real.submit(runs, batch=name, agent=agent))


def _ended(prometheus: Prometheus) -> int:
    return int(sum(_numbers(prometheus, "sum(agent_runs_total)")))


def _evaluated(prometheus: Prometheus) -> datetime:
    """When the rule was evaluated whose evaluation is longest ago."""
    return min(datetime.fromisoformat(rule["lastEvaluation"]) for rule in prometheus.rules())


def _numbers(prometheus: Prometheus, expression: str) -> list[float]:
    """What an expression comes to, for each of its series; what is no number is left out."""
    for variable, value in CHOSEN.items():
        expression = expression.replace(variable, value)
    values = [float(sample["value"][1]) for sample in prometheus.query(expression)]
    return [value for value in values if math.isfinite(value)]
