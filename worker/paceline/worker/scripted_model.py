"""A model that plays a script: for tests of agents and of whatever runs them, with no network and no key."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.answer import Answer, read_answer
from paceline.core.step import FailureKind, ModelCallFailed

Reply = Answer | ModelCallFailed

_MODEL = "claude-sonnet-5-5"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request as the model sees it."""

    fields: Mapping[str, Any]
    betas: Sequence[str] = ()

    @property
    def run_id(self) -> str:
        return str(self.fields["metadata"]["user_id"])

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        messages: Sequence[Mapping[str, Any]] = self.fields["messages"]
        return messages

    @property
    def turn(self) -> int:
        """1 for a request without an assistant message."""
        return 1 + [message["role"] for message in self.messages].count("assistant")


class ScriptedModel:
    """A ModelClient that answers by a script: replies in their order, or a function of the request.

    `requests` keeps what was asked. A request beyond the script's end raises AssertionError.
    """

    def __init__(self, script: Iterable[Reply] | Callable[[ModelRequest], Awaitable[Reply]]) -> None:
        self._answer = script if callable(script) else _reading(script)
        self.requests: list[ModelRequest] = []

    async def call(self, body: bytes, *, seconds: float, betas: Sequence[str] = ()) -> Reply:
        """The script's reply to this request. It takes no notice of `seconds`."""
        request = ModelRequest(fields=json.loads(body), betas=betas)
        self.requests.append(request)
        return await self._answer(request)

    async def aclose(self) -> None:
        """There is nothing to give back."""


def says(text: str, *, stop_reason: str = "end_turn") -> Answer:
    """An answer of one text; of nothing at all where the text is empty."""
    return answers([{"type": "text", "text": text}] if text else [], stop_reason)


def asks(*calls: tuple[str, str, Mapping[str, Any]], stop_reason: str = "tool_use") -> Answer:
    """An answer that asks for tool calls, each an id, the tool's name and its arguments."""
    blocks = [{"type": "tool_use", "id": call_id, "name": tool, "input": given} for call_id, tool, given in calls]
    return answers(blocks, stop_reason)


def answers(content: Sequence[Mapping[str, Any]], stop_reason: str) -> Answer:
    """An answer with this content. BrokenAnswer where the model could not have said so."""
    message = {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": _MODEL,
        "content": content,
        "stop_reason": stop_reason,
        "usage": {"input_tokens": 100, "output_tokens": 10},
    }
    return read_answer(json.dumps(message).encode())


def fails(kind: FailureKind, message: str = "as the script says", *, retry_after_seconds: float | None = None) -> Reply:
    """A call that brings no answer."""
    return ModelCallFailed(kind=kind, message=message, chance=0.0, retry_after_seconds=retry_after_seconds)


def _reading(script: Iterable[Reply]) -> Callable[[ModelRequest], Awaitable[Reply]]:
    replies = iter(script)

    async def read(request: ModelRequest) -> Reply:
        reply = next(replies, None)
        assert reply is not None, f"the script has no reply to turn {request.turn} of run {request.run_id}"
        return reply

    return read
