"""What happened, one JSON line a request: never a prompt's text, only hashes, ids and numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["accepted", "refused", "fault", "unread"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one request, named as on the wire."""

    input_tokens: int = 0
    cache_creation_5m_tokens: int = 0
    cache_creation_1h_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0

    @property
    def cache_creation_input_tokens(self) -> int:
        return self.cache_creation_5m_tokens + self.cache_creation_1h_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One request.

    `time` is when it came, in Unix seconds. `verdict` is `unread` when it never arrived whole. `rule` and `reason`
    say what was refused, `fault` what was injected. `batch_id` and `custom_id` are set for a request of a batch, which
    is written when its batch has ended.
    `message_hashes` ignore cache markers; `prefix_sha256` is of the bytes of system and tools as sent.
    `tool_result_ids` are those sent since the last assistant message, `tool_use_ids` those of the answer, both
    in order. `billed` is true once the model has spoken, `delivered` once the client has the whole answer.
    """

    time: float
    request_id: str
    verdict: Verdict
    status: int | None
    path: str = "/v1/messages"
    batch_id: str | None = None
    custom_id: str | None = None
    rule: int | None = None
    reason: str | None = None
    fault: str | None = None
    model: str | None = None
    run: str | None = None
    messages: int = 0
    turn: int = 0
    message_hashes: tuple[str, ...] = ()
    prefix_sha256: str | None = None
    tool_result_ids: tuple[str, ...] = ()
    tool_use_ids: tuple[str, ...] = ()
    stop_reason: str | None = None
    usage: Usage = Usage()
    billed: bool = False
    delivered: bool = True
    latency_s: float = 0.0


class Journal:
    """The entries of one simulator, in the order in which their requests ended.

    With a path each entry is also appended to that file and flushed; `Journal.read(path)` is the way back.
    """

    def __init__(self, path: str | Path | None = None, *, entries: Iterable[Entry] = (), keep: bool = True) -> None:
        self.entries: list[Entry] = list(entries)
        self._keep = keep
        self._file = open(path, "a", encoding="utf-8") if path is not None else None  # noqa: SIM115 (closed by close)

    @classmethod
    def read(cls, path: str | Path) -> Journal:
        """The journal in a file, as far as it is written: a last line that has no end yet is left out."""
        whole, _, _ = Path(path).read_text(encoding="utf-8").rpartition("\n")
        lines = whole.splitlines()
        return cls(entries=(_entry(json.loads(line)) for line in lines))

    def write(self, entry: Entry) -> None:
        """Add an entry."""
        if self._keep:
            self.entries.append(entry)
        if self._file is not None:
            self._file.write(json.dumps(_line(entry), separators=(",", ":")) + "\n")
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def accepted(self) -> list[Entry]:
        """Requests that the API would have accepted, lost answers included."""
        return [entry for entry in self.entries if entry.billed]

    def rejected(self) -> list[Entry]:
        """Requests that broke a rule."""
        return [entry for entry in self.entries if entry.verdict == "refused"]

    def by_run(self) -> dict[str | None, list[Entry]]:
        """Entries by `metadata.user_id`."""
        runs: dict[str | None, list[Entry]] = {}
        for entry in self.entries:
            runs.setdefault(entry.run, []).append(entry)
        return runs

    def grows_by_appending(self, run: str | None) -> bool:
        """Whether each accepted request of a run holds all messages of the one before, byte for byte but for
        cache markers, and the same system prompt and tools."""
        entries = sorted(self._billed(run), key=lambda entry: entry.time)
        return all(_extends(later, earlier) for earlier, later in pairwise(entries))

    def usage_totals(self, run: str | None = None) -> Usage:
        """Tokens billed: of one run, or of all."""
        entries = self._billed(run) if run is not None else self.accepted()
        return sum((entry.usage for entry in entries), Usage())

    def _billed(self, run: str | None) -> list[Entry]:
        return [entry for entry in self.accepted() if entry.run == run]


def _extends(later: Entry, earlier: Entry) -> bool:
    same_prefix = later.prefix_sha256 == earlier.prefix_sha256
    return same_prefix and later.message_hashes[: earlier.messages] == earlier.message_hashes


_ENTRY_FIELDS = tuple(each.name for each in fields(Entry))
_USAGE_FIELDS = tuple(each.name for each in fields(Usage))


def _line(entry: Entry) -> dict[str, Any]:
    # By hand: dataclasses.asdict copies every hash, and this runs once a request.
    usage = {name: getattr(entry.usage, name) for name in _USAGE_FIELDS}
    return {name: getattr(entry, name) for name in _ENTRY_FIELDS} | {"usage": usage}


def _entry(line: Mapping[str, Any]) -> Entry:
    lists = ("message_hashes", "tool_result_ids", "tool_use_ids")
    return Entry(
        **{**line, **{name: tuple(line[name]) for name in lists}, "usage": Usage(**line["usage"])},
    )
