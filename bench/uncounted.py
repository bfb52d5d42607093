"""A worker that counts nothing, for `celery -A bench.uncounted`: what counting costs is what the others cost more."""

from __future__ import annotations

import os
from collections.abc import Mapping

from paceline.core import counted
from paceline.core.metrics import NOTHING, Counts
from paceline.store import record
from paceline.store.scripts import Script, ScriptName, load_scripts
from paceline.worker.app import create_app
from paceline.worker.settings import Settings

_COUNTS_NOTHING = """
function tally() end
function observe() end
function tally_state() end
function tally_end() end
"""
"""Set behind `lib.lua`, whose own functions call these by the same names."""
_END_OF_LIB = "-- Move a run on whose calls all have results"


def _nothing(*_: object, **__: object) -> Counts:
    return NOTHING


def _scripts() -> Mapping[ScriptName, Script]:
    return {name: Script(_without_counts(script.text)) for name, script in load_scripts().items()}


def _without_counts(script: str) -> str:
    if "tally(" not in script:
        return script
    before, found, after = script.partition(_END_OF_LIB)
    if not found:
        raise RuntimeError(f"lib.lua has no line {_END_OF_LIB!r} any more: say where it ends")
    return f"{before}{_COUNTS_NOTHING}{found}{after}"


counted.written = counted.unanswered = counted.call_ran = counted.repeated = counted.added = _nothing
counted.context_used = lambda run, model, entries: None
vars(record)["load_scripts"] = _scripts
app = create_app(Settings.from_environment(os.environ))
