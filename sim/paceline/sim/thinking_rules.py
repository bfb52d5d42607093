"""What signed thinking must keep to, and what becomes of a block that does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from paceline.sim.message import THOUGHTS, Message
from paceline.sim.models import ENABLED, Model
from paceline.sim.rules import Refusal, Rule, refuse
from paceline.sim.thinking import Stamp, Thought

_PARTS = ("system", "tools", "messages", "within", "text")
_DIFFERS = (
    ("system", "The `system` prompt differs from the one this block was created with."),
    ("tools", "The `tools` differ from the ones this block was created with."),
    ("messages", "The `messages` before it differ from the ones this block was created with."),
)


class Finding(Enum):
    """How a thinking block stands in a request."""

    SOUND = "as it was thought"
    FORGED = "never signed here"
    FOREIGN = "thought by another model"
    MODIFIED = "changed, moved or alone in the latest turn of the model"
    MOVED = "what came before it has changed"


class Lenience(Enum):
    """What becomes of a block that has moved."""

    REFUSE = "the request is refused"
    DROP = "the block is dropped"
    ALLOW = "the block is shown to the model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """A block that was dropped, or kept though it does not fit, as `input_transformations` tells it."""

    thought: Thought
    kind: str
    reason: str

    @property
    def drops(self) -> bool:
        return self.kind == "thinking_dropped"

    def told(self) -> dict[str, str]:
        return {"type": self.kind, "path": self.thought.at, "reason": self.reason}


def lenience(fields: Mapping[str, Any], model: Model, *, account_binds: bool) -> Lenience:
    """What a request asks for, and what its model and its account grant."""
    binding = (fields.get("thinking") or {}).get("block_binding") or {}
    if binding.get("prefix_mismatch_behavior") == "drop_block":
        return Lenience.DROP
    is_bound = model.binds_thinking == "always" or account_binds
    return Lenience.REFUSE if is_bound else Lenience.ALLOW


def findings(thoughts: Sequence[Thought], model: Model) -> list[tuple[Thought, Finding]]:
    """How each thinking block of a request stands."""
    whole = _whole_answers(thoughts)
    return [(thought, _finding(thought, model, whole)) for thought in thoughts]


def thought_refusals(found: Sequence[tuple[Thought, Finding]], lenience: Lenience) -> Iterator[Refusal]:
    """What the thinking blocks of a request break."""
    for thought, finding in found:
        match finding:
            case Finding.FORGED:
                rule = Rule.BAD_SIGNATURE if thought.kind == "thinking" else Rule.BAD_REDACTED
                yield refuse(rule, thought.at)
            case Finding.MODIFIED:
                yield refuse(Rule.THINKING_MODIFIED, thought.at)
            case Finding.MOVED if lenience is Lenience.REFUSE:
                yield refuse(Rule.THINKING_MOVED, thought.at, differs=_differs(thought))


def transformations(found: Sequence[tuple[Thought, Finding]], lenience: Lenience) -> list[Transformation]:
    """What is dropped or let pass of a request that is not refused."""
    done: list[Transformation] = []
    for thought, finding in found:
        if finding is Finding.FOREIGN:
            done.append(_dropped(thought, "model_binding_mismatch"))
        elif finding is Finding.MOVED or (done and _follows_moved(thought, done[-1])):
            reason = "prefix_binding_mismatch"
            is_allowed = lenience is Lenience.ALLOW
            done.append(
                Transformation(thought=thought, kind="thinking_mismatch_allowed", reason=reason)
                if is_allowed
                else _dropped(thought, reason)
            )
    return done


def shown(messages: Sequence[Message], changes: Sequence[Transformation]) -> Sequence[Message]:
    """The messages as the model sees them: without the blocks that were dropped."""
    dropped = {(each.thought.message, each.thought.position) for each in changes if each.drops}
    if not dropped:
        return messages
    return [
        _without(message, {place for at, place in dropped if at == index}) for index, message in enumerate(messages)
    ]


def start_refusals(fields: Mapping[str, Any], messages: Sequence[Message]) -> Iterator[Refusal]:
    """With manual thinking, a turn of the model's that waits for results must begin with thinking."""
    if (fields.get("thinking") or {}).get("type") != ENABLED:
        return
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role == "assistant":
            if message.calls and message.blocks[0].kind not in THOUGHTS:
                yield refuse(Rule.THINKING_EXPECTED, f"messages.{index}.content.0", found=message.blocks[0].kind)
            return


def _finding(thought: Thought, model: Model, whole: set[str]) -> Finding:
    signed = thought.signed
    if signed is None:
        return Finding.FORGED if model.signs_thinking else Finding.SOUND
    if _base(signed.model) != _base(thought.here.model):
        return Finding.FOREIGN
    differs = [part for part in _PARTS if getattr(signed, part) != getattr(thought.here, part)]
    if thought.is_latest and ("within" in differs or "text" in differs or signed.answer not in whole):
        return Finding.MODIFIED
    return Finding.MOVED if differs and model.binds_thinking != "never" else Finding.SOUND


def _base(model_id: str) -> str:
    return Model(id=model_id, rate_class="").base


def _whole_answers(thoughts: Sequence[Thought]) -> set[str]:
    """Answers of the latest turn all of whose thinking is there, in order."""
    stamps = [thought.signed for thought in thoughts if thought.is_latest and thought.signed]
    by_answer: dict[str, list[Stamp]] = {}
    for stamp in stamps:
        by_answer.setdefault(stamp.answer, []).append(stamp)
    return {name for name, each in by_answer.items() if [stamp.index for stamp in each] == list(range(each[0].count))}


def _differs(thought: Thought) -> str:
    for part, text in _DIFFERS:
        if thought.signed and getattr(thought.signed, part) != getattr(thought.here, part):
            return text
    return "The message it stands in differs from the one this block was created in."


def _dropped(thought: Thought, reason: str) -> Transformation:
    return Transformation(thought=thought, kind="thinking_dropped", reason=reason)


def _follows_moved(thought: Thought, last: Transformation) -> bool:
    """Whether a block stands directly behind one that was dropped for what came before it."""
    place = (last.thought.message, last.thought.position + 1)
    is_moved = last.drops and last.reason == "prefix_binding_mismatch"
    return is_moved and place == (thought.message, thought.position)


def _without(message: Message, dropped: set[int]) -> Message:
    if not dropped:
        return message
    blocks = tuple(block for position, block in enumerate(message.blocks) if position not in dropped)
    return replace(message, blocks=blocks, chars=sum(block.chars for block in blocks), successor=None)
