from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from paceline.core.ids import CallId, RunId
from paceline.tools import Image, Tool, ToolContext, ToolError, ToolResult, run_tool, tool
from paceline.tools.bounding import MIN_RESULT_CHARS

CTX = ToolContext(run_id=RunId("batch-row"), turn=1, call_id=CallId("toolu_1"))
VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


def outcome(some_tool: Tool, raw: object, ctx: ToolContext = CTX) -> ToolResult:
    return asyncio.run(run_tool(some_tool, raw, ctx))


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds a blocking tool until the test is over, then lets its thread go."""
    event = threading.Event()
    yield event
    event.set()


def failure(result: ToolResult) -> str:
    assert result.is_error
    assert isinstance(result.content, str)
    return result.content


def test_a_plain_function_runs_in_another_thread_with_context_and_defaults() -> None:
    @tool(effect="reads")
    def where(path: str, n: int = 3, *, ctx: ToolContext) -> dict[str, object]:
        """Say where."""
        return {"path": path, "n": n, "call": ctx.call_id, "main": threading.current_thread() is loop_thread}

    loop_thread = threading.current_thread()
    assert outcome(where, {"path": "a"}) == ToolResult(
        content='{"path": "a", "n": 3, "call": "toolu_1", "main": false}', is_error=False, chars=55
    )


def test_a_coroutine_function_runs_on_the_loop() -> None:
    @tool(effect="reads")
    async def where() -> bool:
        """Say where."""
        await asyncio.sleep(0)
        return threading.current_thread() is loop_thread

    loop_thread = threading.current_thread()
    assert outcome(where, {}).content == "true"


def test_context_variables_reach_the_thread() -> None:
    @tool(effect="reads")
    def read() -> str:
        """Read it."""
        return VARIABLE.get()

    async def main() -> ToolResult:
        VARIABLE.set("set by the caller")
        return await run_tool(read, {}, CTX)

    assert asyncio.run(main()).content == "set by the caller"


def test_a_given_executor_is_used() -> None:
    @tool(effect="reads")
    def name() -> str:
        """The thread's name."""
        return threading.current_thread().name

    async def main() -> ToolResult:
        with ThreadPoolExecutor(1, thread_name_prefix="mine") as executor:
            return await run_tool(name, {}, CTX, executor=executor)

    assert asyncio.run(main()).content == "mine_0"


def test_an_executor_that_takes_no_more_work_is_a_failure_of_the_call() -> None:
    @tool(effect="reads")
    def f() -> None:
        """Do it."""

    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    assert "f failed: RuntimeError" in failure(asyncio.run(run_tool(f, {}, CTX, executor=executor)))


def test_wrong_arguments_are_answered_and_the_function_is_not_run() -> None:
    ran = []

    @tool
    def f(n: int) -> None:
        """Do it."""
        ran.append(n)

    assert failure(outcome(f, {"n": "x"})) == (
        "f was not run, its arguments are wrong:\n"
        '- n: expected a valid integer, unable to parse string as an integer, given string "x"\n'
        "Mend them and call it again."
    )
    assert not ran


def explode(value: str) -> str:
    raise KeyError("inside a validator")


def test_a_validator_that_raises_anything_is_a_failure_of_the_call() -> None:
    @tool
    def f(n: Annotated[str, AfterValidator(explode)]) -> None:
        """Do it."""

    assert failure(outcome(f, {"n": "x"})) == "f failed: KeyError: 'inside a validator'"


