"""YAML with line numbers: what a file says, and on which line it says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

KeyPath = tuple[str | int, ...]
"""Where a value stands: `("limits", "usd")`, `("tools", 0)`."""


class NotYaml(ValueError):
    """A text is not YAML, or gives one key twice. `line` and `column` count from 1."""

    def __init__(self, message: str, *, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlFile:
    """Plain data, and the line of each key and list entry in it."""

    data: object
    lines: Mapping[KeyPath, int]

    def line_of(self, path: Sequence[str | int]) -> int:
        """The line of this value, or of the nearest one around it that has a line."""
        known = (self.lines.get(tuple(path[:length])) for length in range(len(path), 0, -1))
        return next((line for line in known if line is not None), 1)


def read_yaml(text: str) -> YamlFile:
    """Raises NotYaml. Only plain data: a tag that would make another object is refused."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        lines = _lines(root) if root else {}
        return YamlFile(data=yaml.safe_load(text), lines=lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NotYaml(
            error.problem or str(error), line=mark.line + 1 if mark else 1, column=mark.column + 1 if mark else 1
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotYaml(f"a character that YAML does not allow ({error.reason})", line=line, column=1) from None


def _lines(root: yaml.Node) -> dict[KeyPath, int]:
    lines: dict[KeyPath, int] = {}
    open_nodes: list[tuple[KeyPath, yaml.Node]] = [((), root)]
    entered: set[int] = set()
    while open_nodes:
        path, node = open_nodes.pop()
        # An alias leads to a node that was seen before, perhaps to one that holds itself.
        if id(node) not in entered:
            entered.add(id(node))
            for step, line, child in _children(node):
                lines[(*path, step)] = line
                open_nodes.append(((*path, step), child))
    return lines


def _children(node: yaml.Node) -> list[tuple[str | int, int, yaml.Node]]:
    if isinstance(node, yaml.SequenceNode):
        return [(index, child.start_mark.line + 1, child) for index, child in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        _refuse_twice(node)
        return [(str(key.value), key.start_mark.line + 1, child) for key, child in node.value]
    return []


def _refuse_twice(node: yaml.MappingNode) -> None:
    seen: dict[str, int] = {}
    for key, _ in node.value:
        name, mark = str(key.value), key.start_mark
        if name in seen:
            raise NotYaml(
                f"the key {name!r} is given twice, here and on line {seen[name]}: keep one",
                line=mark.line + 1,
                column=mark.column + 1,
            )
        seen[name] = mark.line + 1
