"""A tool that is asked what became of its call: whatever goes wrong with the question, no effect is guessed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from paceline.core.ids import CallId, RunId
from paceline.tools import (
    NotRan,
    Tool,
    ToolContext,
    ToolDefinitionError,
    ToolError,
    ToolResult,
    Unknown,
    reconcile_tool,
    tool,
)

CTX = ToolContext(run_id=RunId("batch-row"), turn=1, call_id=CallId("toolu_1"), arguments={"amount": 5})

Reconcile = Callable[[ToolContext], object]


def payment(reconcile: Reconcile | None) -> Tool:
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    return tool(effect="once", reconcile=reconcile)(pay)


def said(reconcile: Reconcile | None, *, timeout_s: float = 60.0) -> ToolResult | NotRan | Unknown:
    asked = payment(reconcile)
    return asyncio.run(reconcile_tool(replace(asked, spec=replace(asked.spec, timeout_s=timeout_s)), CTX))


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds a blocking question until the test is over, then lets its thread go."""
    event = threading.Event()
    yield event
    event.set()


def test_what_the_tool_would_have_returned_is_its_result() -> None:
    async def find(ctx: ToolContext) -> str:
        return f"paid {ctx.arguments['amount']}"

    assert said(lambda ctx: {"paid": ctx.arguments["amount"]}) == ToolResult(
        content='{"paid": 5}', is_error=False, chars=11
    )
    assert said(find) == ToolResult(content="paid 5", is_error=False, chars=6)


def test_a_call_without_a_result_may_have_taken_effect() -> None:
    result = said(lambda ctx: None)
    assert isinstance(result, ToolResult)
    assert result.content == "(no output)"


def test_the_key_is_the_one_that_the_tool_had() -> None:
    assert said(lambda ctx: ctx.idempotency_key) == ToolResult(content=CTX.idempotency_key, is_error=False, chars=32)


def test_a_call_can_be_ruled_out_or_left_open() -> None:
    assert said(lambda ctx: NotRan()) == NotRan()
    assert said(lambda ctx: Unknown("the bank is closed")) == Unknown("the bank is closed")


def _raises(error: BaseException) -> Reconcile:
    def find(ctx: ToolContext) -> object:
        raise error

    return find


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ValueError("no such account"), "its reconcile failed: pay failed: ValueError: no such account"),
        (ToolError("the bank is closed"), "its reconcile failed: the bank is closed"),
        (SystemExit(1), "its reconcile failed: pay failed: SystemExit: 1"),
    ],
)
def test_a_question_that_fails_leaves_it_open(error: BaseException, why: str) -> None:
    assert said(_raises(error)) == Unknown(why)


def test_a_question_that_takes_too_long_leaves_it_open(gate: threading.Event) -> None:
    began = time.monotonic()
    assert said(lambda ctx: gate.wait(), timeout_s=0.05) == Unknown("its reconcile did not finish within 0.05 s")
    assert time.monotonic() - began < 5


def test_an_answer_that_cannot_be_shown_leaves_it_open() -> None:
    open_end = said(lambda ctx: b"bytes")
    assert isinstance(open_end, Unknown)
    assert "cannot be shown" in open_end.why


def test_the_marker_itself_is_no_answer() -> None:
    assert isinstance(said(lambda ctx: NotRan), Unknown)


def test_code_that_has_lost_its_reconcile_leaves_it_open() -> None:
    assert said(None) == Unknown("its code on this worker has no reconcile")


def test_the_spec_says_whether_the_tool_can_be_asked() -> None:
    assert payment(lambda ctx: None).spec.reconciles
    assert not payment(None).spec.reconciles
    assert "reconciles" not in payment(None).spec.to_json()


@pytest.mark.parametrize("effect", ["reads", "idempotent"])
def test_only_once_tools_need_to_be_asked(effect: str) -> None:
    def look() -> None:
        """Look."""

    with pytest.raises(ToolDefinitionError, match=f"one that is {effect} is simply run again"):
        tool(effect=effect, reconcile=lambda ctx: None)(look)  # type: ignore[call-overload]  # parametrized


def test_a_reconcile_takes_the_context_alone() -> None:
    def find(amount: int, ctx: ToolContext) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"must be a function of one ToolContext .*ctx.arguments"):
        payment(find)  # type: ignore[arg-type]  # what the test is about