def raise_it(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such page"), "f failed: ValueError: no such page"),
        (ValueError(), "f failed: ValueError"),
        (SystemExit(2), "f failed: SystemExit: 2"),
        (ToolError("no such page"), "no such page"),
        (ToolError("no such page", hint="search first"), "no such page\nHint: search first"),
        (ExceptionGroup("two", [ValueError("a"), OSError("b")]), "f failed: ValueError: a; OSError: b"),
        (ValueError("\ud800"), "f failed: ValueError: \ufffd"),
        (ToolError(""), "(no output)"),
    ],
)
def test_what_a_tool_raises_is_told_without_a_traceback(error: BaseException, text: str) -> None:
    @tool
    def f() -> None:
        """Do it."""
        raise_it(error)

    @tool(name="f")
    async def f_async() -> None:
        """Do it."""
        raise_it(error)

    assert failure(outcome(f, {})) == text
    assert failure(outcome(f_async, {})) == text


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def test_an_exception_whose_text_cannot_be_read_is_told_by_its_type() -> None:
    @tool
    def f() -> None:
        """Do it."""
        raise Unreadable

    assert failure(outcome(f, {})) == "f failed: Unreadable: (its text cannot be read)"


def test_a_long_error_text_is_bounded_and_kept_whole() -> None:
    @tool(max_result_chars=500)
    def f() -> None:
        """Do it."""
        raise ValueError("x" * 5000)

    result = outcome(f, {})
    assert len(failure(result)) <= 500
    assert result.whole == "f failed: ValueError: " + "x" * 5000


def test_the_log_has_where_it_failed_but_neither_arguments_nor_the_exceptions_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def f(secret: str) -> None:
        """Do it."""
        raise ValueError(f"bad {secret}")

    with caplog.at_level(logging.WARNING, logger="paceline.tool"):
        outcome(f, {"secret": "hunter2"})
    (record,) = caplog.records
    text = record.getMessage()
    assert "tool f raised" in text
    assert "test_tool_running.py" in text
    assert "ValueError" in text
    assert "hunter2" not in text
    assert vars(record)["call_id"] == "toolu_1"


def test_a_tool_error_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def f() -> None:
        """Do it."""
        raise ToolError("expected")

    with caplog.at_level(logging.WARNING, logger="paceline.tool"):
        outcome(f, {})
    assert not caplog.records


def test_a_coroutine_that_takes_too_long_is_cancelled(gate: threading.Event) -> None:
    cleaned_up = []

    @tool(effect="reads", timeout_s=0.02)
    async def wait() -> None:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.append(True)

    assert (
        failure(outcome(wait, {})) == "wait did not finish within 0.02 s and was given up. Try again, or ask for less."
    )
    assert cleaned_up == [True]


@pytest.mark.parametrize("effect", ["once", "idempotent"])
def test_a_timeout_of_a_tool_with_effects_says_that_the_effect_is_unknown(effect: Any, gate: threading.Event) -> None:
    @tool(effect=effect, timeout_s=0.02)
    def wait() -> None:
        """Wait for the gate."""
        gate.wait()

    assert "It may have taken effect or not" in failure(outcome(wait, {}))


def test_a_coroutine_that_ends_with_a_result_while_it_is_stopped_is_believed() -> None:
    @tool(timeout_s=0.02)
    async def charge() -> str:
        """Charge."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "charged"
        return "never"

    assert outcome(charge, {}) == ToolResult(content="charged", is_error=False, chars=7)


def test_a_coroutine_that_will_not_stop_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["paceline.tools.run"], "STOP_GRACE_S", 0.02)

    async def main() -> ToolResult:
        release = asyncio.Event()

        @tool(effect="reads", timeout_s=0.02)
        async def stubborn() -> None:
            """Go on whatever happens."""
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        result = await run_tool(stubborn, {}, CTX)
        release.set()
        return result

    assert "did not finish within 0.02 s" in failure(asyncio.run(main()))


def test_the_contexts_deadline_is_kept_if_it_is_sooner(gate: threading.Event) -> None:
    @tool(effect="reads", timeout_s=60)
    def wait() -> None:
        """Wait for the gate."""
        gate.wait()

    soon = replace(CTX, deadline=time.time() + 0.05)
    assert "did not finish within 0.0" in failure(outcome(wait, {}, soon))


def test_after_the_deadline_nothing_is_begun() -> None:
    ran = []

    @tool
    def f() -> None:
        """Do it."""
        ran.append(True)

    assert failure(outcome(f, {}, replace(CTX, deadline=time.time() - 1))) == "f was not run: no time was left for it."
    assert not ran


def test_tools_that_hang_take_no_place_from_others(gate: threading.Event) -> None:
    @tool(effect="reads", timeout_s=30)
    def hang() -> None:
        """Wait for the gate."""
        gate.wait()

    @tool(effect="reads")
    def quick() -> str:
        """Answer."""
        return "here"

    async def main() -> ToolResult:
        hanging = [asyncio.create_task(run_tool(hang, {}, CTX)) for _ in range(50)]
        result = await run_tool(quick, {}, CTX)
        assert not any(task.done() for task in hanging)
        gate.set()
        await asyncio.gather(*hanging)
        return result

    assert asyncio.run(main()).content == "here"


def test_a_cancelled_caller_cancels_the_tool_and_is_told() -> None:
    cancelled: list[str] = []

    @tool
    async def wait(started: str) -> None:
        """Wait for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(started)
            raise

    began = asyncio.Event()

    async def main() -> None:
        task = asyncio.create_task(run_tool(wait, {"started": "yes"}, CTX))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert cancelled == ["yes"]


