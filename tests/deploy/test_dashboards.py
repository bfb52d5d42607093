"""The dashboards are what `helm/dashboards.py` makes, ask only for what there is, and say what they show."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from dashboards import DASHBOARDS, FOLDER
from deploy.known_series import mistakes_in
from grafana import rendered

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "helm" / "paceline" / "files" / "rules.yaml").read_text())
RECORDED = frozenset(rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule)
FILES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
PANELS = [(name, panel) for name, board in FILES.items() for panel in board["panels"] if panel["type"] != "row"]
TARGETS = [(name, panel["title"], target) for name, panel in PANELS for target in panel["targets"]]
UNITS = {"short", "s", "percentunit", "currencyUSD"}

each_board = pytest.mark.parametrize("board", FILES.values(), ids=FILES.keys())
each_panel = pytest.mark.parametrize("panel", [p for _, p in PANELS], ids=[f"{b}-{p['title']}" for b, p in PANELS])


def test_the_files_are_what_the_python_file_makes() -> None:
    made = {f"{dashboard.name}.json": rendered(dashboard) for dashboard in DASHBOARDS}
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == made, "run `python helm/dashboards.py`"


@pytest.mark.parametrize(("name", "title", "target"), TARGETS, ids=[f"{n}-{t}-{a['refId']}" for n, t, a in TARGETS])
def test_a_panel_asks_only_for_what_there_is(name: str, title: str, target: dict[str, Any]) -> None:
    assert mistakes_in(target["expr"], RECORDED) == []


@each_panel
def test_a_panel_says_what_it_shows_and_in_which_unit(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert all(target["legendFormat"] for target in panel["targets"])


@each_panel
def test_the_lines_of_a_panel_have_names_of_their_own(panel: dict[str, Any]) -> None:
    for values in ([t["legendFormat"] for t in panel["targets"]], [t["refId"] for t in panel["targets"]]):
        assert len(set(values)) == len(values)


@each_panel
def test_a_legend_names_only_labels_that_the_query_keeps(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            assert re.search(rf"by \([^)]*\b{label}\b[^)]*\)|^agent:", target["expr"]), target


@each_board
def test_a_board_is_of_the_data_source_that_the_reader_chooses(board: dict[str, Any]) -> None:
    assert (
        board["templating"]["list"][0] | {"type": "datasource", "query": "prometheus"} == board["templating"]["list"][0]
    )
    sources = re.findall(r'"uid": "([^"]+)"', json.dumps(board["panels"] + board["templating"]["list"]))
    assert set(sources) == {"${datasource}"}


@each_board
def test_every_variable_is_used_and_every_one_used_is_there(board: dict[str, Any]) -> None:
    told = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(board["panels"])))
    assert used == told


@each_board
def test_what_is_asked_is_of_the_chosen_fleets(board: dict[str, Any]) -> None:
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            assert 'job=~"$job"' in target["expr"] or "ALERTS" in target["expr"]


@each_board
def test_panels_lie_side_by_side_within_the_width(board: dict[str, Any]) -> None:
    places = [panel["gridPos"] for panel in board["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert [pair for pair in itertools.combinations(places, 2) if _overlap(*pair)] == []


def test_boards_and_panels_have_names_and_numbers_of_their_own() -> None:
    assert (
        len({board["uid"] for board in FILES.values()})
        == len({board["title"] for board in FILES.values()})
        == len(FILES)
    )
    for board in FILES.values():
        numbers = [panel["id"] for panel in board["panels"]]
        assert len(set(numbers)) == len(numbers)


def test_a_panel_draws_the_threshold_of_its_alert() -> None:
    drawn = {panel["title"]: panel["fieldConfig"]["defaults"]["thresholds"]["steps"] for _, panel in PANELS}
    assert _number("PacelineQueueOld", r"> (\d+)") == drawn["Age of the oldest message"][-1]["value"]
    assert _number("PacelineExporterStale", r"> (\d+)") == drawn["Record read"][-1]["value"]
    assert (
        _number("PacelineRepeatedCalls", r"> ([\d.]+)")
        == drawn["Runs stopped for repeating a call, last hour"][-1]["value"]
    )
    assert _number("PacelineCacheShareLow", r"< ([\d.]+)") == drawn["Share of input from the cache"][-1]["value"]
    assert (
        _number("PacelineContextP95High", r">= ([\d.]+)")
        == drawn["Context window used, 95th percentile of the last hour"][-1]["value"]
    )


def _number(alert: str, pattern: str) -> float:
    (expression,) = (rule["expr"] for g in RULES["groups"] for rule in g["rules"] if rule.get("alert") == alert)
    return float(re.findall(pattern, expression)[0])


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in ("xw", "yh"))
