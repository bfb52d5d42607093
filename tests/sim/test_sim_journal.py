"""What the journal holds, and what it can be asked."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import pytest
from support.sim_wire import HELLO, assistant, body, call, post, result, sent, text, user, wait_until

from paceline.sim import Answer, Call, Journal, Request, Simulator, Usage

MARK = {"type": "ephemeral"}
SECRET = "the-secret-word"


def test_a_journal_file_reads_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Simulator(lambda request: Answer(calls=[Call(tool="look")]), journal_path=path) as simulator:
        post(simulator.url, body(metadata={"user_id": "run-1"}))
        post(simulator.url, body(model="x"))
        assert Journal.read(path).entries == simulator.journal.entries
    with Simulator(lambda request: Answer(text="hi"), journal_path=path) as simulator:
        post(simulator.url, body())
    assert len(Journal.read(path)) == 3


def test_no_text_of_a_prompt_or_an_answer_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    tools = [{"name": "look", "input_schema": {"type": "object"}, "description": SECRET}]
    with Simulator(lambda request: Answer(text=SECRET), journal_path=path) as simulator:
        post(simulator.url, body(user(text(SECRET)), system=SECRET, tools=tools))
        post(simulator.url, body(HELLO, assistant(call("a"), text(SECRET)), HELLO))
    assert len(Journal.read(path)) == 2
    assert SECRET not in path.read_text()


def test_a_run_that_appends_grows_and_one_that_rewrites_does_not() -> None:
    with Simulator(lambda request: Answer(text="hi")) as simulator:
        turns = [
            (user(text("hello", cache_control=MARK)),),
            (user(text("hello")), assistant(call("a")), user(result("a", cache_control=MARK))),
        ]
        for messages in turns:
            post(simulator.url, body(*messages, metadata={"user_id": "grows"}))
        for rewritten in ((HELLO,), (user(text("hullo")), assistant(text("hm")), HELLO)):
            post(simulator.url, body(*rewritten, metadata={"user_id": "rewrites"}))
        for words in ("Be brief.", "Be long."):
            post(simulator.url, body(system=words, metadata={"user_id": "turns"}))
    journal = simulator.journal
    assert [journal.grows_by_appending(run) for run in ("grows", "rewrites", "turns")] == [True, False, False]


def test_bytes_are_compared_as_sent_but_for_the_markers() -> None:
    def hashes(raw: bytes) -> tuple[str, ...]:
        with Simulator(lambda request: Answer(text="hi")) as simulator:
            whole = b'{"model":"claude-opus-5","max_tokens":9,"messages":[' + raw + b"]}"
            assert post(simulator.url, whole).status == 200
        return simulator.journal.entries[0].message_hashes

    plain = hashes(b'{"role":"user","content":[{"type":"text","text":"hi"}]}')
    marked = b'{"role":"user","content":[{"type":"text","text":"hi", "cache_control":{"type":"ephemeral"}}]}'
    first = b'{"role":"user","content":[{"cache_control": {"type":"ephemeral"},"type":"text","text":"hi"}]}'
    assert hashes(marked) == plain
    assert hashes(first) == plain
    assert hashes(b'{"role":"user","content":[{"type":"text","text":"h\\u0069"}]}') != plain
    assert hashes(b'{"content":[{"type":"text","text":"hi"}],"role":"user"}') != plain


def test_the_prefix_is_hashed_as_sent() -> None:
    raw = b'{"model":"claude-opus-5","max_tokens":9,"tools":[],"system":"Be  brief.","messages":[%s]}'
    with Simulator(lambda request: Answer(text="hi")) as simulator:
        post(simulator.url, raw % b'{"role":"user","content":"hi"}')
    assert simulator.journal.entries[0].prefix_sha256 == sha256(b'"Be  brief."[]').hexdigest()


def test_usage_adds_up_over_what_was_billed_and_by_run() -> None:
    with Simulator(lambda request: Answer(text="x" * 7)) as simulator:
        simulator.inject("reset_after_read", run="lost")
        simulator.inject("overloaded", run="refused")
        for run in ("fine", "refused"):
            post_anyway(simulator.url, run)
        post_anyway(simulator.url, "lost")
    one = Usage(input_tokens=2, output_tokens=2)
    assert simulator.journal.usage_totals("fine") == one
    assert simulator.journal.usage_totals("refused") == Usage()
    assert simulator.journal.usage_totals("lost") == one
    assert simulator.journal.usage_totals() == one + one
    assert set(simulator.journal.by_run()) == {"fine", "refused", "lost"}
    assert len(simulator.journal.accepted()) == 2


def test_an_answer_that_finds_nobody_is_billed_and_not_delivered() -> None:
    with Simulator(lambda request: Answer(text="hi", delay_s=0.2)) as simulator:
        with sent(simulator.url, body()):
            pass
        wait_until(lambda: len(simulator.journal) == 1, "the entry of the lost answer is written")
    (entry,) = simulator.journal
    assert (entry.verdict, entry.billed, entry.delivered) == ("accepted", True, False)


def test_a_request_that_never_arrives_whole_is_no_refusal(caplog: pytest.LogCaptureFixture) -> None:
    with Simulator(lambda request: Answer(text="hi")) as simulator:
        with sent(simulator.url, body(), missing=10):
            pass
        wait_until(lambda: len(simulator.journal) == 1, "the entry of the broken request is written")
    (entry,) = simulator.journal
    assert (entry.verdict, entry.status, entry.billed, entry.delivered) == ("unread", None, False, False)
    assert simulator.journal.rejected() == []
    assert caplog.records == []


def test_an_answer_cut_off_by_the_end_of_the_simulator_is_billed_and_not_delivered() -> None:
    asked = threading.Event()

    def answer(request: Request) -> Answer:
        asked.set()
        return Answer(text="hi", delay_s=30)

    with ExitStack() as afterwards, Simulator(answer) as simulator:
        afterwards.enter_context(sent(simulator.url, body()))
        assert asked.wait(5)
    (entry,) = simulator.journal
    assert (entry.verdict, entry.billed, entry.delivered) == ("accepted", True, False)


def post_anyway(url: str, run: str) -> None:
    try:
        post(url, body(tools=None, metadata={"user_id": run}))
    except ConnectionError:
        assert run == "lost"
