"""Planted mistakes in the rules: each changes one number or one waiting time, of one rule."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Rule = Mapping[str, Any]
Group = Mapping[str, Any]

_NUMBER = re.compile(r'(?<![\w.:\["])\d+(?:\.\d+)?(?![\w.\]:"])')
_DOUBLED: Mapping[str, str] = {"2m": "4m", "5m": "10m", "10m": "20m", "15m": "30m", "30m": "60m"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A group of rules with one mistake in it, and the names of the alerts that it can change."""

    name: str
    group: Group
    alerts: frozenset[str]


def mutants_of(group: Group) -> Iterator[Mutant]:
    """Every mistake that is planted in a group, one at a time. A mistaken alert stands without the other alerts."""
    for rule in group["rules"]:
        kept = [other for other in group["rules"] if other is rule or "record" in rule or "record" in other]
        alerts = frozenset(other["alert"] for other in kept if "alert" in other)
        for what, changed in _changes(rule):
            rules = [changed if other is rule else other for other in kept]
            yield Mutant(name=f"{name_of(rule)}: {what}", group={**group, "rules": rules}, alerts=alerts)


def name_of(rule: Rule) -> str:
    return str(rule.get("alert") or rule["record"])


def _changes(rule: Rule) -> Iterator[tuple[str, Rule]]:
    for number in _NUMBER.finditer(rule["expr"]):
        for other in _others(float(number[0])):
            yield f"{number[0]} is {other:g}", _with(rule, expr=_replaced(rule["expr"], number, f"{other:g}"))
    if "for" in rule:
        yield "at once", {key: value for key, value in rule.items() if key != "for"}
        yield f"for {_DOUBLED[rule['for']]}", _with(rule, **{"for": _DOUBLED[rule["for"]]})


def _others(number: float) -> tuple[float, float]:
    return (number * 1.25, number * 0.75) if number else (2, -1)


def _replaced(text: str, at: re.Match[str], by: str) -> str:
    return text[: at.start()] + by + text[at.end() :]


def _with(rule: Rule, **changed: Any) -> Rule:
    return {**copy.deepcopy(dict(rule)), **changed}
