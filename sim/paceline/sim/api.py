"""The judgement of a request, from its headers and bytes: refused by a rule, or accepted with its usage."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from paceline.sim.answer import tokens
from paceline.sim.body import Body, MessageShelf, read_body
from paceline.sim.conversation import conversation_refusals
from paceline.sim.fields import field_refusals, model_refusals
from paceline.sim.headers import Headers, betas, header_refusals, workspace_of
from paceline.sim.models import MODELS, Model
from paceline.sim.prefix import Prefix, PrefixShelf
from paceline.sim.request import Request
from paceline.sim.rules import Refusal, Rule, refuse

MAX_BODY_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A request that keeps every rule."""

    request: Request
    model: Model
    prefix: Prefix
    workspace: str
    prompt_tokens: int


class Api:
    """Judges requests. Remembers what it has read, so a growing conversation costs what is new in it."""

    def __init__(self, keys: Collection[str] | None = None) -> None:
        self._keys = keys
        self._messages = MessageShelf()
        self._prefixes = PrefixShelf()

    def judge(self, headers: Headers, data: bytes, *, counting: bool = False) -> Accepted | Refusal:
        """Accept or refuse a request to create a message, or to count one's tokens."""
        refusal = next(header_refusals(headers, self._keys), None)
        if refusal is not None:
            return refusal
        if len(data) > MAX_BODY_BYTES:
            return refuse(Rule.TOO_LARGE)
        body = read_body(data, self._messages)
        if isinstance(body, Refusal):
            return body
        return next(self._body_refusals(body, headers, counting), None) or self._accept(body, headers)

    def _body_refusals(self, body: Body, headers: Headers, counting: bool) -> Iterator[Refusal]:
        yield from field_refusals(body.fields, betas(headers), counting=counting)
        messages = body.messages or ()
        for index, message in enumerate(messages):
            if message.refusal is not None:
                yield message.refusal.under(f"messages.{index}")
        prefix = self._prefixes.read(body.fields, body.raw)
        if prefix.refusal is not None:
            yield prefix.refusal
        yield from model_refusals(body.fields, headers["anthropic-version"])
        model = MODELS[body.fields["model"]]
        yield from conversation_refusals(messages, model)
        size = self._prompt_tokens(body)
        if size > model.window_tokens:
            yield refuse(Rule.PROMPT_TOO_LONG, tokens=size, most=model.window_tokens)

    def _accept(self, body: Body, headers: Headers) -> Accepted:
        return Accepted(
            request=Request({"max_tokens": 0, **body.fields}, body.messages or ()),
            model=MODELS[body.fields["model"]],
            prefix=self._prefixes.read(body.fields, body.raw),
            workspace=workspace_of(headers, self._keys),
            prompt_tokens=self._prompt_tokens(body),
        )

    def _prompt_tokens(self, body: Body) -> int:
        prefix = self._prefixes.read(body.fields, body.raw)
        chars = sum(block.chars for block in prefix.blocks)
        return tokens(chars + sum(block.chars for message in body.messages or () for block in message.blocks))
