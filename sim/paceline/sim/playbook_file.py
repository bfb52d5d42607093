"""A playbook as it is written: the parts of its YAML, what each may hold, and how a rule becomes an answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from paceline.sim.answer import Answer
from paceline.sim.batches import BatchPlan
from paceline.sim.call import Call, ServerCall
from paceline.sim.dialects import ANTHROPIC, dialect_named
from paceline.sim.expressions import Captures, Expression, fill, places
from paceline.sim.faults import Fault, Injection
from paceline.sim.request import Request, ToolResult
from paceline.sim.switches import Switches


def _expression(value: object) -> Expression:
    if not isinstance(value, str):
        raise ValueError("a regular expression is text; put it in quotes")
    try:
        return Expression(value)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error


Regex = Annotated[Expression, BeforeValidator(_expression)]


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

    def captures(self, results: tuple[ToolResult, ...], known: Captures) -> Captures | None:
        """The groups of the first result that fits; None when none does."""
        return next((found for result in results if (found := self._in(result, known)) is not None), None)

    def _in(self, result: ToolResult, known: Captures) -> Captures | None:
        if self.tool not in (None, result.tool) or self.is_error not in (None, result.is_error):
            return None
        return self.text.captures(result.text, known) if self.text else {}


class When(_Part):
    """What a request must look like; all that is given must hold. `earlier` is looked for in every message, from
    the last back to the first."""

    turn: int | TurnRange | None = None
    model: Regex | None = None
    first_user: Regex | None = None
    earlier: Regex | None = None
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
        known: Captures = {"turn": str(request.turn)}
        for look in self._looks(request):
            found = look(known)
            if found is None:
                return None
            known |= found
        return known

    def _turn_holds(self, turn: int) -> bool:
        if isinstance(self.turn, TurnRange):
            return self.turn.holds(turn)
        return self.turn in (None, turn)

    def _looks(self, request: Request) -> Iterator[Callable[[Captures], Captures | None]]:
        """What to look for, in the order in which expressions may use each other's groups."""
        if self.model:
            yield partial(self.model.captures, request.model)
        if self.first_user:
            yield partial(self.first_user.captures, request.first_user_text)
        if self.earlier:
            yield partial(_latest, self.earlier, request)
        if self.last:
            yield partial(self.last.captures, request.last_text)
        for pattern in self.tool_results:
            yield partial(pattern.captures, request.tool_results)

    @property
    def expressions(self) -> list[Expression]:
        """In the order in which they may use each other's groups."""
        results = [pattern.text for pattern in self.tool_results]
        return [each for each in (self.model, self.first_user, self.earlier, self.last, *results) if each]

    @property
    def groups(self) -> set[str]:
        """Names that an answer may use."""
        return {"turn"}.union(*(each.groups for each in self.expressions))

    @model_validator(mode="after")
    def _places_are_filled_in_time(self) -> When:
        known = {"turn"}
        for each in self.expressions:
            _check_filled(set(each.places), known, "an expression")
            known |= each.groups
        return self


def _latest(expression: Expression, request: Request, known: Captures) -> Captures | None:
    found = (expression.captures(message.text, known) for message in reversed(request.sent))
    return next((each for each in found if each is not None), None)


def _check_filled(places: set[str], known: set[str], where: str) -> None:
    missing = sorted(places - known)
    if missing:
        name = missing[0]
        raise ValueError(
            f"{where} uses {{{name}}}, which no group before it fills; add (?P<{name}>...) to an expression of"
            f" `when`, or write {{{{{name}}}}} for the bare text"
        )


class CallPart(_Part):
    """A tool call; `times` of them run in parallel, each with its number, from 1, as `{i}`."""

    tool: str
    input: dict[str, Any] = {}
    times: int = Field(default=1, ge=1)
    by_code: bool = False

    def calls(self, captures: Captures) -> Iterator[Call]:
        for number in range(1, self.times + 1):
            filled = fill(self.input, captures | {"i": str(number)})
            yield Call(tool=self.tool, input=filled, by_code=self.by_code)


class ServerCallPart(_Part):
    """A call of a tool that the API runs; without a `result` it is left open."""

    tool: str
    input: dict[str, Any] = {}
    result: Any = None

    def call(self, captures: Captures) -> ServerCall:
        return ServerCall(tool=self.tool, input=fill(self.input, captures), result=fill(self.result, captures))


