"""What the simulated model says: rules from a YAML file, or a function.

The first rule whose `when` matches gives the answer. Named groups of its regular expressions fill the places
`{group}` in the answer's text and in the inputs of its calls.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from paceline.sim.answer import Answer, Call
from paceline.sim.request import Request, ToolResult

_PLACE = re.compile(r"\{\{|\}\}|\{(\w+)\}")
Captures = dict[str, str]


class PlaybookError(ValueError):
    """A playbook that cannot be used; the text names the file, the rule and the fix."""


def _compile(value: object) -> re.Pattern[str]:
    if not isinstance(value, str):
        raise ValueError("a regular expression is text; put it in quotes")
    try:
        return re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error


Regex = Annotated[re.Pattern[str], BeforeValidator(_compile)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class TurnRange(_Part):
    """Turns from `from` to `to`, both included; an open end is unbounded."""

    first: int = Field(default=1, alias="from", ge=1)
    last: int | None = Field(default=None, alias="to", ge=1)

    def holds(self, turn: int) -> bool:
        return self.first <= turn and (self.last is None or turn <= self.last)


class ResultPattern(_Part):
    """One tool result of the last message."""

    tool: str | None = None
    text: Regex | None = None
    is_error: bool | None = None

    def captures(self, results: tuple[ToolResult, ...]) -> Captures | None:
        """The groups of the first result that fits; None when none does."""
        return next((found for result in results if (found := self._in(result)) is not None), None)

    def _in(self, result: ToolResult) -> Captures | None:
        if self.tool not in (None, result.tool) or self.is_error not in (None, result.is_error):
            return None
        return _search(self.text, result.text)


class When(_Part):
    """What a request must look like; all that is given must hold."""

    turn: int | TurnRange | None = None
    model: Regex | None = None
    first_user: Regex | None = None
    last: Regex | None = None
    tool_results: tuple[ResultPattern, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _one_result_is_a_list(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("tool_results"), dict):
            return {**value, "tool_results": [value["tool_results"]]}
        return value

    def captures(self, request: Request) -> Captures | None:
        """The groups of every expression; None unless everything holds."""
        if not self._turn_holds(request.turn):
            return None
        captures: Captures = {"turn": str(request.turn)}
        for found in self._each(request):
            if found is None:
                return None
            captures |= found
        return captures

    def _turn_holds(self, turn: int) -> bool:
        if isinstance(self.turn, TurnRange):
            return self.turn.holds(turn)
        return self.turn in (None, turn)

    def _each(self, request: Request) -> Iterator[Captures | None]:
        yield _search(self.model, request.model)
        yield _search(self.first_user, request.first_user_text) if self.first_user else {}
        yield _search(self.last, request.last_text) if self.last else {}
        for pattern in self.tool_results:
            yield pattern.captures(request.tool_results)

    @property
    def groups(self) -> set[str]:
        """Names that an answer may use."""
        patterns = [self.model, self.first_user, self.last, *(result.text for result in self.tool_results)]
        return {"turn", *(name for pattern in patterns if pattern for name in pattern.groupindex)}


class CallPart(_Part):
    """A tool call; `times` of them run in parallel, each with its number, from 1, as `{i}`."""

    tool: str
    input: dict[str, Any] = {}
    times: int = Field(default=1, ge=1)

    def calls(self, captures: Captures) -> Iterator[Call]:
        for number in range(1, self.times + 1):
            yield Call(tool=self.tool, input=_fill(self.input, captures | {"i": str(number)}))


class AnswerPart(_Part):
    """What the model says when the rule matches."""

    text: str = ""
    calls: tuple[CallPart, ...] = ()
    stop_reason: str | None = None
    delay_s: float | None = Field(default=None, ge=0)
    output_tokens: int | None = Field(default=None, ge=1)

    def answer(self, captures: Captures, delay_s: float) -> Answer:
        return Answer(
            text=_fill(self.text, captures),
            calls=tuple(call for part in self.calls for call in part.calls(captures)),
            stop_reason=self.stop_reason,
            delay_s=delay_s if self.delay_s is None else self.delay_s,
            output_tokens=self.output_tokens,
        )

    @property
    def places(self) -> set[str]:
        """Names in braces that the rule's groups must fill."""
        return _places(self.text) | (_places([part.input for part in self.calls]) - {"i"})


class RulePart(_Part):
    """One rule of a playbook."""

    name: str = ""
    when: When = When()
    answer: AnswerPart

    @model_validator(mode="after")
    def _every_place_is_filled(self) -> RulePart:
        missing = sorted(self.answer.places - self.when.groups)
        if missing:
            raise ValueError(
                f"the answer uses {{{missing[0]}}}, which no group of `when` fills; add (?P<{missing[0]}>...)"
                f" to one of its expressions, or write {{{{{missing[0]}}}}} for the bare text"
            )
        return self


