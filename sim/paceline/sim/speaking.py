"""What the model says to an accepted request: the playbook's answer, what faults make of it, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from paceline.sim.answer import Answer, Spoken, make_id, speak
from paceline.sim.api import Accepted
from paceline.sim.cache import Charge, PromptCache
from paceline.sim.context_edits import Summary, billed, with_summary
from paceline.sim.dialects import ANTHROPIC, Dialect
from paceline.sim.faults import Fault, Injector, Stage
from paceline.sim.journal import Usage
from paceline.sim.message import COMPACTION
from paceline.sim.mishaps import ErrorReply, api_error, error_of, misspoken, refusal_reply
from paceline.sim.miswritten import misbilled, miswritten
from paceline.sim.playbook import Playbook
from paceline.sim.request import Request
from paceline.sim.rules import Refusal, Rule, refuse
from paceline.sim.thinking import signed_content
from paceline.sim.wire import message_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What the model is about to say, and the fault that strikes it."""

    answer: Answer
    fault: Fault | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The error that is said instead, by a fault or for want of an answer; `reason` is for the journal."""

    error: ErrorReply
    fault: Fault | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the model has said: the message as it goes out, and what it cost."""

    message: dict[str, Any]
    spoken: Spoken
    usage: Usage


class Speaker:
    """Speaks for the model."""

    def __init__(
        self,
        playbook: Playbook,
        injector: Injector,
        cache: PromptCache,
        clock: Callable[[], float],
        dialect: Dialect = ANTHROPIC,
    ) -> None:
        self._playbook = playbook
        self._injector = injector
        self._cache = cache
        self._clock = clock
        self._dialect = dialect

    def line(self, accepted: Accepted, stages: Collection[Stage]) -> Line | Failed:
        """What to say to a request on which faults of these stages may strike."""
        request, summary = accepted.request, _summary(accepted)
        if summary is not None and summary.pauses:
            return Line(answer=Answer(blocks=[summary.block], stop_reason=COMPACTION), fault=None)
        try:
            answer = self._playbook.answer(request)
            if answer is None:
                return Failed(error=refusal_reply(_unplanned(request)))
            fault = self._injector.strike(request, stages) or _own_fault(answer, stages)
            if fault is not None and fault.stage is Stage.SPOKEN:
                answer = misspoken(fault, answer, request)
        except Exception as error:
            # A mistake in a user's function must reach the user, not end as a bare 500.
            text = f"paceline.sim: the playbook raised {error!r}; mend the function or the fault that it names"
            reason = f"the playbook raised {type(error).__name__}"
            return Failed(error=api_error(500, "api_error", text), reason=reason)
        if fault is not None and fault.stage is Stage.REFUSED:
            return Failed(error=error_of(fault, request), fault=fault)
        return Line(answer=answer, fault=fault)

    def say(self, line: Line, accepted: Accepted, charge: Charge, *, service_tier: str = "standard") -> Said:
        """Say it: the prompt's entries in the cache are read, and the answer is worth its tokens."""
        request, fault = accepted.request, line.fault
        spoken = _signed(speak(line.answer, request.conversation, request.max_tokens), accepted)
        bill = billed(misbilled(charge.usage, fault), spoken, accepted.edited)
        spoken, usage = with_summary(spoken, accepted.edited), bill.usage
        self._cache.read(charge)
        message = message_of(
            spoken,
            usage,
            request,
            now=self._clock(),
            speed=_speed(accepted),
            service_tier=service_tier,
            changes=accepted.changes,
            edited=accepted.edited,
            iterations=bill.iterations,
        )
        message = _in_dialect(miswritten(message, fault), self._dialect)
        return Said(message=message, spoken=spoken, usage=usage)


def _summary(accepted: Accepted) -> Summary | None:
    return accepted.edited.summary if accepted.edited else None


def _own_fault(answer: Answer, stages: Collection[Stage]) -> Fault | None:
    """The fault that an answer carries, if it can strike here."""
    return answer.fault if answer.fault is not None and answer.fault.stage in stages else None


def _unplanned(request: Request) -> Refusal:
    last = request.sent[-1].role
    return refuse(Rule.NO_PLAYBOOK_RULE, turn=request.turn, model=request.model, last=last)


def _speed(accepted: Accepted) -> str:
    return str(accepted.request.fields.get("speed") or "standard") if accepted.model.fast == "taken" else "standard"


def _signed(spoken: Spoken, accepted: Accepted) -> Spoken:
    """The answer with its thinking signed, and left out of sight if that was asked for."""
    if not spoken.may_think:
        return spoken
    request = accepted.request
    is_omitted = (request.fields.get("thinking") or {}).get("display") == "omitted"
    content = [_unseen(block) for block in spoken.content] if is_omitted else spoken.content
    name = make_id("", request.conversation)
    signed = signed_content(content, request.model, accepted.prompt.prefix, request.sent, name)
    return replace(spoken, content=signed)


def _in_dialect(message: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    if dialect.usage is None:
        return message
    return {**message, "usage": {name: message["usage"][name] for name in dialect.usage}}


def _unseen(block: dict[str, Any]) -> dict[str, Any]:
    return {**block, "thinking": ""} if block["type"] == "thinking" else block
