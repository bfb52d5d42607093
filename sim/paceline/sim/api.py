"""The judgement of a request, from its headers and bytes: refused by a rule, or accepted with its usage."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from paceline.sim.body import Body, MessageShelf, read_body
from paceline.sim.conversation import conversation_refusals
from paceline.sim.fields import field_refusals, model_refusals
from paceline.sim.headers import Headers, betas, header_refusals, workspace_of
from paceline.sim.models import MODELS, Model
from paceline.sim.prefix import PrefixShelf
from paceline.sim.prompt import Prompt, prompt_refusals, read_prompt
from paceline.sim.request import Request
from paceline.sim.rules import Refusal, Rule, refuse

MAX_BODY_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A request that keeps every rule; `scope` is what its cache entries are shared within."""

    request: Request
    model: Model
    prompt: Prompt
    scope: str


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
        refusal = next(_shape_refusals(body, betas(headers), counting), None)
        if refusal is not None:
            return refusal
        prefix = self._prefixes.read(body.fields, body.raw)
        if prefix.refusal is not None:
            return prefix.refusal
        prompt = read_prompt(body.fields, prefix, body.messages or ())
        refusal = next(_sense_refusals(body, headers, prompt), None)
        return self._accept(body, headers, prompt) if refusal is None else refusal

    def _accept(self, body: Body, headers: Headers, prompt: Prompt) -> Accepted:
        fields = body.fields
        scope = f"{workspace_of(headers, self._keys)}\n{fields['model']}\n{fields.get('speed', 'standard')}"
        return Accepted(
            request=Request({"max_tokens": 0, **fields}, prompt.messages),
            model=MODELS[fields["model"]],
            prompt=prompt,
            scope=scope,
        )


def _shape_refusals(body: Body, asked_betas: Collection[str], counting: bool) -> Iterator[Refusal]:
    """What single fields and messages break."""
    yield from field_refusals(body.fields, asked_betas, counting=counting)
    for index, message in enumerate(body.messages or ()):
        if message.refusal is not None:
            yield message.refusal.under(f"messages.{index}")


def _sense_refusals(body: Body, headers: Headers, prompt: Prompt) -> Iterator[Refusal]:
    """What sound parts break together, and with the model."""
    yield from model_refusals(body.fields, headers["anthropic-version"])
    model = MODELS[body.fields["model"]]
    yield from conversation_refusals(prompt.messages, model)
    yield from prompt_refusals(prompt)
    if prompt.tokens > model.window_tokens:
        yield refuse(Rule.PROMPT_TOO_LONG, tokens=prompt.tokens, most=model.window_tokens)
