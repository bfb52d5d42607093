from __future__ import annotations

import re

import pytest

from paceline.core.metrics import (
    METRICS,
    MODEL_ERRORS,
    QUEUE_WAIT,
    RUN_COST,
    RUN_TURNS,
    RUNS,
    VALUES,
    Kind,
    bucket_of,
    field,
    label,
    observed,
)
from paceline.core.step import FailureKind
from paceline.core.usage import NANO_USD


def test_names_and_labels_are_prometheus_own() -> None:
    for metric in METRICS:
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in (metric.name, *metric.labels))
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_no_label_names_a_run_a_task_or_a_place() -> None:
    unbounded = {"run", "run_id", "task", "task_id", "worker", "pod", "host", "instance", "batch", "tenant", "call"}
    assert not unbounded & {label for metric in METRICS for label in metric.labels}


def test_only_histograms_have_buckets_and_theirs_ascend() -> None:
    for metric in METRICS:
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
        assert sorted(set(metric.bounds)) == list(metric.bounds)
        assert [bound / metric.per_unit for bound in metric.bounds] == pytest.approx(metric.buckets)


def test_every_label_is_a_name_of_the_fleets_own_or_has_known_values() -> None:
    own = {"agent", "model", "gen_ai_agent_name", "gen_ai_request_model", "gen_ai_tool_name", "error_type"}
    assert {label for metric in METRICS for label in metric.labels} == own | set(VALUES)


def test_models_fail_in_the_ways_that_the_loop_knows() -> None:
    assert {*MODEL_ERRORS} == {*FailureKind} - {FailureKind.UNREADY}, "then it was not asked"


def test_a_name_cannot_pass_for_two_labels_nor_be_without_end() -> None:
    assert label("a|b") == "a/b"
    assert len(label("x" * 999)) == 100


def test_a_field_is_the_metric_and_its_label_values() -> None:
    assert field(RUNS, "oncall", "max_turns") == "agent_runs_total|oncall|max_turns"


def test_an_observation_adds_to_its_bucket_and_to_the_sum() -> None:
    assert observed(RUN_TURNS, "oncall", "succeeded", stored=7) == {
        "agent_run_turns|oncall|succeeded|8": 1,
        "agent_run_turns|oncall|succeeded|sum": 7,
    }


@pytest.mark.parametrize(("usd", "bucket"), [(0.0, 0.001), (0.01, 0.01), (0.010000001, 0.02), (50, 50)])
def test_a_bucket_holds_what_is_at_most_its_bound(usd: float, bucket: float) -> None:
    assert bucket_of(RUN_COST, round(usd * NANO_USD)) == str(round(bucket * NANO_USD))


def test_what_is_above_all_bounds_has_a_bucket_too() -> None:
    assert bucket_of(QUEUE_WAIT, 3_600_001) == "inf"
