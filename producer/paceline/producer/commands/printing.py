"""What commands print on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import typer


def print_json(data: object) -> None:
    """One line of JSON."""
    typer.echo(json.dumps(data, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table of plain text, its first column to the left; numbers to the right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    cells = [[str(cell) for cell in row] for row in rows]
    for column, name in enumerate(header):
        is_number = column > 0 and all(row[column][:1] in "0123456789$-" for row in cells)
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    Console(highlight=False, markup=False, soft_wrap=False).print(table)
