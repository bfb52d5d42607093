"""The judgement of a request, from its headers and bytes: refused by a rule, or accepted with its usage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.sim.body import Body, MessageShelf, read_body
from paceline.sim.combinations import combination_refusals
from paceline.sim.context_edits import Edited, edited
from paceline.sim.conversation import conversation_refusals
from paceline.sim.dialects import ANTHROPIC, Dialect
from paceline.sim.fields import BINDING_BETA, field_refusals
from paceline.sim.gates import model_refusals
from paceline.sim.headers import NO_SAMPLING_SINCE, Headers, betas, header_refusals, version_of, workspace_of
from paceline.sim.message import THOUGHTS, Message
from paceline.sim.models import Model, model_of
from paceline.sim.prefix import Prefix, PrefixShelf
from paceline.sim.prompt import Prompt, prompt_refusals, read_prompt
from paceline.sim.request import Request
from paceline.sim.rules import Refusal, Rule, first_enforced, refuse
from paceline.sim.switches import Switches
from paceline.sim.thinking import thoughts
from paceline.sim.thinking_rules import (
    Transformation,
    findings,
    lenience,
    shown,
    start_refusals,
    thought_refusals,
    transformations,
)

MAX_BODY_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A request that keeps every rule; `scope` is what its cache entries are shared within. `prompt` is what the
    model is shown; `changes` says how that differs from what was sent, None when the request may not know."""

    request: Request
    model: Model
    prompt: Prompt
    scope: str
    changes: Sequence[Mapping[str, str]] | None
    edited: Edited | None = None
    """What became of the context, for a request that asked for edits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the headers of a request say, once they are sound."""

    version: str
    betas: Sequence[str]
    workspace: str

    @property
    def is_late(self) -> bool:
        """Whether the rules of version 2026-10-21 hold."""
        return self.version >= NO_SAMPLING_SINCE


class Api:
    """Judges requests. Remembers what it has read, so a growing conversation costs what is new in it."""

    def __init__(
        self,
        keys: Collection[str] | None = None,
        *,
        clock: Callable[[], float],
        switches: Switches | None = None,
        dialect: Dialect = ANTHROPIC,
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._switches = switches or Switches()
        self._unenforced = self._switches.unenforced_rules | dialect.unenforced
        self._messages = MessageShelf(unenforced=self._unenforced)
        self._prefixes = PrefixShelf(unenforced=self._unenforced)

    def admit(self, headers: Headers) -> Asked | Refusal:
        """Let a request in by its headers."""
        refusal = self.first(header_refusals(headers, self._keys))
        if refusal is not None:
            return refusal
        return Asked(version=version_of(headers), betas=betas(headers), workspace=workspace_of(headers, self._keys))

    def judge(self, headers: Headers, data: bytes, *, counting: bool = False) -> Accepted | Refusal:
        """Accept or refuse a request to create a message, or to count one's tokens."""
        asked = self.admit(headers)
        return asked if isinstance(asked, Refusal) else self.judge_body(asked, data, counting=counting)

    def judge_body(self, asked: Asked, data: bytes, *, counting: bool = False) -> Accepted | Refusal:
        """Accept or refuse what a request asks for, its headers being sound."""
        if len(data) > MAX_BODY_BYTES:
            return refuse(Rule.TOO_LARGE)
        body = read_body(data, self._messages)
        if isinstance(body, Refusal):
            return body
        refusal = self.first(_shape_refusals(body, asked.betas, counting))
        if refusal is not None:
            return refusal
        prefix = self._prefixes.read(body.fields, body.raw)
        refusal = prefix.refusal or self.first(self._sense_refusals(body, asked, prefix))
        return self._accept(body, asked, prefix) if refusal is None else refusal

    def first(self, refusals: Iterator[Refusal]) -> Refusal | None:
        """The first refusal by a rule that is enforced here."""
        return first_enforced(refusals, self._unenforced)

    def _sense_refusals(self, body: Body, asked: Asked, prefix: Prefix) -> Iterator[Refusal]:
        """What sound parts break together, and with the model."""
        yield from model_refusals(body.fields, asked.version, self._clock())
        messages = body.messages or ()
        yield from conversation_refusals(messages, model_of(body.fields["model"]))
        yield from start_refusals(body.fields, messages)
        yield from combination_refusals(body.fields, messages, prefix, is_late=asked.is_late)

    def _accept(self, body: Body, asked: Asked, prefix: Prefix) -> Accepted | Refusal:
        """Show the prompt to the model, unless its thinking does not fit or it is too long."""
        fields, messages = body.fields, body.messages or ()
        model = model_of(fields["model"])
        changes = self._changes(fields, prefix, messages, model)
        if isinstance(changes, Refusal):
            return changes
        request = Request({"max_tokens": 0, **fields}, messages)
        seen = shown(messages, changes)
        context = edited(fields, prefix, seen, request.conversation)
        prompt = read_prompt(fields, prefix, context.messages if context else seen)
        refusal = self.first(prompt_refusals(prompt, model))
        if refusal is not None:
            return refusal
        return Accepted(
            request=request,
            edited=context,
            model=model,
            prompt=prompt,
            scope=f"{asked.workspace}\n{fields['model']}\n{fields.get('speed', 'standard')}",
            changes=[each.told() for each in changes] if _may_know(asked, model) else None,
        )

    def _changes(
        self, fields: Mapping[str, Any], prefix: Prefix, messages: Sequence[Message], model: Model
    ) -> Sequence[Transformation] | Refusal:
        """What becomes of the thinking in a conversation."""
        if not any(block.kind in THOUGHTS for message in messages if not message.is_plain for block in message.blocks):
            return ()
        found = findings(thoughts(fields["model"], prefix, messages), model)
        granted = lenience(fields, model, account_binds=self._switches.account_binds_thinking)
        return self.first(thought_refusals(found, granted)) or transformations(found, granted)


def _shape_refusals(body: Body, asked_betas: Collection[str], counting: bool) -> Iterator[Refusal]:
    """What single fields and messages break."""
    yield from field_refusals(body.fields, asked_betas, counting=counting)
    for index, message in enumerate(body.messages or ()):
        if message.refusal is not None:
            yield message.refusal.under(f"messages.{index}")


def _may_know(asked: Asked, model: Model) -> bool:
    """Whether a request is told what became of its thinking."""
    return model.signs_thinking and any(beta.startswith(BINDING_BETA) for beta in asked.betas)
