from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from paceline.core.ids import CallId, RunId
from paceline.core.tool_spec import Approval, Effect, Placement, ToolSpec
from paceline.tools import Tool, ToolContext, ToolDefinitionError, tool

CTX = ToolContext(run_id=RunId("batch-row"), turn=3, call_id=CallId("toolu_1"))


def test_a_bare_tool_has_the_safest_options() -> None:
    @tool
    def send_mail(to: str) -> None:
        """Send a mail."""

    assert send_mail.spec == ToolSpec(
        name="send_mail",
        path=f"{__name__}:{test_a_bare_tool_has_the_safest_options.__name__}.<locals>.send_mail",
        description="Send a mail.",
        input_schema={
            "type": "object",
            "properties": {"to": {"type": "string"}},
            "additionalProperties": False,
            "required": ["to"],
        },
        effect=Effect.ONCE,
        placement=Placement.FLEET,
        timeout_s=60.0,
        max_result_chars=20_000,
        repeatable=False,
        approval=Approval.NEVER,
    )


def test_each_option_reaches_the_spec() -> None:
    @tool(
        effect="reads",
        placement="inline",
        timeout_s=2.5,
        max_result_chars=1000,
        repeatable=True,
        name="page-reader",
    )
    def get_page(path: str) -> str:
        """Read a page."""
        return path

    spec = get_page.spec
    assert (spec.effect, spec.placement, spec.approval) == (Effect.READS, Placement.INLINE, Approval.NEVER)
    assert (spec.timeout_s, spec.max_result_chars, spec.repeatable, spec.name) == (2.5, 1000, True, "page-reader")


def test_a_tool_may_want_an_approval_of_each_call() -> None:
    @tool(approval="always")
    def pay(cents: int) -> str:
        """Pay."""
        return ""

    assert pay.spec.approval is Approval.ALWAYS


def test_a_tool_is_still_callable_as_its_function() -> None:
    @tool(effect="reads")
    def double(number: int) -> int:
        """Twice the number."""
        return 2 * number

    assert double(21) == 42
    assert isinstance(double, Tool)


def test_the_description_is_the_docstring_without_its_indentation() -> None:
    @tool
    def f() -> None:
        """First line.

        More, indented
            as written.
        """

    assert f.spec.description == "First line.\n\nMore, indented\n    as written."


def test_a_spec_survives_json_and_is_valid_for_the_api() -> None:
    @tool(effect="idempotent")
    def f(rows: list[dict[str, int]], label: str | None = None) -> None:
        """Do it."""

    assert ToolSpec.from_json(f.spec.to_json()) == f.spec
    definition = f.spec.definition()
    assert set(definition) == {"name", "description", "input_schema"}
    Draft202012Validator.check_schema(definition["input_schema"])


def no_hint(path) -> None:  # type: ignore[no-untyped-def]
    """Documented."""


def star_args(*paths: str) -> None:
    """Documented."""


def star_kwargs(**options: str) -> None:
    """Documented."""


def no_docstring(path: str) -> None: ...


def blank_docstring(path: str) -> None:
    """ """


def yields(path: str) -> Iterator[str]:
    """Documented."""
    yield path


async def yields_async(path: str) -> AsyncIterator[str]:
    """Documented."""
    yield path


def unresolvable(path: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Documented."""


def not_json(good: str, bad: Callable[[], None]) -> None:
    """Documented."""


def two_contexts(a: ToolContext, b: ToolContext) -> None:
    """Documented."""


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_hint, ["no_hint", "'path'", "no type hint", "`path: str`"]),
        (star_args, ["star_args", "*paths", "list["]),
        (star_kwargs, ["star_kwargs", "**options", "dict[str"]),
        (no_docstring, ["no_docstring", "docstring", "write one"]),
        (blank_docstring, ["blank_docstring", "docstring"]),
        (yields, ["yields", "return a list"]),
        (yields_async, ["yields_async", "return a list"]),
        (unresolvable, ["unresolvable", "Missing", "before the function"]),
        (not_json, ["not_json", "'bad'", "JSON", "pydantic"]),
        (two_contexts, ["two_contexts", "a and b", "keep one"]),
        (functools.partial(two_contexts), ["functools.partial", "`def`"]),
        (dict, ["dict", "`def`"]),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_its_name_and_the_fix(
    function: Callable[..., object], words: list[str]
) -> None:
    with pytest.raises(ToolDefinitionError) as refused:
        tool(function)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"effect": "read"}, ["effect='read'", "reads, idempotent, once"]),
        ({"placement": "local"}, ["placement='local'", "fleet, inline"]),
        ({"approval": "maybe"}, ["approval='maybe'", "never, always"]),
        ({"timeout_s": 0}, ["timeout_s=0"]),
        ({"timeout_s": float("nan")}, ["timeout_s=nan"]),
        ({"timeout_s": float("inf")}, ["timeout_s=inf"]),
        ({"max_result_chars": 10}, ["max_result_chars=10", "at least"]),
        ({"placement": "inline"}, ["inline", "reads", "once"]),
        (
            {"placement": "inline", "effect": "reads", "approval": "always"},
            ['approval="always"', "leave the placement"],
        ),
        ({"name": "get page"}, ["'get page'", "1 to 64"]),
        ({"name": "x" * 65}, ["1 to 64"]),
    ],
)
def test_an_unsound_option_is_refused_with_the_function_and_the_fix(options: dict[str, Any], words: list[str]) -> None:
    def f() -> None:
        """Documented."""

    with pytest.raises(ToolDefinitionError) as refused:
        tool(**options)(f)
    for word in [*words, f"{__name__}:"]:
        assert word in str(refused.value)


def test_a_return_type_that_cannot_be_resolved_does_no_harm() -> None:
    @tool
    def f(path: str) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
        """Documented."""

    assert f.spec.name == "f"


def test_the_idempotency_key_is_the_same_on_each_try_and_differs_between_calls() -> None:
    def key(*, turn: int = 3, call: str = "toolu_1", attempt: int = 1) -> str:
        return ToolContext(run_id=RunId("batch-row"), turn=turn, call_id=CallId(call), attempt=attempt).idempotency_key

    assert key(attempt=1) == key(attempt=2)
    assert len({key(), key(turn=4), key(call="toolu_2")}) == 3


def test_a_record_logged_through_the_context_bears_the_ids_and_the_callers_own_extra(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="paceline.tool"):
        CTX.log.info("looked up", extra={"rows": 2})
    (record,) = caplog.records
    assert record.name == "paceline.tool"
    seen = {name: vars(record)[name] for name in ("run_id", "turn", "call_id", "attempt", "rows")}
    assert seen == {"run_id": "batch-row", "turn": 3, "call_id": "toolu_1", "attempt": 1, "rows": 2}
