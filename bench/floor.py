"""The floor: the same conversations in a bare asyncio loop with the official client, nothing kept and nothing durable.

`python -m bench.floor` reads rounds from its input, `runs turns calls at_once`, and says `done` after each.
"""

from __future__ import annotations

import asyncio
import sys

from anthropic import AsyncAnthropic
from anthropic.types import MessageParam, ToolParam, ToolResultBlockParam, ToolUseBlock

from .work import MAX_TOKENS, MODEL, RESULT, SYSTEM, TOOL_DESCRIPTION, TOOL_NAME, TOOL_SCHEMA, Work

_TOOL: ToolParam = {"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "input_schema": TOOL_SCHEMA}


def look(key: str) -> str:
    """The tool, as a plain function."""
    return RESULT


async def converse(client: AsyncAnthropic, prompt: str) -> None:
    """One run: call the model and its tools until it asks for none."""
    messages: list[MessageParam] = [{"role": "user", "content": prompt}]
    while True:
        answer = await client.messages.create(
            model=MODEL, max_tokens=MAX_TOKENS, system=SYSTEM, tools=[_TOOL], messages=messages
        )
        calls = [block for block in answer.content if isinstance(block, ToolUseBlock)]
        if not calls:
            return
        messages.append({"role": "assistant", "content": answer.content})
        messages.append({"role": "user", "content": [_result(call) for call in calls]})


def _result(call: ToolUseBlock) -> ToolResultBlockParam:
    return {"type": "tool_result", "tool_use_id": call.id, "content": look(str(call.input["key"]))}


async def run(work: Work, *, at_once: int) -> None:
    """All runs of the work, so many at a time."""
    slots = asyncio.Semaphore(at_once)

    async def one(client: AsyncAnthropic) -> None:
        async with slots:
            await converse(client, work.prompt)

    async with AsyncAnthropic(max_retries=0) as client:
        await asyncio.gather(*(one(client) for _ in range(work.runs)))


def main() -> None:
    """A round for each line of the input."""
    for line in sys.stdin:
        runs, turns, calls, at_once = map(int, line.split())
        asyncio.run(run(Work(runs=runs, turns=turns, calls=calls), at_once=at_once))
        print("done", flush=True)


if __name__ == "__main__":
    main()
