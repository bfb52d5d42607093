"""What was said, on spans: prompts, answers, arguments and results of tools. The one place that puts them there.

It is there only where OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT asks for it. The attributes are those of the
GenAI conventions: JSON texts of messages made of parts. They are bounded: backends drop traces of some megabytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from paceline.core import trace_names as names
from paceline.core.agent import Agent
from paceline.core.ids import CallId, RunId
from paceline.core.trace_span import Span
from paceline.core.transcript import Block, Fragment
from paceline.store.port import CallResult, RunStore, TurnWrite

SYSTEM = "gen_ai.system_instructions"
INPUT = "gen_ai.input.messages"
OUTPUT = "gen_ai.output.messages"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"

_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ON_SPANS = ("SPAN_ONLY", "SPAN_AND_EVENT")
MOST_CHARS = 16_384
"""Of an attribute."""
MOST_CHARS_OF_TEXT = 4096
"""Of one text in it."""


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether these variables ask for content on spans."""
    return environment.get(_VARIABLE, "").strip().upper() in _ON_SPANS


class Content:
    """Reads what was said from the record, and adds it to spans."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    async def of_attempt(self, run_id: RunId, agent: Agent, spans: Sequence[Span], write: TurnWrite) -> list[Span]:
        """The spans of an attempt that ended with this write, its chat with what was sent and what came."""
        transcript = await self._store.transcript(run_id)
        said = [fragment for fragment in write.append if json.loads(fragment)["role"] == "assistant"]
        sent = _before(said[0], transcript) if said else transcript
        return [_chat(span, agent, sent, said) if span.name.startswith(names.CHAT) else span for span in spans]

    async def of_calls(self, run_id: RunId, spans: Sequence[Span], results: Sequence[CallResult]) -> list[Span]:
        """The spans of these results, with what the tools were called with and what they said."""
        transcript = await self._store.transcript(run_id)
        return [_call(span, transcript, result) for span, result in zip(spans, results, strict=True)]


def _before(fragment: Fragment, transcript: Sequence[Fragment]) -> Sequence[Fragment]:
    """What stands before this message, where it is said last."""
    places = (at for at in reversed(range(len(transcript))) if transcript[at] == fragment)
    return transcript[: next(places, len(transcript))]


def _chat(span: Span, agent: Agent, sent: Sequence[Fragment], said: Sequence[Fragment]) -> Span:
    reasons = span.attributes.get(names.FINISH_REASONS)
    finish_reason = reasons[0] if isinstance(reasons, tuple) else "error"
    added = {
        **({SYSTEM: _json([_text(agent.system)])} if agent.system else {}),
        INPUT: _newest(_message(fragment) for fragment in reversed(sent)),
        **({OUTPUT: _newest(_message(each) | {"finish_reason": finish_reason} for each in said)} if said else {}),
    }
    return replace(span, attributes={**span.attributes, **added})


def _call(span: Span, transcript: Sequence[Fragment], result: CallResult) -> Span:
    arguments = _arguments(transcript, result.call_id)
    added = {
        **({} if arguments is None else {ARGUMENTS: _json(_bounded(arguments))}),
        RESULT: _json(_bounded(json.loads(result.block)["content"])),
    }
    return replace(span, attributes={**span.attributes, **added})


def _arguments(transcript: Sequence[Fragment], call: CallId) -> object | None:
    for fragment in reversed(transcript):
        for block in json.loads(fragment)["content"]:
            if block["type"] == "tool_use" and block["id"] == call:
                return cast("object", block["input"])
    return None


def _newest(messages: Iterable[dict[str, Any]]) -> str:
    """As JSON, oldest first, as many of these as there is room for; they come newest first."""
    told: list[dict[str, Any]] = []
    room = MOST_CHARS
    for message in messages:
        room -= len(_json(message)) + 2
        if room < 0:
            break
        told.insert(0, message)
    return _json(told)


def _message(fragment: Fragment) -> dict[str, Any]:
    message = json.loads(fragment)
    parts = [_part(block) for block in message["content"]]
    is_of_tools = all(part["type"] == "tool_call_response" for part in parts)
    return {"role": "tool" if is_of_tools else message["role"], "parts": parts}


def _part(block: Block) -> dict[str, Any]:
    match block:
        case {"type": "text", "text": str() as text}:
            return _text(text)
        case {"type": "thinking", "thinking": str() as text}:
            return {"type": "reasoning", "content": _cut(text)}
        case {"type": "tool_use", "id": call, "name": name, "input": arguments}:
            return {"type": "tool_call", "id": call, "name": name, "arguments": _bounded(arguments)}
        case {"type": "tool_result", "tool_use_id": call}:
            return {"type": "tool_call_response", "id": call, "response": _bounded(block.get("content", ""))}
        case _:
            return {"type": str(block.get("type"))}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": _cut(text)}


def _bounded(value: object) -> object:
    """The value, or its JSON cut short."""
    if isinstance(value, str):
        return _cut(value)
    text = _json(value)
    return value if len(text) <= MOST_CHARS_OF_TEXT else _cut(text)


def _cut(text: str) -> str:
    more = len(text) - MOST_CHARS_OF_TEXT
    return text if more <= 0 else f"{text[:MOST_CHARS_OF_TEXT]}… ({more} more characters)"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
