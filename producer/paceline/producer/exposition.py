"""The page that Prometheus reads: from what is known of the fleet to the text. Pure, but for the library's registry.

Every series that can be known beforehand is there at 0: an `increase()` does not see a counter that starts at its
first increment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, product

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from paceline.core import metrics
from paceline.core.metrics import Kind, Metric
from paceline.store.port import CountedAgent, MetricsRead

from .queue_states import QueueState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]
Parts = dict[str, int]
"""Of one series: a number for each part, or one number under the empty name."""
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is known of the fleet. `queues` None: the broker cannot be asked."""

    read: MetricsRead
    queues: Mapping[str, QueueState] | None
    at_s: float
    """When it was read, seconds since the epoch."""


def page(reading: Reading | None) -> bytes:
    """The page; before anything was read it says only that."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(reading))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, reading: Reading | None) -> None:
        self._reading = reading

    def collect(self) -> Iterator[Family]:
        if self._reading:
            yield from _counted(self._reading.read)
            yield from _seen(self._reading)
        yield _gauge(metrics.LAST_SUCCESS, {(): self._reading.at_s if self._reading else 0.0})


# What was counted


def _counted(read: MetricsRead) -> Iterator[Family]:
    found = _series(read.counts)
    for metric in metrics.METRICS:
        if metric.kind is not Kind.GAUGE or metric in metrics.COUNTED_GAUGES:
            series = {labels: Parts() for labels in _known_labels(metric, read.agents, found)}
            yield _family(metric, series | found[metric.name])


def _series(counts: metrics.Counts) -> dict[str, dict[Labels, Parts]]:
    found: dict[str, dict[Labels, Parts]] = {metric.name: {} for metric in metrics.METRICS}
    for name, number in counts.items():
        field = metrics.read_field(name)
        if field:
            found[field.metric.name].setdefault(field.labels, {})[field.part] = number
    return found


def _known_labels(
    metric: Metric, agents: Mapping[str, CountedAgent], found: Mapping[str, Mapping[Labels, Parts]]
) -> Iterable[Labels]:
    """The series of a metric that there are, whether or not something was counted in them."""
    match metric.labels:
        case ("agent", "model") | ("agent", "model", _):
            named: Iterable[Labels] = [(name, metrics.label(agent.model)) for name, agent in agents.items()]
        case ("gen_ai_request_model", "gen_ai_agent_name"):
            named = [(metrics.label(agent.model), name) for name, agent in agents.items()]
        case ("gen_ai_request_model", "error_type"):
            models = {metrics.label(agent.model) for agent in agents.values()}
            return product(sorted(models), ("", *metrics.MODEL_ERRORS))
        case ("gen_ai_tool_name", "error_type"):
            tools = {metrics.OTHER_TOOLS, *(metrics.label(tool) for agent in agents.values() for tool in agent.tools)}
            return product(sorted(tools), ("", metrics.TOOL_ERROR))
        case ("agent" | "gen_ai_agent_name", *_):
            named = sorted({(name,) for name in agents} | {labels[:1] for labels in found[metrics.ACTIVE_RUNS.name]})
        case _:
            named = [()]
    known = [metrics.VALUES[label] for label in metric.labels if label in metrics.VALUES]
    return ((*names, *values) for names in named for values in product(*known))


def _family(metric: Metric, series: Mapping[Labels, Parts]) -> Family:
    match metric.kind:
        case Kind.HISTOGRAM:
            return _histogram(metric, series)
        case Kind.COUNTER:
            counter = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
            for labels, parts in series.items():
                counter.add_metric(labels, parts.get("", 0) / metric.per_unit)
            return counter
        case Kind.GAUGE:
            return _gauge(metric, {labels: parts.get("", 0) for labels, parts in series.items()})


def _histogram(metric: Metric, series: Mapping[Labels, Parts]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*map(floatToGoString, metric.buckets), "+Inf"]
    for labels, parts in series.items():
        counted = accumulate(_in_buckets(metric, parts))
        family.add_metric(
            labels, list(zip(bounds, counted, strict=True)), sum_value=parts.get(metrics.SUM, 0) / metric.per_unit
        )
    return family


def _in_buckets(metric: Metric, parts: Parts) -> list[int]:
    """What each bucket holds, the last one what is above all bounds."""
    counts = [0] * (len(metric.bounds) + 1)
    for part, number in parts.items():
        if part != metrics.SUM:
            counts[metrics.bucket_index(metric, part)] += number
    return counts


def _gauge(metric: Metric, values: Mapping[Labels, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


# What only a look tells


def _seen(reading: Reading) -> Iterator[Family]:
    read = reading.read
    budgets = {(name,): agent.cost_budget_usd for name, agent in read.agents.items()}
    yield _gauge(metrics.COST_BUDGET, {labels: usd for labels, usd in budgets.items() if usd is not None})
    yield _gauge(metrics.DEAD_LETTERS, {(): read.dead_letters})
    yield _gauge(metrics.WORKERS, {(): read.workers})
    if reading.queues is not None:
        yield from _of_queues(reading.queues, read.now_ms)


def _of_queues(queues: Mapping[str, QueueState], now_ms: int) -> Iterator[Family]:
    yield _gauge(metrics.QUEUE_DEPTH, {(name,): queue.depth for name, queue in queues.items()})
    yield _gauge(metrics.QUEUE_INFLIGHT, {(name,): queue.in_flight for name, queue in queues.items()})
    yield _gauge(metrics.QUEUE_OLDEST, {(name,): queue.oldest_age_seconds(now_ms) for name, queue in queues.items()})
