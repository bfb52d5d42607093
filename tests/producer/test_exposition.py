"""The page that Prometheus reads, by value."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.scraping import Page, parsed

from paceline.core import metrics
from paceline.core.endings import StopReason
from paceline.core.metrics import METRICS, Counts, Kind, field, observed
from paceline.core.usage import NANO_USD
from paceline.producer.exposition import Reading, page
from paceline.producer.queue_states import QueueState
from paceline.store.port import CountedAgent, MetricsRead

MODEL = "claude-sonnet-5-5"
ONCALL = CountedAgent(model=MODEL, tools=("search",), cost_budget_usd=0.5)
NOTHING_YET = MetricsRead(now_ms=10_000, counts={}, agents={"oncall": ONCALL}, dead_letters=0, workers=0)
QUEUE = QueueState(depth=3, in_flight=2, oldest_sent_ms=7_500)


READING = Reading(read=NOTHING_YET, queues={"paceline.turns": QUEUE}, at_s=12.5)


def shown(counts: Counts | None = None, read: MetricsRead = NOTHING_YET) -> Page:
    return parsed(page(replace(READING, read=replace(read, counts=counts or {}))))


def test_every_metric_is_there_with_its_kind_and_its_labels() -> None:
    found = shown()
    for metric in METRICS:
        name = metric.name.removesuffix("_total")
        assert found.kinds[name] == metric.kind.value
        sample = f"{name}_sum" if metric.kind is Kind.HISTOGRAM else metric.name
        assert found.labels[sample] == set(metric.labels), metric.name
    assert len(found.kinds) == len(METRICS)


def test_series_that_can_be_known_are_there_before_anything_counts_in_them() -> None:
    found = shown()
    for reason in StopReason:
        assert found.value("agent_runs_total", agent="oncall", stop_reason=reason) == 0
    for threshold in metrics.CONTEXT_THRESHOLDS:
        of_threshold = {"agent": "oncall", "model": MODEL, "threshold": threshold}
        assert found.value("agent_run_context_crossings_total", **of_threshold) == 0
    tokens = {"gen_ai_request_model": MODEL, "gen_ai_agent_name": "oncall"}
    assert found.value("gen_ai_client_inference_usage_input_tokens_total", **tokens) == 0
    for error_type in ("", "tool_error"):
        of_tool = {"gen_ai_tool_name": "search", "error_type": error_type}
        assert found.value("gen_ai_execute_tool_duration_seconds_count", **of_tool) == 0
    assert found.value("agent_queue_wait_seconds_count", queue="paceline.starts") == 0
    assert found.value("agent_holds", reason="throttled") == 0
    assert found.value("agent_sweeper_recoveries_total", recovery="turn") == 0


def test_a_histogram_is_cumulative_and_in_its_unit() -> None:
    counts = {
        **observed(metrics.RUN_COST, "oncall", stored=NANO_USD // 100),
        **{f"agent_run_cost_usd|oncall|{NANO_USD}": 2, "agent_run_cost_usd|oncall|inf": 1},
    }
    found = shown({**counts, "agent_run_cost_usd|oncall|sum": 62 * NANO_USD})
    buckets = {le: found.value("agent_run_cost_usd_bucket", agent="oncall", le=le) for le in ("0.005", "0.01", "1.0")}
    assert buckets == {"0.005": 0, "0.01": 1, "1.0": 3}
    assert found.value("agent_run_cost_usd_bucket", agent="oncall", le="+Inf") == 4
    assert found.value("agent_run_cost_usd_count", agent="oncall") == 4
    assert found.value("agent_run_cost_usd_sum", agent="oncall") == 62


def test_money_and_time_are_shown_in_dollars_and_seconds() -> None:
    found = shown(
        {
            field(metrics.COST, "oncall", MODEL): 1_500_000_000,
            **observed(metrics.RUN_SECONDS, "oncall", stored=1_500),
        }
    )
    assert found.value("agent_cost_usd_total", agent="oncall", model=MODEL) == 1.5
    assert found.value("agent_run_duration_seconds_sum", agent="oncall") == 1.5


def test_agents_that_are_only_counted_have_their_series_too() -> None:
    found = shown({field(metrics.ACTIVE_RUNS, "other", "queued"): 2})
    assert found.value("agent_active_runs", agent="other", state="queued") == 2
    assert found.value("agent_runs_total", agent="other", stop_reason="max_turns") == 0


@pytest.mark.parametrize(
    "name",
    [
        "agent_of_next_year_total|oncall",
        "agent_runs_total|oncall",
        "agent_runs_total|oncall|max_turns|more",
        "agent_run_turns",
    ],
)
def test_what_a_newer_version_counts_is_passed_over(name: str) -> None:
    assert shown({name: 3}).samples == shown().samples


def test_a_bucket_of_another_version_goes_to_the_first_that_holds_it() -> None:
    found = shown({"agent_run_turns|oncall|succeeded|7": 1, "agent_run_turns|oncall|succeeded|sum": 7})
    turns = {"agent": "oncall", "outcome": "succeeded"}
    assert [found.value("agent_run_turns_bucket", **turns, le=le) for le in ("6.0", "8.0")] == [0, 1]


def test_what_only_a_look_tells_is_shown_as_it_was_seen() -> None:
    read = replace(NOTHING_YET, dead_letters=4, workers=2)
    found = shown(read=read)
    assert (found.value("agent_dead_letters"), found.value("agent_workers")) == (4, 2)
    assert found.value("agent_run_cost_budget_usd", agent="oncall") == 0.5
    assert found.value("agent_exporter_last_success_timestamp_seconds") == 12.5
    of_queue = {"queue": "paceline.turns"}
    assert found.value("agent_queue_depth", **of_queue) == 3
    assert found.value("agent_queue_inflight", **of_queue) == 2
    assert found.value("agent_queue_oldest_message_age_seconds", **of_queue) == 2.5


def test_an_agent_without_a_budget_shows_none() -> None:
    read = replace(NOTHING_YET, agents={"oncall": replace(ONCALL, cost_budget_usd=None)})
    assert shown(read=read).of("agent_run_cost_budget_usd") == {}


def test_a_broker_that_cannot_be_asked_is_left_out() -> None:
    found = parsed(page(replace(READING, queues=None)))
    assert not [name for name, _ in found.samples if name in ("agent_queue_depth", "agent_queue_inflight")]
    assert found.value("agent_queue_wait_seconds_count", queue="paceline.turns") == 0


def test_before_anything_was_read_the_page_says_only_that() -> None:
    assert parsed(page(None)).samples == {("agent_exporter_last_success_timestamp_seconds", frozenset()): 0}
