"""What a PromQL expression asks for: enough of the language for the rules and dashboards of this project."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_STRING = r'"(?:[^"\\]|\\.)*"'
_DURATIONS = re.compile(r"\[[^\]]*\]|\boffset\s+\w+")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_WORDS = re.compile(rf"({_STRING})|(?<![\w.])([a-zA-Z_:][\w:]*)(\s*\()?(\{{(?:{_STRING}|[^}}\"])*\}})?")
_MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({_STRING})")
_KEYWORDS = frozenset({"and", "or", "unless", "bool", "by", "without", "on", "ignoring", "group_left", "group_right"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A series that is asked for, with the values that its labels must have (or, by `!=`, must not)."""

    name: str
    values: Mapping[str, str] = field(default_factory=dict)
    patterns: frozenset[str] = frozenset()
    """Labels that are matched by a regular expression."""

    @property
    def labels(self) -> frozenset[str]:
        return self.patterns | self.values.keys()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an expression asks for: its selectors, and the labels that it groups or joins by."""

    selectors: tuple[Selector, ...]
    grouped_by: frozenset[str]


def asked(expression: str) -> Asked:
    """Take an expression apart. It is taken to be well-formed: that is for Prometheus to say."""
    flat = _DURATIONS.sub(" ", expression)
    grouped = {label.strip() for labels in _GROUPING.findall(flat) for label in labels.split(",")}
    return Asked(selectors=tuple(_selectors(_GROUPING.sub(" ", flat))), grouped_by=frozenset(grouped - {""}))


def _selectors(flat: str) -> list[Selector]:
    found = []
    for string, word, call, matchers in _WORDS.findall(flat):
        if not string and not call and word not in _KEYWORDS:
            found.append(_selector(word, matchers))
    return found


def _selector(name: str, matchers: str) -> Selector:
    parts = _MATCHER.findall(matchers)
    return Selector(
        name=name,
        values={label: value[1:-1] for label, operator, value in parts if "~" not in operator},
        patterns=frozenset(label for label, operator, _ in parts if "~" in operator),
    )
