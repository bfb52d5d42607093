"""Regular expressions that capture, and templates that what was captured fills."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# A repetition such as {3} or {2,5} begins with a digit.
_PLACE_IN_REGEX = re.compile(r"(?<!\\)\{([A-Za-z_]\w*)\}")
_PLACE = re.compile(r"\{\{|\}\}|\{(\w+)\}")
Captures = dict[str, str]


class Expression:
    """A regular expression. `{name}` in it stands for what an earlier expression of its rule captured."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.places = _PLACE_IN_REGEX.findall(text)
        filled = _PLACE_IN_REGEX.sub("x", text)
        self.groups = set(re.compile(filled).groupindex)
        self._pattern = None if self.places else re.compile(text)

    def captures(self, text: str, known: Captures) -> Captures | None:
        """The groups of the first place in `text` that fits; None when none does."""
        pattern = self._pattern or re.compile(_PLACE_IN_REGEX.sub(lambda place: re.escape(known[place[1]]), self.text))
        match = pattern.search(text)
        return None if match is None else {name: value or "" for name, value in match.groupdict().items()}


def fill(template: Any, captures: Mapping[str, str]) -> Any:
    """`template` with every `{name}` in its texts filled; `{{` and `}}` are bare braces."""
    match template:
        case str():
            return _PLACE.sub(lambda place: captures[place[1]] if place[1] else place[0][0], template)
        case dict():
            return {key: fill(value, captures) for key, value in template.items()}
        case list():
            return [fill(value, captures) for value in template]
        case _:
            return template


def places(template: Any) -> set[str]:
    match template:
        case str():
            return {place[1] for place in _PLACE.finditer(template) if place[1]}
        case dict():
            return places(list(template.values()))
        case list():
            return set().union(*(places(value) for value in template))
        case _:
            return set()
