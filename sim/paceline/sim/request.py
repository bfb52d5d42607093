"""A request that the API accepts, as a playbook sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

from paceline.sim.message import CALL, RESULT, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """An answer to a call of the turn before."""

    tool: str
    call_id: str
    text: str
    is_error: bool


class Request:
    """An accepted request. `turn` counts from 1; `run` is `metadata.user_id`."""

    def __init__(self, fields: Mapping[str, Any], messages: Sequence[Message]) -> None:
        self.fields = fields
        self.sent = messages
        self.model: str = fields["model"]
        self.max_tokens: int = fields["max_tokens"]
        self.stream: bool = fields.get("stream") is True
        self.run: str | None = (fields.get("metadata") or {}).get("user_id")
        self.turn = 1 + sum(message.role == "assistant" for message in messages)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages as sent."""
        return [message.value for message in self.sent]

    @cached_property
    def first_user_text(self) -> str:
        """The text of the first user message."""
        return next((message.text for message in self.sent if message.role == "user"), "")

    @cached_property
    def last_text(self) -> str:
        """The text of the last message, results included."""
        return self.sent[-1].text

    @cached_property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The results that came since the model last spoke, in order."""
        news = self._news()
        results = [block for message in news for block in message.blocks if block.kind == RESULT]
        spoken = self.sent[: len(self.sent) - len(news)]
        tools = {block.id: block.name for block in spoken[-1].blocks if block.kind == CALL} if results else {}
        return tuple(
            ToolResult(tool=tools.get(block.id, ""), call_id=block.id, text=block.text, is_error=block.is_error)
            for block in results
        )

    @cached_property
    def conversation(self) -> str:
        """A name for the conversation so far: equal for equal messages to the same model."""
        digests = ",".join(message.digest for message in self.sent)
        return blake2b(f"{self.model}:{digests}".encode(), digest_size=16).hexdigest()

    def _news(self) -> Sequence[Message]:
        """The messages after the model's last."""
        for index in range(len(self.sent) - 1, -1, -1):
            if self.sent[index].role == "assistant":
                return self.sent[index + 1 :]
        return self.sent
