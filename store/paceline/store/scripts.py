"""The scripts: one Lua file a transition, each behind the shared `lib.lua`, called by digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from importlib.resources import files

from paceline.core.metrics import OBSERVED_IN_SCRIPTS


class ScriptName(StrEnum):
    """The transitions; `lua/<name>.lua` says what each does and answers."""

    CREATE = "create"
    BEGIN = "begin"
    OPEN_CALLS = "open_calls"
    GO_ON = "go_on"
    HOLD = "hold"
    RECOVER = "recover"
    FINISH = "finish"
    BEGIN_CALL = "begin_call"
    FINISH_CALL = "finish_call"
    RESULTS = "results"
    JOIN = "join"
    EXAMINE = "examine"
    LET_GO = "let_go"
    LOOK_AGAIN = "look_again"
    SEND_AGAIN = "send_again"
    RECOVER_CALL = "recover_call"
    DOUBT = "doubt"
    RULE_OUT = "rule_out"
    RESOLVE = "resolve"
    APPROVE = "approve"
    CANCEL = "cancel"
    REMAINS = "remains"
    REDRIVE = "redrive"
    RESERVE = "reserve"


_ON_THEIR_OWN = frozenset({ScriptName.RESERVE})
"""They touch no run."""


@dataclass(frozen=True)
class Script:
    """A script's text, and the digest by which a server that has seen it knows it."""

    text: str

    @cached_property
    def sha(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


def load_scripts() -> Mapping[ScriptName, Script]:
    """Every script, read from the package."""
    folder = files(__package__) / "lua"
    shared = _bounds() + (folder / "lib.lua").read_text()
    own = {name: (folder / f"{name}.lua").read_text() for name in ScriptName}
    return {name: Script(text if name in _ON_THEIR_OWN else shared + text) for name, text in own.items()}


def _bounds() -> str:
    """The buckets of the metrics that scripts observe, as the Lua function `bounds_of`."""
    cases = [
        f"  if metric == '{metric.name}' then return {{{','.join(map(str, metric.bounds))}}} end\n"
        for metric in OBSERVED_IN_SCRIPTS
    ]
    return f"local function bounds_of(metric)\n{''.join(cases)}end\n"


Argument = str | bytes | int


def flat(*parts: Argument | Sequence[Argument]) -> list[Argument]:
    """Arguments in one list; a list among them is preceded by its length, as `take_number` expects."""
    out: list[Argument] = []
    for part in parts:
        if isinstance(part, str | bytes | int):
            out.append(part)
        else:
            out += [len(part), *part]
    return out


def pairs(items: Iterable[tuple[Argument, Argument]]) -> list[Argument]:
    """The number of pairs and then each of them."""
    listed = list(items)
    return [len(listed), *(value for pair in listed for value in pair)]
