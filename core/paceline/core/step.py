"""The heart: what a run does next. A function of the run and of what has just happened; it decides and touches nothing.

turn begun      -> CallModel | Finish
model answered  -> OpenCalls | GoOn | Finish
model failed    -> Hold | Finish
worker lost     -> GoOn | Finish
budget refused  -> Hold | Finish
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never

from . import finish
from .agent import Agent
from .answer import Answer, Billed, Call
from .compaction import may_clear
from .endings import ErrorClass, Outcome, StopReason
from .ids import CallId
from .limits import breach, seconds_left, tool_errors
from .metrics import HoldReason
from .models import max_output_tokens
from .next_call import NextCall
from .repeats import Repeats, find_repeats, nudge
from .run import Overflow, Run, Streaks
from .transcript import (
    GO_ON_AFTER_CUT,
    GO_ON_AFTER_NOTHING,
    Fragment,
    Message,
    awaits_server,
    is_compaction,
    may_hold_compaction,
    text_of,
    user_text,
)

_BACKOFF_FIRST_SECONDS = 0.5
_UNREADY_SECONDS = 10.0
_BACKOFF_CAP_SECONDS = 60.0
_BACKOFF_DOUBLINGS = 16
"""More than the cap allows: a storm of a day must not become a number that floats cannot hold."""
_JITTER = 0.25

_AFTER_CUT = user_text(GO_ON_AFTER_CUT)
_AFTER_NOTHING = user_text(GO_ON_AFTER_NOTHING)
_REMINDER = user_text(finish.REMINDER)

_NO_ROOM = "the conversation no longer fits the model's context window"


# What has happened ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBegun:
    """A turn was claimed. `call` is what its call would be."""

    call: NextCall
    now_ms: int
    all_failed: bool | None = None
    """Whether every call of the turn before failed; None: it had none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswered:
    """The model answered. `so_far` is the text of the pieces that this answer goes on from, if it was cut before."""

    answer: Answer
    so_far: str = ""
    all_failed: bool | None = None
    """As in TurnBegun."""


class FailureKind(StrEnum):
    """Who must act on a failed call: nobody (it passes), nobody but slower, or the caller or operator."""

    TRANSIENT = "transient"
    THROTTLED = "throttled"
    UNREADY = "unready"
    """Nothing was sent: this worker is not set up to call the model. Another may be, or this one is mended."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallFailed:
    """A model call brought no answer of use. `chance` is a random number in [0, 1): core has none of its own."""

    kind: FailureKind
    message: str
    chance: float
    retry_after_seconds: float | None = None
    blames: ErrorClass | None = None
    """Who must act, where the API said so."""
    billed: Billed | None = None
    """What the answer says that it used, where that can be read, broken as it is."""
    may_be_billed: bool = False
    """The request was sent, and nobody here knows what became of it."""
    is_too_long: bool = False
    """It was refused as it does not fit the model's window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost:
    """The worker that had claimed the turn is gone. At `poison_after` in a row the run itself is the likely cause."""

    poison_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRefused:
    """The batch's budget has no room for the call. `for_good`: not even if the calls under way come to nothing."""

    for_good: bool
    chance: float


Happening = TurnBegun | ModelAnswered | ModelCallFailed | WorkerLost | BudgetRefused


# What comes next -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """Call the model, with this `max_tokens`, for no longer than `seconds_left` (None: no limit of the run's)."""

    max_tokens: int
    seconds_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCalls:
    """Append the assistant message, then run its calls; but for those that are `answered` here, with an error.

    `repeated` of them are so because they came again and again.
    """

    append: Fragment
    calls: tuple[Call, ...]
    streaks: Streaks
    answered: Mapping[CallId, str] = field(default_factory=dict)
    repeated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GoOn:
    """Append, and take the next turn; or the same turn again where `advance` is false."""

    append: tuple[Fragment, ...]
    advance: bool
    streaks: Streaks


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Wait without occupying a worker, then take the same turn again. `holds_model`: so must all runs of this model."""

    seconds: float
    reason: str
    holds_model: bool
    streaks: Streaks
    counted_as: HoldReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The run is over."""

    outcome: Outcome
    append: tuple[Fragment, ...] = ()


Step = CallModel | OpenCalls | GoOn | Hold | Finish


