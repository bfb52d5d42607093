"""Long runs against the simulator, by real turns over the record in memory: what is cleared, sent and stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from support.clock import FakeClock
from support.runs import BATCH, a_row

from paceline.core.agent import Agent, Limits
from paceline.core.compaction import cleared_by_api, sent_fragments
from paceline.core.ids import CallId, Incarnation
from paceline.core.ledger import CallRan, Compacted, Entry, ModelCalled
from paceline.core.request_fields import RequestFields
from paceline.core.transcript import Fragment, check_whole, result_text, user_text
from paceline.sim import Answer as Says
from paceline.sim import Call, Request, Simulator
from paceline.store.memory import MemoryRunStore
from paceline.store.port import RunRecord
from paceline.tools import Registry, Tool, tool
from paceline.worker.desk import Desk
from paceline.worker.messages import TurnMessage
from paceline.worker.model import AnthropicModel
from paceline.worker.process import built_in_tools
from paceline.worker.settings import Settings
from paceline.worker.turn import take_turn

pytestmark = pytest.mark.anyio

TURNS = 101
BASE_TOKENS = 90_000
SYSTEM = "Read the pages one by one. " * (BASE_TOKENS * 35 // 270)
PAGE_CHARS = 5_000
WINDOW = 200_000
UNLIMITED = Limits(turns=None, tokens=None, seconds=None, usd=None)


@tool(effect="reads", placement="inline")
async def page(number: int) -> str:
    """A page."""
    return f"page {number} " + "says so much. " * (PAGE_CHARS // 14)


PAGE = replace(page, spec=replace(page.spec, path="t:page"))


def reads_on(request: Request) -> Says:
    """A page in each turn, at last the first one again; then what it says."""
    if request.turn < TURNS - 1:
        return Says(text="On to the next.", calls=[Call(tool="page", input={"number": request.turn})])
    if request.turn == TURNS - 1:
        first = next(block for message in request.messages[1:] for block in message["content"] if "id" in block)
        return Says(calls=[Call(tool="read_result", input={"call_id": first["id"], "limit": 6})])
    return Says(text=request.tool_results[0].text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """A run that is over."""

    agent: Agent
    record: RunRecord
    transcript: Sequence[Fragment]
    ledger: Sequence[Entry]

    @property
    def compactions(self) -> list[Compacted]:
        return [entry for entry in self.ledger if isinstance(entry, Compacted)]


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    with Simulator(reads_on) as running:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        yield running


async def live(agent: Agent, own: Sequence[Tool] = (PAGE,)) -> Lived:
    """A run from its first turn to its end; each turn is taken by another worker."""
    store = MemoryRunStore(FakeClock())
    built_in = {**built_in_tools(store), **{made.spec.path: made for made in own}}
    agent = replace(agent, tools=tuple(made.spec for made in built_in.values()))
    row = replace(a_row(), first=(user_text("Begin."),))
    await store.put_agent(agent.digest, agent.freeze())
    await store.submit(await store.open_batch(replace(BATCH, agent=agent.digest)), [row])
    model = AnthropicModel(longest_seconds=30.0)
    due = [TurnMessage(run_id=row.run_id, turn=1)]
    while due:
        desk = Desk(
            settings=Settings(),
            store=store,
            model=model,
            registry=Registry(),
            built_in=built_in,
            incarnation=Incarnation(f"worker-{due[0].turn}"),
            send=lambda messages: None,
        )
        sent = await take_turn(desk, row.run_id, due[0].turn)
        due = [message for message in sent if isinstance(message, TurnMessage)]
    await model.aclose()
    record = await store.run(row.run_id)
    assert record is not None
    return Lived(
        agent=agent,
        record=record,
        transcript=await store.transcript(row.run_id),
        ledger=await store.ledger(row.run_id),
    )


READER = Agent(name="reader", model="claude-haiku-4-5", system=SYSTEM, limits=UNLIMITED)


async def test_a_run_that_would_pass_its_window_ends_with_an_answer(simulator: Simulator) -> None:
    lived = await live(READER)
    assert (lived.record.reason, lived.record.answer) == (
        "final_answer",
        "page 1\n\n[characters 0 to 6 of 5005; go on with offset=6]",
    ), "what was cleared can be read again"
    requests = simulator.journal.entries
    assert [entry.verdict for entry in requests] == ["accepted"] * TURNS

    stored = sum(map(len, lived.transcript))
    assert TURNS * PAGE_CHARS < stored < TURNS * (PAGE_CHARS + 400), "history is kept whole, and once"
    assert BASE_TOKENS + stored / 3.5 > WINDOW, "and would not fit"
    check_whole(lived.transcript)
    for made in lived.compactions:
        check_whole(sent_fragments(lived.agent, lived.transcript, made.cleared))

    moments = [made.turn for made in lived.compactions]
    assert 1 <= len(moments) <= 8
    for turn, (before, after) in enumerate(pairwise(requests), start=2):
        grew = after.message_hashes[: len(before.message_hashes)] == before.message_hashes
        assert grew is (turn not in moments), "what was sent stays as it was until the next compaction"
    for made in lived.compactions:
        told = requests[made.turn - 1].usage
        sent = told.input_tokens + told.cache_read_input_tokens + told.cache_creation_input_tokens
        assert abs(sent - made.tokens_after) < 0.1 * sent, "the estimate was a good one"
        assert made.saved_nanousd is not None
        assert made.rewrite_nanousd is not None
        assert made.saved_nanousd > made.rewrite_nanousd
    usage = lived.record.run.spent.usage
    assert usage.cache_read > 0.9 * usage.all_input, "an edit now and then leaves the cache its worth"


async def test_without_a_compaction_it_is_stopped_at_its_window(simulator: Simulator) -> None:
    lived = await live(replace(READER, compact_at=None))
    assert (lived.record.reason, lived.compactions) == ("context_window", [])
    assert {entry.verdict for entry in simulator.journal} == {"accepted"}, "before a call that would not fit"


@pytest.mark.parametrize("fault", ["context_window_exceeded", "prompt_too_long"])
async def test_where_the_api_finds_no_room_results_are_cleared_and_the_turn_is_taken_again(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """At a size at which nothing would be due."""
    with Simulator(lambda request: Says(text="Done.") if request.turn == 10 else reads_on(request)) as simulator:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", simulator.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        simulator.inject(fault, times=1, after=8)
        lived = await live(replace(READER, system=""))
        assert [entry.verdict for entry in simulator.journal] == [*["accepted"] * 8, "fault", "accepted", "accepted"]
    assert lived.record.answer == "Done."
    (made,) = lived.compactions
    assert (made.turn, made.results) == (9, 5), "of 8 the latest three are kept"
    calls = [CallId(entry.call) for entry in lived.ledger if isinstance(entry, CallRan)]
    assert all(len(result_text(lived.transcript, call) or "") >= PAGE_CHARS for call in calls)


BOUND = replace(READER, model="claude-opus-5-5", system="Read the pages one by one. " * 3_000)
"""Its thinking is bound to all that stands before it."""
LONG = 45


def thinks_and_reads_on(request: Request) -> Says:
    last = request.turn >= LONG
    calls = () if last else (Call(tool="page", input={"number": request.turn}),)
    return Says(thinking="On to the next.", text="Done." if last else "", calls=calls)


def told(lived: Lived) -> Sequence[str]:
    return [entry.stop_reason for entry in lived.ledger if isinstance(entry, ModelCalled)]


async def test_where_thinking_is_bound_the_api_clears_old_results_and_what_is_sent_stays_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Simulator(thinks_and_reads_on) as simulator:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", simulator.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        lived = await live(cleared_by_api(replace(BOUND, compact_at=0.04)))
        assert [entry.verdict for entry in simulator.journal] == ["accepted"] * LONG
        for before, after in pairwise(simulator.journal):
            assert after.message_hashes[: len(before.message_hashes)] == before.message_hashes
    assert (lived.record.answer, lived.compactions) == ("Done.", [])
    assert lived.record.run.context_tokens < 45_000, "of 90,000 that were sent"
    cleared = [entry.cleared_tokens for entry in lived.ledger if isinstance(entry, ModelCalled)]
    assert cleared[0] == 0
    assert 45_000 < cleared[-1] < 60_000


async def test_a_run_that_pauses_after_each_summary_of_the_apis_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = {"type": "input_tokens", "value": 50_000}
    edit = {"type": "compact_20260112", "trigger": trigger, "pause_after_compaction": True}
    agent = replace(BOUND, passed_through=RequestFields().with_edit(edit))
    with Simulator(thinks_and_reads_on) as simulator:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", simulator.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        lived = await live(agent)
        assert {entry.verdict for entry in simulator.journal} == {"accepted"}
    assert lived.record.answer == "Done."
    assert told(lived).count("compaction") == 2
    check_whole(lived.transcript)
    assert lived.record.run.spent.usage.total > 2 * 50_000 + 45_000, "what the summaries used counts"
    assert lived.record.run.context_tokens < 50_000
