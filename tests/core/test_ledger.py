"""What is written in the ledger can be read for as long as the record lives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import Bug
from paceline.core.ledger import (
    LEDGER_VERSION,
    ApprovalDecided,
    AttemptLost,
    CallRan,
    Compacted,
    EffectInDoubt,
    EffectRuledOut,
    Ended,
    Entry,
    Held,
    ModelCalled,
    PossiblyBilled,
    Redriven,
    Source,
    Unknown,
    decode,
    encode,
)
from paceline.core.run import Overflow, Spent, Streaks
from paceline.core.usage import Usage

GOLDEN = Path(__file__).parent.parent / "golden" / "ledger-1.jsonl"

ENTRIES: list[Entry] = [
    ModelCalled(
        turn=1,
        attempt=1,
        at_ms=1_800_000_000_500,
        took_ms=480,
        worker="w1",
        model="claude-sonnet-5-5",
        stop_reason="tool_use",
        usage=Usage(input=12, cache_read=50_000, cache_write=3_000, output=400),
        cost_nanousd=16_524_000,
        calls=("search_wiki(toolu_1)", "page_owner(toolu_2)"),
    ),
    ModelCalled(turn=2, attempt=1, at_ms=2, took_ms=3, worker="w1", model="llama-12", stop_reason="end_turn"),
    CallRan(
        turn=1,
        call="toolu_1",
        tool="search_wiki",
        attempt=2,
        at_ms=1_800_000_001_000,
        took_ms=5,
        worker="w2",
        is_error=True,
        result_chars=81,
    ),
    Held(turn=2, attempt=1, at_ms=1_800_000_002_000, wait_seconds=2.5, reason="529 overloaded ☃"),
    AttemptLost(turn=2, attempt=1, at_ms=1_800_000_003_000, worker="w1"),
    Ended(turn=2, at_ms=1_800_000_004_000, reason="max_turns", message="no answer after 2 turns"),
    EffectInDoubt(
        turn=3,
        call="toolu_3",
        tool="charge",
        attempt=1,
        at_ms=1_800_000_036_000,
        began_ms=1_800_000_005_000,
        worker="w1",
        why="its worker was lost",
    ),
    EffectRuledOut(turn=3, call="toolu_3", tool="charge", at_ms=1_800_000_037_000, source=Source.RECONCILE),
    CallRan(
        turn=3,
        call="toolu_4",
        tool="charge",
        attempt=1,
        at_ms=1_800_000_038_000,
        took_ms=0,
        worker="",
        is_error=False,
        result_chars=4,
        source=Source.PERSON,
    ),
    Redriven(turn=3, at_ms=1_800_000_039_000),
    PossiblyBilled(turn=4, attempt=3, at_ms=1_800_000_040_000, tokens=5_300, cost_nanousd=60_500_000),
    Compacted(
        turn=31,
        at_ms=1_800_000_040_000,
        cleared=57,
        results=27,
        tokens_before=130_000,
        tokens_after=30_000,
        expected_turns=30,
        saved_nanousd=300_000_000,
        rewrite_nanousd=35_000_000,
    ),
    Held(turn=2, attempt=2, at_ms=5, wait_seconds=1.0, reason="529", took_ms=20, trouble="throttled"),
    AttemptLost(turn=2, attempt=3, at_ms=9, worker="w1", began_ms=6),
    Ended(turn=2, at_ms=12, reason="model_error", message="refused", attempt=4, took_ms=2),
    ApprovalDecided(turn=5, call="toolu_5", tool="charge", at_ms=1_800_000_041_000, approved=True),
    ApprovalDecided(
        turn=5, call="toolu_6", tool="charge", at_ms=1_800_000_042_000, approved=False, reason="too much ☃"
    ),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_is_read_back_as_it_was_written(entry: Entry) -> None:
    assert decode(encode(entry)) == entry


@given(
    st.one_of(
        *(
            st.from_type(kind)
            for kind in (
                ModelCalled,
                CallRan,
                Held,
                AttemptLost,
                PossiblyBilled,
                EffectInDoubt,
                EffectRuledOut,
                Ended,
                Redriven,
            )
        )
    )
)
def test_any_entry_is_read_back_as_it_was_written(entry: Entry) -> None:
    try:
        stored = encode(entry)
    except UnicodeEncodeError:
        return  # texts of entries are UTF-8 before they come here
    if b"NaN" not in stored and b"Infinity" not in stored:
        assert decode(stored) == entry


def test_entries_of_the_first_version_stay_readable() -> None:
    lines = GOLDEN.read_bytes().splitlines()
    assert [decode(line) for line in lines] == ENTRIES
    assert [encode(entry) for entry in ENTRIES] == lines


def test_an_entry_says_what_it_is_and_of_which_version() -> None:
    kinds = [json.loads(encode(entry))["kind"] for entry in ENTRIES]
    assert kinds == [
        "model",
        "model",
        "call",
        "held",
        "lost",
        "ended",
        "in_doubt",
        "ruled_out",
        "call",
        "redriven",
        "possibly_billed",
        "compacted",
        "held",
        "lost",
        "ended",
        "approval",
        "approval",
    ]
    assert {json.loads(encode(entry))["version"] for entry in ENTRIES} == {LEDGER_VERSION}


@pytest.mark.parametrize("line", GOLDEN.read_bytes().splitlines())
def test_an_entry_with_one_field_more_is_read(line: bytes) -> None:
    stored = json.loads(line)
    if "usage" in stored:
        stored["usage"]["cache_write_1h"] = 1
    assert decode(json.dumps(stored | {"colour": "red"}).encode()) == decode(line)


@pytest.mark.parametrize("change", [{"kind": "praised"}, {"version": 2}], ids=["kind", "version"])
def test_an_entry_that_only_a_newer_version_can_read_is_told_as_one(change: dict[str, object]) -> None:
    stored = {"kind": "lost", "version": 1, "turn": 3, "at_ms": 7, "saved": 9} | change
    assert decode(json.dumps(stored).encode()) == Unknown(turn=3, at_ms=7, kind=str(stored["kind"]))


def test_an_entry_that_is_not_known_is_never_written() -> None:
    with pytest.raises(Bug, match="'praised' cannot be written"):
        encode(Unknown(turn=1, at_ms=1, kind="praised"))


def test_anything_else_is_no_entry() -> None:
    with pytest.raises(KeyError):
        decode(b'{"kind":"dream","version":1}')
    with pytest.raises(TypeError):
        decode(b'{"kind":"ended","version":1}')


@given(st.builds(Streaks))
def test_streaks_are_read_back_as_they_were_stored(streaks: Streaks) -> None:
    assert Streaks.decode(streaks.encode()) == streaks


def test_streaks_with_one_value_more_are_read() -> None:
    streaks = Streaks(failures=1, error_turns=2, overflow=Overflow.TOLD, waits=3)
    assert Streaks.decode(f"{streaks.encode()},9") == streaks


def test_streaks_of_nothing_take_no_room() -> None:
    assert Streaks().encode() == ""
    assert Streaks(losses=2, max_tokens=8192).encode() == "0,0,0,0,0,2,8192"


def test_what_was_spent_adds_up() -> None:
    one = Spent(usage=Usage(input=1, output=2), cost_nanousd=3, unpriced_calls=1, working_ms=5, tool_calls=6)
    assert one + Spent() == one
    assert one + one == Spent(
        usage=Usage(input=2, output=4), cost_nanousd=6, unpriced_calls=2, working_ms=10, tool_calls=12
    )