class FaultPart(_Part):
    """A fault, by name alone or with its options."""

    name: str
    retry_after: str | int | None = 1
    seconds: float = 1.0
    count: int = Field(default=8, ge=1)
    calls: tuple[CallPart, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_known(self) -> FaultPart:
        self.fault()
        return self

    def fault(self) -> Fault:
        calls = tuple(call for part in self.calls for call in part.calls({}))
        return Fault(self.name, self.retry_after, self.seconds, self.count, calls=calls)


class InjectionPart(_Part):
    """A fault and whom it strikes, as `Simulator.inject` takes them."""

    fault: FaultPart
    times: int | None = Field(default=None, ge=1)
    probability: float = Field(default=1.0, gt=0, le=1)
    seed: int = 0
    run: str | None = None
    model: str | None = None
    match: Regex | None = None
    for_s: float | None = Field(default=None, gt=0)
    after: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _can_strike(self) -> InjectionPart:
        self.injection()
        return self

    def injection(self) -> Injection:
        return Injection(
            fault=self.fault.fault(),
            times=self.times,
            probability=self.probability,
            seed=self.seed,
            run=self.run,
            model=self.model,
            match=self.match.text if self.match else None,
            for_s=self.for_s,
            after=self.after,
        )


class AnswerPart(_Part):
    """What the model says when the rule matches."""

    text: str = ""
    thinking: str | None = None
    server_calls: tuple[ServerCallPart, ...] = ()
    calls: tuple[CallPart, ...] = ()
    blocks: tuple[dict[str, Any], ...] | None = None
    stop_reason: str | None = None
    delay_s: float | None = Field(default=None, ge=0)
    output_tokens: int | None = Field(default=None, ge=1)
    fault: FaultPart | None = None

    @model_validator(mode="after")
    def _fault_is_late_enough(self) -> AnswerPart:
        Answer(fault=self.fault.fault() if self.fault else None)
        return self

    def answer(self, captures: Captures, delay_s: float) -> Answer:
        return Answer(
            text=fill(self.text, captures),
            thinking=None if self.thinking is None else fill(self.thinking, captures),
            server_calls=tuple(part.call(captures) for part in self.server_calls),
            blocks=None if self.blocks is None else fill(list(self.blocks), captures),
            calls=tuple(call for part in self.calls for call in part.calls(captures)),
            stop_reason=self.stop_reason,
            delay_s=delay_s if self.delay_s is None else self.delay_s,
            output_tokens=self.output_tokens,
            fault=self.fault.fault() if self.fault else None,
        )

    @property
    def places(self) -> set[str]:
        """Names in braces that the rule's groups must fill."""
        at_server = [[part.input, part.result] for part in self.server_calls]
        plain = places([self.text, self.thinking or "", at_server, list(self.blocks or ())])
        return plain | (places([part.input for part in self.calls]) - {"i"})


class RulePart(_Part):
    """One rule of a playbook."""

    name: str = ""
    when: When = When()
    answer: AnswerPart

    @model_validator(mode="after")
    def _every_place_is_filled(self) -> RulePart:
        _check_filled(self.answer.places, self.when.groups, "the answer")
        return self


class SwitchesPart(_Part):
    """Which of the rules that nobody could verify are let pass, and how old the account is."""

    unenforced: tuple[int, ...] = ()
    account_binds_thinking: bool = True

    @model_validator(mode="after")
    def _can_be_left_out(self) -> SwitchesPart:
        self.switches()
        return self

    def switches(self) -> Switches:
        return Switches(unenforced=self.unenforced, account_binds_thinking=self.account_binds_thinking)


class BatchesPart(_Part):
    """How batches go."""

    seconds: float = Field(default=0.0, ge=0)
    cancel_seconds: float = Field(default=0.0, ge=0)
    seed: int = 0

    def plan(self) -> BatchPlan:
        return BatchPlan(seconds=self.seconds, cancel_seconds=self.cancel_seconds, seed=self.seed)


def _known_dialect(name: str) -> str:
    return dialect_named(name).name


class PlaybookFile(_Part):
    """A playbook as it is written."""

    delay_s: float = Field(default=0.0, ge=0)
    rules: tuple[RulePart, ...]
    dialect: Annotated[str, AfterValidator(_known_dialect)] = ANTHROPIC.name
    switches: SwitchesPart = SwitchesPart()
    batches: BatchesPart = BatchesPart()
    faults: tuple[InjectionPart, ...] = ()

    def answer(self, request: Request) -> Answer | None:
        """The answer of the first rule that matches."""
        for rule in self.rules:
            captures = rule.when.captures(request)
            if captures is not None:
                return rule.answer.answer(captures, self.delay_s)
        return None