def test_a_tool_that_cancels_itself_has_failed() -> None:
    @tool
    async def f() -> None:
        """Do it."""
        raise asyncio.CancelledError

    assert failure(outcome(f, {})) == "f failed: CancelledError"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda: (n for n in [1]), ["generator", "return a list"]),
        (lambda: asyncio.sleep(0), ["coroutine", "async def"]),
        (lambda: b"x", ["bytes"]),
        (object, ["object", "return a text"]),
    ],
)
def test_a_result_without_a_form_says_that_the_tool_has_run(value: Callable[[], object], words: list[str]) -> None:
    @tool
    def f() -> object:
        """Do it."""
        return value()

    text = failure(outcome(f, {}))
    assert text.startswith("f ran to its end, but what it returned cannot be shown: ")
    for word in words:
        assert word in text


def test_an_image_is_an_image_block() -> None:
    @tool(effect="reads")
    def draw() -> Image:
        """Draw."""
        return Image(b"GIF89a", "image/gif")

    content = outcome(draw, {}).content
    assert isinstance(content, list)
    assert content[0]["type"] == "image"


def test_a_tool_runs_under_the_spec_it_is_given() -> None:
    @tool(effect="reads")
    def long_text() -> str:
        """Many characters."""
        return "x" * 5000

    frozen = replace(long_text, spec=replace(long_text.spec, max_result_chars=400))
    assert outcome(long_text, {}).whole is None
    assert outcome(frozen, {}).whole == "x" * 5000


def traced(function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)
    def wrapper(*args: object, **kwargs: object) -> object:
        return function(*args, **kwargs)

    return wrapper


def test_a_wrapped_function_keeps_its_own_signature_and_the_names_of_its_own_module() -> None:
    elsewhere: dict[str, Any] = {"traced": traced, "tool": tool, "Number": int, "__name__": "elsewhere"}
    code = "@tool\n@traced\ndef add(a: 'Number', b: 'Number' = 2):\n    'Add.'\n    return a + b"
    exec(code, elsewhere)
    assert outcome(elsewhere["add"], {"a": 1}).content == "3"


def test_input_nested_beyond_reason_is_a_failure_of_the_call() -> None:
    @tool
    def f(tree: Any) -> str:
        """Do it."""
        return "done"

    deep: list[Any] = []
    for _ in range(20_000):
        deep = [deep]
    assert outcome(f, {"tree": deep}).content == "done"
    assert outcome(f, {"other": deep}).is_error


def test_a_spec_with_too_small_a_limit_still_gives_a_result() -> None:
    @tool(effect="reads")
    def long_text() -> str:
        """Many characters."""
        return "x" * 5000

    odd = replace(long_text, spec=replace(long_text.spec, max_result_chars=1))
    assert len(str(outcome(odd, {}).content)) <= MIN_RESULT_CHARS
    assert outcome(odd, {"a": "x" * 5000}).is_error
