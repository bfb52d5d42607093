"""Where rows come from: a JSONL file, or rows given in Python, which are first written to such a file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from paceline.core.errors import RowError

STANDARD_INPUT = "-"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSource:
    """A JSONL file that can be read again. `name` is what people call it, `place` what they call the n-th line."""

    path: Path
    name: str
    is_copy: bool = False
    place: str = "{name}:{number}"

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Each line that holds something, with its number from 1."""
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                text = line.removeprefix(_BOM) if number == 1 else line
                if text.strip():
                    yield number, text

    def identity(self) -> str:
        """What this input is called for ever: a file by its whole path, a copy by its content."""
        if not self.is_copy:
            return str(self.path.resolve())
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def where(self, number: int) -> str:
        """What people call the line of this number."""
        return self.place.format(name=self.name, number=number)


@contextmanager
def row_source(rows: str | os.PathLike[str] | Iterable[Mapping[str, Any]]) -> Iterator[RowSource]:
    """The rows of a file (`-`: standard input), or of an iterable of dictionaries. Raises RowError."""
    match rows:
        case str() if rows == STANDARD_INPUT:
            with _copied(sys.stdin.buffer) as source:
                yield source
        case str() | os.PathLike():
            yield _file(Path(rows))
        case _:
            with _spooled(rows) as source:
                yield source


def _file(path: Path) -> RowSource:
    if not path.exists():
        raise RowError(f"{path}: no such file: name a JSONL file with one row a line")
    if path.is_dir() or not os.access(path, os.R_OK):
        raise RowError(f"{path}: cannot be read: name a JSONL file with one row a line")
    if not path.is_file():
        raise RowError(f"{path}: not a regular file, and rows are read twice: write `-` and pipe it in")
    return RowSource(path=path, name=str(path))


@contextmanager
def _copied(stream: Any) -> Iterator[RowSource]:
    with TemporaryDirectory(prefix="paceline-rows-") as folder:
        path = Path(folder) / "rows.jsonl"
        with path.open("wb") as file:
            shutil.copyfileobj(stream, file)
        yield RowSource(path=path, name="standard input", is_copy=True)


@contextmanager
def _spooled(rows: Iterable[Mapping[str, Any]]) -> Iterator[RowSource]:
    with TemporaryDirectory(prefix="paceline-rows-") as folder:
        path = Path(folder) / "rows.jsonl"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(_line(row, number) for number, row in enumerate(rows, 1))
        yield RowSource(path=path, name="rows", is_copy=True, place="row {number}")


def _line(row: Mapping[str, Any], number: int) -> str:
    if not isinstance(row, Mapping):
        raise RowError(f"row {number}: a {type(row).__name__}, not a dictionary")
    try:
        return json.dumps(dict(row)) + "\n"
    except (TypeError, ValueError) as error:
        raise RowError(f"row {number}: not JSON: {error}") from None
