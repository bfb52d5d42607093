"""Results as JSONL, in the order of the input: the file is there whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from paceline.core.errors import UsageError

from .result import Result


def write_results(path: Path, results: Iterable[Result]) -> int:
    """Write all results, then give the file its name. How many there were. UsageError if it cannot be written."""
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return _written_and_renamed(path, results)


def refuse_unwritable(path: Path) -> None:
    """Raises UsageError if results could not be written to this file, before they cost anything. Makes its folder."""
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.").close()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def result_line(result: Result) -> str:
    """A result as a line of JSON."""
    return json.dumps(result.to_json(), ensure_ascii=False) + "\n"


def _written_and_renamed(path: Path, results: Iterable[Result]) -> int:
    count = 0
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            for result in results:
                file.write(result_line(result))
                count += 1
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o666 & ~_umask())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
    return count


def _umask() -> int:
    # The only way to read it is to set it.
    current = os.umask(0o077)
    os.umask(current)
    return current
