"""The alerts fire when they should, and not otherwise: told by the real promtool. A planted mistake is found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.known_series import mistakes_in
from deploy.rule_mutants import Mutant, mutants_of, name_of
from support.prometheus import Promtool
from support.promql import asked

from paceline.core.endings import ENDINGS
from paceline.core.lifecycle import Status

ROOT = Path(__file__).parents[2]
RULES = ROOT / "helm" / "paceline" / "files" / "rules.yaml"
TESTS = sorted((Path(__file__).parent / "rules").glob("*.yaml"))
GROUPS: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
ALL = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = [rule for rule in ALL if "alert" in rule]
RECORDED = frozenset(rule["record"] for rule in ALL if "record" in rule)


def test_prometheus_can_load_the_rules(promtool: Promtool) -> None:
    checked = promtool.check(RULES)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(ALL)} rules found" in checked.stdout


def test_a_rule_that_prometheus_cannot_read_is_found(promtool: Promtool, tmp_path: Path) -> None:
    planted = tmp_path / "rules.yaml"
    planted.write_text(RULES.read_text().replace("> 0.5\n", "> > 0.5\n"))
    assert promtool.check(planted).returncode != 0


def test_prometheus_can_start_with_what_compose_gives_it(promtool: Promtool, tmp_path: Path) -> None:
    config = (ROOT / "compose" / "prometheus.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(config.replace("/etc/prometheus/rules.yaml", str(RULES)))
    checked = promtool.check_config(tmp_path / "prometheus.yml")
    assert checked.returncode == 0, checked.stderr
    assert "1 rule files found" in checked.stdout


def test_every_alert_fires_when_it_should_and_not_otherwise(promtool: Promtool) -> None:
    tested = promtool.test(TESTS)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    cases = [
        case for path in TESTS for test in yaml.safe_load(path.read_text())["tests"] for case in _alert_cases(test)
    ]
    names = {alert["alert"] for alert in ALERTS}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == names
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == names


def test_every_number_of_the_rules_is_held_by_a_test(promtool: Promtool, tmp_path: Path) -> None:
    """Each number a quarter higher and lower, each waiting time gone and doubled: a test must fail."""
    planted = {}
    for number, mutant in enumerate(mutant for group in GROUPS for mutant in mutants_of(group)):
        rules, tests = tmp_path / f"{number}-rules.yaml", tmp_path / f"{number}-tests.yaml"
        rules.write_text(yaml.safe_dump({"groups": [mutant.group]}))
        tests.write_text(yaml.safe_dump(_tests_of(mutant) | {"rule_files": [rules.name]}))
        planted[tests] = mutant.name
    passed = set(re.findall(r"Unit Testing:\s+(\S+)\n\s+SUCCESS", promtool.test(list(planted)).stdout))
    assert len(planted) > 70
    assert [name for path, name in planted.items() if str(path) in passed] == []


@pytest.mark.parametrize("rule", ALL, ids=name_of)
def test_a_rule_asks_only_for_what_there_is(rule: dict[str, Any]) -> None:
    assert mistakes_in(rule["expr"], RECORDED) == []


@pytest.mark.parametrize(
    ("mistaken", "told"),
    [
        ("increase(agent_runs_totl[5m])", "agent_runs_totl: no such metric"),
        ("agent_run_turns", "agent_run_turns: no such metric"),
        ("agent:runs:rate9h", "agent:runs:rate9h: no such metric"),
        ('agent_runs_total{why="poison"}', "agent_runs_total: no label 'why'"),
        ('agent_runs_total{stop_reason="repeat_call"}', "agent_runs_total: no stop_reason is 'repeat_call'"),
        ("sum by (agent, tool) (agent_runs_total)", "no series has the label 'tool'"),
    ],
)
def test_what_there_is_not_is_told_by_name(mistaken: str, told: str) -> None:
    assert mistakes_in(mistaken, RECORDED) == [told]


def test_runs_are_dead_by_every_reason_that_fails_a_run() -> None:
    (alert,) = (rule for rule in ALERTS if rule["alert"] == "PacelineDeadRuns")
    told = re.findall(r'stop_reason=~"([^"]*)"', alert["expr"])
    assert told[0].split("|") == [reason for reason, ending in ENDINGS.items() if ending.status is Status.FAILED]


@pytest.mark.parametrize("alert", ALERTS, ids=name_of)
def test_an_alert_says_how_bad_it_is_what_is_the_matter_and_where_to_read_on(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"info", "warning", "critical"}
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == f"docs/operations.md#alert-{alert['alert'].lower()}"


def test_the_page_of_operations_has_a_section_for_each_alert_and_no_other() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    assert re.findall(r"^### Alert: (\w+)$", page, re.MULTILINE) == [alert["alert"] for alert in ALERTS]


def test_no_two_rules_have_one_name() -> None:
    names = [name_of(rule) for rule in ALL]
    assert len(names) == len(set(names))


def test_every_recorded_series_is_asked_for_by_a_rule() -> None:
    wanted = {selector.name for rule in ALL for selector in asked(rule["expr"]).selectors}
    assert RECORDED - wanted == set()


def _alert_cases(test: dict[str, Any]) -> list[dict[str, Any]]:
    return list(test.get("alert_rule_test", ()))


def _tests_of(mutant: Mutant) -> dict[str, Any]:
    """The tests of the mutant's group that tell of an alert which it can change."""
    path = Path(__file__).parent / "rules" / f"{mutant.group['name'].removeprefix('paceline-')}.yaml"
    tests: dict[str, Any] = yaml.safe_load(path.read_text())
    return tests | {"tests": [test for test in tests["tests"] if _alerts_of(test) & mutant.alerts]}


def _alerts_of(test: dict[str, Any]) -> set[str]:
    return {case["alertname"] for case in _alert_cases(test)}
