"""docs/failure-stories.md names tests that there are."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "failure-stories.md").read_text()
STORIES = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and "](http" in line]


def test_every_story_names_its_source_and_a_test() -> None:
    assert len(STORIES) >= 20
    for told, _, shown in STORIES:
        assert "](https://" in told
        assert re.search(r"`test_\w+`", shown), told


def test_every_test_that_is_named_is_there_once() -> None:
    there = Counter(_tests_of_the_tree())
    assert {name: there[name] for name in re.findall(r"`(test_\w+)`", PAGE) if there[name] != 1} == {}


def test_every_test_of_a_story_is_named() -> None:
    own = {name for path in TESTS.glob("stories/test_stories_*.py") for name in _tests_in(path)}
    assert own - set(re.findall(r"`(test_\w+)`", PAGE)) == set()


def _tests_of_the_tree() -> Iterator[str]:
    for path in TESTS.rglob("test_*.py"):
        yield from _tests_in(path)


def _tests_in(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name
