"""docs/metrics.md has the table of metrics, word for word."""

from __future__ import annotations

from pathlib import Path

from paceline.core.metrics import METRICS, VALUES

PAGE = (Path(__file__).parent.parent.parent / "docs" / "metrics.md").read_text()


def _rows(first_cells: str) -> list[str]:
    lines = PAGE.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first_cells} |")) + 2
    end = next(number for number, line in enumerate(lines[start:], start) if not line.startswith("|"))
    return lines[start:end]


def _code(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "-"


def test_the_page_lists_every_metric_as_the_code_has_it() -> None:
    assert _rows("metric | kind") == [
        f"| `{metric.name}` | {metric.kind} | {_code(metric.labels)} | {metric.help} |" for metric in METRICS
    ]


def test_the_page_lists_every_value_of_the_labels_that_have_known_ones() -> None:
    expected = [f"| `{label}` | {_code(values)} |" for label, values in VALUES.items()]
    assert [row for row in _rows("label | values") if not row.startswith("| `error_type` |")] == expected