def next_step(agent: Agent, run: Run, happening: Happening) -> Step:
    """What the run does next."""
    match happening:
        case TurnBegun():
            return _before_call(agent, run, happening)
        case ModelAnswered():
            return _after_answer(agent, run, happening)
        case ModelCallFailed():
            return _after_failure(agent, run, happening)
        case WorkerLost():
            return _after_loss(run, happening)
        case BudgetRefused():
            return _without_budget(run, happening)
        case _:
            assert_never(happening)


def _before_call(agent: Agent, run: Run, begun: TurnBegun) -> CallModel | Finish:
    if run.cancel_requested:
        return Finish(outcome=Outcome(reason=StopReason.CANCELLED, message="cancelled"))
    if run.streaks.overflow is Overflow.TOLD and not begun.call.compaction:
        return Finish(outcome=Outcome(reason=StopReason.CONTEXT_WINDOW, message=_NO_ROOM))
    outcome = tool_errors(agent.limits, _error_turns(run, begun.all_failed)) or breach(
        agent, run, call=begun.call.at_worst, now_ms=begun.now_ms
    )
    if outcome:
        return Finish(outcome=_cut_for_good(run, outcome) or outcome)
    return CallModel(max_tokens=begun.call.max_tokens, seconds_left=seconds_left(agent.limits, run))


def _cut_for_good(run: Run, outcome: Outcome) -> Outcome | None:
    """The end of a run whose answer was cut and may not be longer; None where that is not what ends it."""
    if not run.streaks.max_tokens or outcome.reason not in (StopReason.TOKEN_BUDGET, StopReason.COST_BUDGET):
        return None
    message = f"the answer was cut, and there is no room for one of {run.streaks.max_tokens} tokens: {outcome.message}"
    return Outcome(reason=StopReason.OUTPUT_TRUNCATED, message=message)


def _error_turns(run: Run, all_failed: bool | None) -> int:
    if all_failed is None:
        return run.streaks.error_turns
    return run.streaks.error_turns + 1 if all_failed else 0


def _after_answer(agent: Agent, run: Run, answered: ModelAnswered) -> Step:
    if run.cancel_requested:
        return Finish(outcome=Outcome(reason=StopReason.CANCELLED, message="cancelled"))
    match answered.answer.stop_reason:
        case "end_turn" | "stop_sequence":
            return _finished(agent, run, answered)
        case "tool_use":
            return _asked(agent, run, answered)
        case "max_tokens":
            return _cut(agent, run, answered)
        case "pause_turn" | "compaction":
            return _paused(agent, run, answered)
        case "refusal":
            message = f"the model refused: {answered.answer.refusal}"
            return Finish(outcome=Outcome(reason=StopReason.REFUSAL, message=message))
        case "model_context_window_exceeded":
            return _overflowed(agent, run, _NO_ROOM)
        case other:
            return _broken(agent, run, f"the answer's stop reason is {other!r}")


def _overflowed(agent: Agent, run: Run, message: str) -> GoOn | Finish:
    if run.streaks.overflow or not may_clear(agent):
        return Finish(outcome=Outcome(reason=StopReason.CONTEXT_WINDOW, message=message))
    return GoOn(append=(), advance=False, streaks=replace(run.streaks, overflow=Overflow.TOLD))


def _moved_on(run: Run, answered: ModelAnswered, *, pauses: int = 0, empties: int = 0, reminders: int = 0) -> Streaks:
    error_turns = _error_turns(run, answered.all_failed)
    return run.streaks.next_turn(error_turns=error_turns, pauses=pauses, empties=empties, reminders=reminders)


def _finished(agent: Agent, run: Run, answered: ModelAnswered) -> Step:
    answer = answered.answer
    if answer.calls:
        return _broken(agent, run, "the answer ends the turn and asks for tools")
    if answer.fragment is None:
        return _said_nothing(agent, run, answered)
    if agent.finish is not None:
        return _not_handed_in(run, answered, answer.fragment)
    return Finish(
        outcome=Outcome(reason=StopReason.FINAL_ANSWER, answer=answered.so_far + answer.text),
        append=(answer.fragment,),
    )


def _not_handed_in(run: Run, answered: ModelAnswered, said: Fragment) -> Step:
    if run.streaks.reminders:
        message = "the model answered in words, although it was reminded of `finish`"
        return Finish(outcome=Outcome(reason=StopReason.INVALID_OUTPUT, message=message))
    return GoOn(append=(said, _REMINDER), advance=True, streaks=_moved_on(run, answered, reminders=1))


