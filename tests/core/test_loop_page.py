"""The page about the loop tells of every ending, and as it is."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import yaml

from paceline.core.agent import Limits
from paceline.core.endings import ENDINGS, StopReason

PAGE = (Path(__file__).parents[2] / "docs" / "loop.md").read_text(encoding="utf-8")


def endings() -> dict[str, list[str]]:
    """The table of endings: the reason, then status, class and exception, without the marks."""
    table = PAGE.split("## Every ending")[1]
    rows = [[cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in table.split("\n") if "|" in line]
    return {row[0]: row[1:] for row in rows[2:]}


def test_the_page_has_every_stop_reason_in_the_order_of_the_code() -> None:
    assert list(endings()) == [reason.value for reason in StopReason]


def test_the_page_says_of_each_ending_what_the_code_says() -> None:
    for reason, (status, error_class, exception, *_) in endings().items():
        ending = ENDINGS[StopReason(reason)]
        said = (status, error_class, exception)
        assert said == (
            ending.status.value,
            ending.error_class.value if ending.error_class else "",
            ending.exception.__name__ if ending.exception else "",
        )


def test_the_page_says_what_each_ending_but_success_and_cancelling_asks_for() -> None:
    for reason, (status, *_, meaning, what_to_do) in endings().items():
        assert meaning
        assert bool(what_to_do) is (status in ("stopped", "failed")), reason


def test_the_limits_of_the_page_are_the_defaults() -> None:
    block = PAGE.split("```yaml")[1].split("```")[0]
    limits = yaml.safe_load(block)["limits"]
    limits["deadline_seconds"] = limits.pop("deadline")
    assert limits == asdict(Limits())
