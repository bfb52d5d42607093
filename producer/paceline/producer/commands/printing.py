"""What commands print on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import typer


def print_json(data: object) -> None:
    """One line of JSON."""
    typer.echo(json.dumps(data, ensure_ascii=False))


_NUMBERS = frozenset(
    (
        *("turn", "turns", "rows", "queued", "running", "on hold", "to decide", "succeeded", "other ends", "cost"),
        *("input tokens", "cache written", "cache read", "output tokens", "input cost", "output cost"),
        *("today", "p50", "p95", "recommended"),
    )
)
"""The columns whose cells are numbers, whatever stands in them: one cell without a number moves no other."""


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table of plain text: names to the left, numbers to the right, and nothing ever cut or folded."""
    for line in table_lines(header, rows):
        typer.echo(line)


def table_lines(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of the table."""
    cells = [[str(cell) for cell in row] for row in rows]
    columns = list(zip(header, *cells, strict=True))
    aligned = [_aligned(column) for column in columns]
    return ["   ".join(line).rstrip() for line in zip(*aligned, strict=True)]


def _aligned(column: Sequence[str]) -> list[str]:
    width = max(len(cell) for cell in column)
    return [cell.rjust(width) if column[0] in _NUMBERS else cell.ljust(width) for cell in column]