def _said_nothing(agent: Agent, run: Run, answered: ModelAnswered) -> Step:
    empties = run.streaks.empties + 1
    if empties > agent.empty_retries:
        message = f"the model's answer was empty {empties} times in a row"
        return Finish(outcome=Outcome(reason=StopReason.MODEL_ERROR, message=message))
    return GoOn(append=(_AFTER_NOTHING,), advance=True, streaks=_moved_on(run, answered, empties=empties))


def _asked(agent: Agent, run: Run, answered: ModelAnswered) -> Step:
    answer = answered.answer
    if answer.fragment is None or not answer.calls:
        return _broken(agent, run, "the answer asks for tools but names none")
    handed_in = next((call for call in answer.calls if call.tool == finish.FINISH_TOOL), None)
    if agent.finish is not None and handed_in:
        problems = finish.misfits(agent.finish, handed_in.raw_input)
        if not problems:
            return _accepted(answer, answer.fragment, handed_in)
        return _turned_down(agent, run, answered, answer.fragment, finish.told(answer.calls, handed_in, problems))
    repeats = _repeats(agent, run, answer)
    over = next((repeat for repeat in repeats.found if repeat.times > (agent.limits.repeats or 0)), None)
    if over:
        message = f"{over.call.tool} was asked for with the same arguments {over.times} times in a row (limits.repeats)"
        return Finish(outcome=Outcome(reason=StopReason.REPEAT_CALLS, message=message))
    return OpenCalls(
        append=answer.fragment,
        calls=answer.calls,
        streaks=replace(_moved_on(run, answered), asked=repeats.history),
        answered={repeat.call.call_id: nudge(repeat) for repeat in repeats.found},
        repeated=len(repeats.found),
    )


def _accepted(answer: Answer, said: Fragment, handed_in: Call) -> Finish:
    outcome = Outcome(reason=StopReason.FINISH_TOOL, answer=handed_in.raw_input)
    return Finish(outcome=outcome, append=(said, finish.closing(answer.calls, handed_in)))


def _turned_down(
    agent: Agent, run: Run, answered: ModelAnswered, said: Fragment, told: Mapping[CallId, str]
) -> OpenCalls | Finish:
    if tool_errors(agent.limits, _error_turns(run, answered.all_failed) + 1):
        message = "what the model handed in never fitted the finish schema (limits.error_turns)"
        return Finish(outcome=Outcome(reason=StopReason.INVALID_OUTPUT, message=message))
    return OpenCalls(append=said, calls=answered.answer.calls, streaks=_moved_on(run, answered), answered=told)


def _repeats(agent: Agent, run: Run, answer: Answer) -> Repeats:
    limit = agent.limits.repeats
    if limit is None:
        return Repeats(found=(), history=())
    exempt = {tool.name for tool in agent.tools if tool.repeatable}
    return find_repeats(answer.calls, run.streaks.asked, limit=limit, exempt=exempt)


def _cut(agent: Agent, run: Run, answered: ModelAnswered) -> Step:
    answer = answered.answer
    # No tool of a cut message runs: its arguments may be half of what the model meant.
    if answer.fragment is not None and answer.only_text:
        return GoOn(append=(answer.fragment, _AFTER_CUT), advance=True, streaks=_moved_on(run, answered))
    had, most = run.streaks.max_tokens or agent.max_tokens, max_output_tokens(agent.model)
    cuts = run.streaks.cuts + 1 if had >= most else 0
    if cuts >= 2:
        message = f"the answer was cut twice at the model's maximum of {most} tokens"
        return Finish(outcome=Outcome(reason=StopReason.OUTPUT_TRUNCATED, message=message))
    raised = replace(run.streaks, cuts=cuts, max_tokens=min(2 * had, most))
    return GoOn(append=(), advance=False, streaks=raised)


def _paused(agent: Agent, run: Run, answered: ModelAnswered) -> Step:
    answer, pauses = answered.answer, run.streaks.pauses + 1
    if answer.fragment is None or not _goes_on(json.loads(answer.fragment)):
        return _broken(agent, run, "the answer pauses with nothing to go on from")
    if pauses > agent.pauses:
        message = f"the model paused {pauses} times in a row"
        return Finish(outcome=Outcome(reason=StopReason.MODEL_ERROR, message=message))
    return GoOn(append=(answer.fragment,), advance=True, streaks=_moved_on(run, answered, pauses=pauses))