class PlaybookFile(_Part):
    """A playbook as it is written."""

    delay_s: float = Field(default=0.0, ge=0)
    rules: tuple[RulePart, ...] = Field(min_length=1)

    def answer(self, request: Request) -> Answer | None:
        """The answer of the first rule that matches."""
        for rule in self.rules:
            captures = rule.when.captures(request)
            if captures is not None:
                return rule.answer.answer(captures, self.delay_s)
        return None


@dataclass(frozen=True, slots=True)
class Playbook:
    """Answers for requests: `Playbook(function)`, `Playbook.parse(yaml_text)` or `Playbook.load(path)`.

    The function gets a `Request` and returns an `Answer`, or None when it has none.
    """

    answer: Callable[[Request], Answer | None]

    @classmethod
    def load(cls, path: str | Path, delay_s: float | None = None) -> Playbook:
        """Read a playbook file; `delay_s` replaces the delay the file gives answers that name none."""
        return cls.parse(Path(path).read_text(encoding="utf-8"), name=str(path), delay_s=delay_s)

    @classmethod
    def parse(cls, text: str, *, name: str = "playbook", delay_s: float | None = None) -> Playbook:
        """Read a playbook from its YAML; raises `PlaybookError` with every mistake found."""
        written = _load_yaml(text, name)
        if delay_s is not None:
            written = {**written, "delay_s": delay_s}
        try:
            return cls(PlaybookFile.model_validate(written).answer)
        except ValidationError as error:
            mistakes = "\n".join(f"  {_mistake(found, written)}" for found in error.errors())
            raise PlaybookError(f"{name} cannot be used:\n{mistakes}") from error


def _load_yaml(text: str, name: str) -> dict[str, Any]:
    try:
        written = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PlaybookError(f"{name} is not YAML: {error}") from error
    if not isinstance(written, dict):
        raise PlaybookError(f"{name} must be a mapping with `rules:`, a list of rules")
    return written


def _mistake(found: Any, written: dict[str, Any]) -> str:
    path = [part for part in found["loc"] if part not in ("int", "TurnRange")]
    where, path = _where(path, written)
    field = ".".join(str(part) for part in path)
    return f"{where}{field}{': ' if field else ''}{_advice(found, path)}"


def _where(path: list[Any], written: dict[str, Any]) -> tuple[str, list[Any]]:
    """The rule that a path leads into, as a reader would name it, and the rest of the path."""
    if len(path) < 2 or path[0] != "rules" or not isinstance(path[1], int):
        return "", path
    rule = written["rules"][path[1]]
    name = f" ({rule['name']})" if isinstance(rule, dict) and rule.get("name") else ""
    return f"rule {path[1] + 1}{name}: ", path[2:]


_FIELDS = {
    name
    for part in (PlaybookFile, RulePart, When, TurnRange, ResultPattern, AnswerPart, CallPart)
    for name in (field.alias or key for key, field in part.model_fields.items())
}


def _advice(found: Any, path: list[Any]) -> str:
    match found["type"]:
        case "extra_forbidden":
            near = difflib.get_close_matches(str(path[-1]), sorted(_FIELDS), n=1)
            return "unknown field; " + (f"did you mean `{near[0]}`?" if near else "remove it")
        case "missing":
            return "missing; add it"
        case "value_error":
            return str(found["ctx"]["error"])
        case _:
            return f"{found['msg']}, not {found['input']!r}"


def _search(pattern: re.Pattern[str] | None, text: str) -> Captures | None:
    if pattern is None:
        return {}
    match = pattern.search(text)
    return None if match is None else {name: value or "" for name, value in match.groupdict().items()}


def _fill(template: Any, captures: Mapping[str, str]) -> Any:
    """`template` with every `{name}` in its texts filled; `{{` and `}}` are bare braces."""
    match template:
        case str():
            return _PLACE.sub(lambda place: captures[place[1]] if place[1] else place[0][0], template)
        case dict():
            return {key: _fill(value, captures) for key, value in template.items()}
        case list():
            return [_fill(value, captures) for value in template]
        case _:
            return template


def _places(template: Any) -> set[str]:
    match template:
        case str():
            return {place[1] for place in _PLACE.finditer(template) if place[1]}
        case dict():
            return _places(list(template.values()))
        case list():
            return set().union(*(_places(value) for value in template))
        case _:
            return set()
