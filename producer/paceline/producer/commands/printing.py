"""What commands print on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import typer


def print_json(data: object) -> None:
    """One line of JSON."""
    typer.echo(json.dumps(data, ensure_ascii=False))


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
    is_number = len(column) > 1 and all(cell[:1] in tuple("0123456789$") for cell in column[1:])
    return [cell.rjust(width) if is_number else cell.ljust(width) for cell in column]