def _goes_on(message: Message) -> bool:
    return awaits_server(message) or is_compaction(message)


def _broken(agent: Agent, run: Run, message: str) -> Step:
    failure = ModelCallFailed(kind=FailureKind.TRANSIENT, message=message, chance=0.0)
    return _after_failure(agent, run, failure)


def _after_failure(agent: Agent, run: Run, failure: ModelCallFailed) -> Hold | GoOn | Finish:
    match failure.kind:
        case FailureKind.REFUSED if failure.is_too_long:
            return _overflowed(agent, run, failure.message)
        case FailureKind.REFUSED:
            outcome = Outcome(reason=StopReason.MODEL_ERROR, message=failure.message, error_class=failure.blames)
            return Finish(outcome=outcome)
        case FailureKind.THROTTLED:
            streaks = replace(run.streaks, throttles=run.streaks.throttles + 1)
            seconds = _wait_seconds(failure, streaks.throttles)
            return Hold(
                seconds=seconds,
                reason=failure.message,
                holds_model=True,
                streaks=streaks,
                counted_as=HoldReason.THROTTLED,
            )
        case FailureKind.UNREADY:
            return Hold(
                seconds=_UNREADY_SECONDS,
                reason=failure.message,
                holds_model=False,
                streaks=run.streaks,
                counted_as=HoldReason.UNREADY,
            )
        case FailureKind.TRANSIENT:
            return _retry(agent, run, failure)
        case _:
            assert_never(failure.kind)


def _retry(agent: Agent, run: Run, failure: ModelCallFailed) -> Hold | Finish:
    streaks = replace(run.streaks, failures=run.streaks.failures + 1)
    if streaks.failures >= agent.model_attempts:
        message = f"{streaks.failures} tries of one call failed; the last: {failure.message}"
        return Finish(outcome=Outcome(reason=StopReason.MODEL_ERROR, message=message))
    seconds = _wait_seconds(failure, streaks.failures)
    return Hold(
        seconds=seconds, reason=failure.message, holds_model=False, streaks=streaks, counted_as=HoldReason.RETRY
    )


def _wait_seconds(failure: ModelCallFailed, times: int) -> float:
    if failure.retry_after_seconds is not None:
        return failure.retry_after_seconds
    return _backoff_seconds(times, failure.chance)


def _backoff_seconds(times: int, chance: float) -> float:
    doublings = min(times - 1, _BACKOFF_DOUBLINGS)
    backoff = min(_BACKOFF_FIRST_SECONDS * 2.0**doublings, _BACKOFF_CAP_SECONDS)
    return backoff * (1 - _JITTER * chance)


def _without_budget(run: Run, refused: BudgetRefused) -> Hold | Finish:
    if refused.for_good:
        message = "the next call could pass what is left of the batch's budget"
        return Finish(outcome=Outcome(reason=StopReason.BATCH_BUDGET, message=message))
    streaks = replace(run.streaks, waits=run.streaks.waits + 1)
    return Hold(
        seconds=_backoff_seconds(streaks.waits, refused.chance),
        reason="calls under way hold what is left of the batch's budget",
        holds_model=False,
        streaks=streaks,
        counted_as=HoldReason.BUDGET,
    )


def _after_loss(run: Run, loss: WorkerLost) -> GoOn | Finish:
    losses = run.streaks.losses + 1
    if losses >= loss.poison_after:
        message = f"{losses} workers in a row were lost while they held this turn"
        return Finish(outcome=Outcome(reason=StopReason.POISON, message=message))
    return GoOn(append=(), advance=False, streaks=replace(run.streaks, losses=losses))


def said_so_far(fragments: Sequence[Fragment]) -> str:
    """The text that the next answer goes on from: what stands before each "go on" at the end of the transcript.

    Answers that said nothing in between do not end it, nor does a summary of the API's.
    """
    pieces: list[str] = []
    at = len(fragments) - 1
    while at > 0 and (fragments[at] in (_AFTER_CUT, _AFTER_NOTHING) or _only_sums_up(fragments[at])):
        if fragments[at] == _AFTER_CUT:
            at -= 1
            pieces.append(text_of(json.loads(fragments[at])))
        at -= 1
    return "".join(reversed(pieces))


def _only_sums_up(fragment: Fragment) -> bool:
    return may_hold_compaction(fragment) and all(
        block["type"] == "compaction" for block in json.loads(fragment)["content"]
    )
