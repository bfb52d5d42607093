"""What expressions may ask for: the series of the table of metrics, and what the rules record."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from support.promql import Selector, asked

from paceline.core.metrics import METRICS, VALUES, Kind, Metric

SCRAPED = frozenset({"job", "instance"})
"""Labels that Prometheus adds to all that it reads."""


def _series_of(metric: Metric) -> dict[str, frozenset[str]]:
    labels = frozenset(metric.labels)
    if metric.kind is not Kind.HISTOGRAM:
        return {metric.name: labels}
    return {
        f"{metric.name}_bucket": labels | {"le"},
        f"{metric.name}_sum": labels,
        f"{metric.name}_count": labels,
    }


EXPORTED: Mapping[str, frozenset[str]] = MappingProxyType(
    {name: labels for metric in METRICS for name, labels in _series_of(metric).items()}
)
"""Every series that the exporter has, with its labels."""
PROMETHEUS_OWN: Mapping[str, frozenset[str]] = MappingProxyType(
    {"ALERTS": frozenset({"alertname", "alertstate", "severity"})}
)
"""Series that Prometheus makes of the alerts."""
_KNOWN = MappingProxyType({**EXPORTED, **PROMETHEUS_OWN})
_ANY_LABEL = frozenset[str]().union(*_KNOWN.values()) | SCRAPED


def mistakes_in(expression: str, recorded: Collection[str]) -> list[str]:
    """What an expression asks for that there is not, in words; `recorded` are the names that rules record."""
    wanted = asked(expression)
    return [
        *(mistake for selector in wanted.selectors for mistake in _mistakes_of(selector, recorded)),
        *(f"no series has the label {label!r}" for label in sorted(wanted.grouped_by - _ANY_LABEL)),
    ]


def _mistakes_of(selector: Selector, recorded: Collection[str]) -> Iterator[str]:
    labels = _ANY_LABEL if selector.name in recorded else _KNOWN.get(selector.name)
    if labels is None:
        yield f"{selector.name}: no such metric"
        return
    for label in sorted(selector.labels - labels - SCRAPED):
        yield f"{selector.name}: no label {label!r}"
    for label, value in selector.values.items():
        if value not in VALUES.get(label, (value,)):
            yield f"{selector.name}: no {label} is {value!r}"
