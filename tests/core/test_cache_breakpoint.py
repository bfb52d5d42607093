"""Where a long turn needs a further cache breakpoint, and that nothing else of what is sent changes."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.agent import Agent
from paceline.core.cache_breakpoint import MOST_BLOCKS, with_breakpoint
from paceline.core.ids import CallId
from paceline.core.transcript import Fragment, assistant_content, result_block, results_message, user_blocks, user_text

QUESTION = user_text("Who is on call?")
MARKED = {"type": "ephemeral"}


def turn(calls: int, number: int = 1) -> list[bytes]:
    """An assistant message of so many calls, and the results."""
    ids = [CallId(f"c{number}_{place}") for place in range(calls)]
    blocks = [{"type": "tool_use", "id": id_, "name": "search", "input": {"q": '"type"'}} for id_ in ids]
    asked = assistant_content(json.dumps(blocks).encode())
    return [asked, results_message(ids, {id_: result_block(id_, "Ada", is_error=False) for id_ in ids})]


def marked(fragments: list[bytes]) -> list[int]:
    """Which messages have a breakpoint on their last block, when sent."""
    sent = [json.loads(fragment) for fragment in with_breakpoint(fragments)]
    return [at for at, message in enumerate(sent) if message["content"][-1].get("cache_control") == MARKED]


def test_a_long_turn_gets_a_breakpoint_where_the_last_request_ended() -> None:
    assert marked([QUESTION, *turn(8)]) == [0]
    assert marked([QUESTION, *turn(2), *turn(12, 2)]) == [2]
    assert marked([QUESTION, *turn(12), *turn(2, 2)]) == []


def test_a_turn_within_sight_of_the_last_request_needs_none() -> None:
    assert 2 * 7 <= MOST_BLOCKS < 2 * 8
    assert marked([QUESTION, *turn(7)]) == []
    assert marked([QUESTION]) == []


def test_a_row_with_breakpoints_of_its_own_gets_no_more_than_the_api_takes() -> None:
    one = user_blocks([{"type": "text", "text": "Read.", "cache_control": MARKED}, {"type": "text", "text": "Who?"}])
    two = user_blocks(
        [{"type": "text", "text": "Read.", "cache_control": MARKED}] * 2 + [{"type": "text", "text": "?"}]
    )
    assert marked([one, *turn(12)]) == [0]
    assert marked([two, *turn(12)]) == []
    own = user_blocks([{"type": "text", "text": "Who?", "cache_control": MARKED}])
    assert with_breakpoint([own, *turn(12)]) == [own, *turn(12)]


@given(calls=st.lists(st.integers(1, 20), max_size=5))
def test_all_that_is_sent_is_as_stored_but_for_one_marker(calls: list[int]) -> None:
    stored = [QUESTION, *(fragment for number, count in enumerate(calls) for fragment in turn(count, number))]
    sent = [json.loads(fragment) for fragment in with_breakpoint(stored)]
    found = [message["content"][-1].pop("cache_control") for message in sent if "cache_control" in str(message)]
    assert len(found) == (1 if calls and 2 * calls[-1] > MOST_BLOCKS else 0)
    assert sent == [json.loads(fragment) for fragment in stored]
    body = Agent(name="a", model="claude-sonnet-5-5", system="Be brief.").request(stored, max_tokens=9, user_id="u")
    assert body.count(b'"cache_control":{') == 2 + len(found)


def test_what_is_stored_is_not_touched() -> None:
    stored: list[bytes] = [Fragment(bytes(fragment)) for fragment in (QUESTION, *turn(12))]
    before = list(stored)
    with_breakpoint(stored)
    assert stored == before
