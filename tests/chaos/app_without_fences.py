"""A mutant: the worker's Celery app over a record whose scripts take any write of a turn, whoever holds its claim."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from paceline.store import record
from paceline.store.scripts import Script, ScriptName, load_scripts
from paceline.worker.app import create_app
from paceline.worker.settings import Settings

FENCE = "if state ~= 'in_turn' or held ~= fence or turn ~= wanted then"


def scripts_without_fences() -> Mapping[ScriptName, Script]:
    """The scripts, with a fence that is never closed."""
    scripts = load_scripts()
    assert FENCE in scripts[ScriptName.FINISH].text, "the fence has moved: this mutant must follow it"
    return {name: replace(script, text=script.text.replace(FENCE, "if false then")) for name, script in scripts.items()}


record.load_scripts = scripts_without_fences  # type: ignore[attr-defined]  # that is the mutation
app = create_app(Settings.from_environment(os.environ))
