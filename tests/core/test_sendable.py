"""Whatever the model answers, in whatever order: the transcript that follows can be sent, and only grows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.wire import body, text, thinking, tool_use

from paceline.core.agent import Agent, Limits
from paceline.core.answer import BrokenAnswer, Call, read_answer
from paceline.core.ids import AgentDigest, CallId, RunId
from paceline.core.lifecycle import State
from paceline.core.next_call import next_call
from paceline.core.run import Run, Spent, Streaks
from paceline.core.step import (
    CallModel,
    FailureKind,
    Finish,
    GoOn,
    Hold,
    ModelAnswered,
    ModelCallFailed,
    OpenCalls,
    TurnBegun,
    WorkerLost,
    next_step,
    said_so_far,
)
from paceline.core.transcript import (
    Fragment,
    all_failed,
    check_next,
    check_sendable,
    check_whole,
    result_block,
    results_message,
    tool_use_ids,
    user_text,
)

AGENT = Agent(name="a", model="claude-sonnet-5-5", system="Be brief.", limits=Limits(turns=12, usd=None))
HANDING_IN = replace(AGENT, finish={"type": "object", "required": ["who"], "properties": {"who": {"type": "string"}}})

words = st.text(max_size=12)
blocks = st.one_of(
    words.map(text),
    words.map(thinking),
    st.builds(tool_use, st.sampled_from(["c1", "c2", "c3", "c 4", ""]), st.sampled_from(["search", "finish"])),
    st.builds(tool_use, st.just("f1"), st.just("finish"), who=st.sampled_from(["Ada", 3])),
    st.just({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}),
    words.map(lambda said: {"type": "compaction", "content": said, "signature": "c2ln"}),
)
GOING_ON = ["tool_use", "max_tokens", "pause_turn", "compaction"]
STOP_REASONS = ["end_turn", "stop_sequence", *GOING_ON, "refusal", "odd", None]
answers = st.builds(
    lambda content, stop_reason: body(*content, stop_reason=stop_reason),
    st.lists(blocks, max_size=4),
    st.sampled_from([*STOP_REASONS, *GOING_ON, "tool_use"]),
)
asking = st.builds(
    lambda said, count: body(
        text("I look. " + said), *[tool_use(f"c{n}") for n in range(count)], stop_reason="tool_use"
    ),
    words,
    st.integers(1, 4),
)
events = st.one_of(
    answers,
    asking,
    st.sampled_from(
        [
            ModelCallFailed(kind=FailureKind.TRANSIENT, message="500", chance=0.5),
            ModelCallFailed(kind=FailureKind.THROTTLED, message="429", chance=0.5),
            WorkerLost(poison_after=3),
        ]
    ),
)


@dataclass(slots=True)
class Life:
    """A run's life in memory: what a worker and a store make of each step."""

    agent: Agent
    run: Run
    fragments: list[Fragment]
    seen: set[CallId] = field(default_factory=set)
    over: bool = False

    def append(self, *fragments: Fragment) -> None:
        for fragment in fragments:
            check_next(self.fragments[-1], fragment)
            self.fragments.append(fragment)

    def answer_calls(self, calls: tuple[Call, ...], results: list[str], answered: Mapping[CallId, str]) -> None:
        ids = [call.call_id for call in calls]
        made = {
            id_: result_block(id_, answered.get(id_, results[at % len(results)]), is_error=at % 2 == 1)
            for at, id_ in reversed(list(enumerate(ids)))
        }
        self.append(results_message(ids, made))

    def turn(self, event: Any, results: list[str]) -> None:
        """One attempt: a call whose answer is `event`, or whatever happened to it."""
        happened = TurnBegun(
            call=next_call(self.agent, self.run, self.fragments), now_ms=0, all_failed=all_failed(self.fragments[-1])
        )
        begun = next_step(self.agent, self.run, happened)
        if isinstance(begun, Finish):
            self.over = True
            return
        assert isinstance(begun, CallModel)
        check_sendable(self.fragments)
        self.happen(event, results)

    def happen(self, event: Any, results: list[str]) -> None:
        match next_step(self.agent, self.run, self.happening(event)):
            case OpenCalls(append=asked, calls=calls, streaks=streaks, answered=answered):
                if self.seen & {call.call_id for call in calls}:
                    self.over = True  # what the store answers with DUPLICATE_CALL
                    return
                self.seen.update(call.call_id for call in calls)
                self.append(asked)
                self.answer_calls(calls, results, answered)
                self.run = replace(self.run, turn=self.run.turn + 1, streaks=streaks)
            case GoOn(append=more, advance=advance, streaks=streaks):
                self.append(*more)
                self.run = replace(self.run, turn=self.run.turn + advance, streaks=streaks)
            case Hold(streaks=streaks):
                self.run = replace(self.run, streaks=streaks)
            case Finish(append=more, outcome=outcome):
                self.over = True
                if not self.seen & {id_ for each in more for id_ in tool_use_ids(json.loads(each))}:
                    self.append(*more)  # else the worker asks the model again
                assert (outcome.answer is not None) is (outcome.ending.exception is None)
            case CallModel():
                raise AssertionError("only a turn that begins calls the model")

    def happening(self, event: Any) -> ModelAnswered | ModelCallFailed | WorkerLost:
        if not isinstance(event, bytes):
            return event  # type: ignore[no-any-return]
        try:
            answer = read_answer(self._fresh_ids(event))
        except BrokenAnswer as broken:
            return ModelCallFailed(kind=FailureKind.TRANSIENT, message=str(broken), chance=0.0)
        self.run = replace(self.run, spent=self.run.spent + Spent(usage=answer.usage))
        return ModelAnswered(
            answer=answer, so_far=said_so_far(self.fragments), all_failed=all_failed(self.fragments[-1])
        )

    def _fresh_ids(self, event: bytes) -> bytes:
        """Each turn's ids are its own, as the API's are; now and then the model repeats one, and the store refuses."""
        message = json.loads(event)
        for block in message["content"]:
            if block["type"] == "tool_use" and block["id"] and " " not in block["id"] and self.run.turn % 5:
                block["id"] = f"{block['id']}_{self.run.turn}"
        return json.dumps(message).encode()


@settings(max_examples=200)
@given(
    agent=st.sampled_from([AGENT, HANDING_IN]),
    script=st.lists(events, max_size=15),
    results=st.lists(words, min_size=1, max_size=3),
)
def test_every_transcript_that_could_be_sent_is_valid(agent: Agent, script: list[Any], results: list[str]) -> None:
    run = Run(
        run_id=RunId("a-1"), row_id="r", agent=AgentDigest("5f"), state=State.IN_TURN, turn=1, fence=1, attempts=1
    )
    life = Life(agent=agent, run=run, fragments=[user_text("Who is on call?")])
    sent = b""
    for event in script:
        life.turn(event, results)
        check_whole(life.fragments)
        assert Streaks.decode(life.run.streaks.encode()) == life.run.streaks
        request = agent.request(life.fragments, max_tokens=4096, user_id="u")
        assert json.loads(request)["messages"] == [json.loads(fragment) for fragment in life.fragments]
        prefix = request[: request.rindex(b"],")]
        assert prefix.startswith(sent), "history is only ever added to"
        sent = prefix
        if life.over:
            break
