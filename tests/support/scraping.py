"""The exporter's page as Prometheus understands it."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The samples of a page, by name and labels, and the kind of each metric."""

    samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]
    kinds: Mapping[str, str]
    labels: Mapping[str, frozenset[str]]
    """The labels of each name's samples."""

    def value(self, name: str, **labels: str) -> float:
        """One sample. Raises KeyError if there is none."""
        return self.samples[name, frozenset(labels.items())]

    def of(self, name: str, **labels: str) -> Mapping[frozenset[tuple[str, str]], float]:
        """The samples of this name that have these labels, by the labels that they have besides."""
        wanted = frozenset(labels.items())
        return {
            having - wanted: value for (own, having), value in self.samples.items() if own == name and wanted <= having
        }


def parsed(page: bytes) -> Page:
    """A page, read by Prometheus's own library."""
    families = list(text_string_to_metric_families(page.decode()))
    samples = [sample for family in families for sample in family.samples]
    return Page(
        samples={(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples},
        kinds={family.name: family.type for family in families},
        labels={sample.name: frozenset(sample.labels) for sample in samples},
    )


def scraped(url: str) -> Page:
    """The page that an exporter serves at present."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return parsed(answer.read())
