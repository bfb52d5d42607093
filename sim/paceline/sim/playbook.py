"""What the simulated model says: rules from a YAML file, or a function.

The first rule whose `when` matches gives the answer. Named groups of its regular expressions fill the places
`{group}` in the answer's text and in the inputs of its calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from paceline.sim.answer import Answer
from paceline.sim.batches import AT_ONCE, BatchPlan
from paceline.sim.dialects import ANTHROPIC
from paceline.sim.faults import Injection
from paceline.sim.playbook_file import InjectionPart, PlaybookFile
from paceline.sim.playbook_mistakes import PlaybookError, mistakes
from paceline.sim.request import Request
from paceline.sim.switches import STRICT, Switches


@dataclass(frozen=True, slots=True)
class Playbook:
    """Answers for requests: `Playbook(function)`, `Playbook.parse(yaml_text)` or `Playbook.load(path)`.

    The function gets a `Request` and returns an `Answer`, or None when it has none. `switches`, `dialect` and
    `batches` say what kind of server speaks, and how its batches go.
    """

    answer: Callable[[Request], Answer | None]
    faults: tuple[InjectionPart, ...] = ()
    switches: Switches = STRICT
    dialect: str = ANTHROPIC.name
    batches: BatchPlan = AT_ONCE

    def injections(self) -> list[Injection]:
        """The faults the playbook asks for, none of them struck yet."""
        return [part.injection() for part in self.faults]

    @classmethod
    def load(cls, path: str | Path) -> Playbook:
        """Read a playbook file; raises `PlaybookError` with every mistake found."""
        return cls.parse(Path(path).read_text(encoding="utf-8"), name=str(path))

    @classmethod
    def parse(cls, text: str, *, name: str = "playbook") -> Playbook:
        """Read a playbook from its YAML, called `name` in errors."""
        written = _load_yaml(text, name)
        try:
            file = PlaybookFile.model_validate(written)
        except ValidationError as error:
            raise PlaybookError(f"{name} cannot be used:\n" + "\n".join(mistakes(error, written))) from error
        return cls(
            file.answer,
            file.faults,
            switches=file.switches.switches(),
            dialect=file.dialect,
            batches=file.batches.plan(),
        )

    def delayed(self, delay_s: float) -> Playbook:
        """The same playbook with this delay before every answer, in place of its own."""

        def answer(request: Request) -> Answer | None:
            own = self.answer(request)
            return None if own is None else replace(own, delay_s=delay_s)

        return replace(self, answer=answer)


def _load_yaml(text: str, name: str) -> dict[str, Any]:
    try:
        written = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PlaybookError(f"{name} is not YAML: {error}") from error
    if not isinstance(written, dict):
        raise PlaybookError(f"{name} must be a mapping with `rules:`, a list of rules")
    return written
