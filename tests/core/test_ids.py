"""Names are derived, and part of the wire format: what they were they stay."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.ids import (
    SHARDS,
    BatchName,
    CallId,
    RunId,
    agent_digest,
    batch_tag,
    idempotency_key,
    run_id,
    shard_of,
    tag_of,
    trace_id,
)

NIGHTLY = BatchName("nightly")


def test_names_are_what_they_were() -> None:
    run = run_id(NIGHTLY, "row-1")
    assert batch_tag(NIGHTLY) == "gxisoyph"
    assert run == "gxisoyph-ioontjqjkf575ql4"
    assert shard_of(run) == 53
    assert trace_id(run) == "c4dd5db0ac6ebf3422272c4b2c8e68cd"
    assert idempotency_key(run, 3, CallId("toolu_1")) == "82ef153c29733ab9a997d640a610c041"
    assert agent_digest(b"{}") == "4ae4acf2f802f6f5210f"
    assert SHARDS == 64


def test_the_same_row_of_the_same_batch_is_the_same_run_and_no_other_is() -> None:
    assert run_id(NIGHTLY, "row-1") == run_id(NIGHTLY, "row-1")
    others = {run_id(NIGHTLY, "row-1"), run_id(NIGHTLY, "row-2"), run_id(BatchName("hourly"), "row-1")}
    assert len(others) == 3


@given(batch=st.text(), row=st.text())
def test_a_run_names_its_batch_and_is_safe_in_a_key(batch: str, row: str) -> None:
    try:
        f"{batch}{row}".encode()
    except UnicodeEncodeError:
        return  # names come from UTF-8 files
    run = run_id(BatchName(batch), row)
    assert tag_of(run) == batch_tag(BatchName(batch))
    assert len(run) == 25
    assert run.replace("-", "").isalnum()
    assert run == run.lower()
    assert 0 <= shard_of(run) < SHARDS


def test_runs_spread_evenly_over_the_shards() -> None:
    shards = Counter(shard_of(run_id(NIGHTLY, f"row-{number}")) for number in range(64_00))
    assert len(shards) == SHARDS
    assert 60 < min(shards.values()) <= max(shards.values()) < 150, "100 a shard on average"


def test_a_trace_is_32_hex_digits_and_one_for_each_run() -> None:
    traces = {trace_id(RunId(f"a-{number}")) for number in range(100)}
    assert len(traces) == 100
    assert all(len(trace) == 32 and int(trace, 16) for trace in traces)


def test_an_idempotency_key_is_one_for_each_call() -> None:
    run = RunId("a-1")
    keys = {idempotency_key(run, turn, CallId(call)) for turn in (1, 2) for call in ("c1", "c2")}
    assert len(keys) == 4
    assert idempotency_key(RunId("a-2"), 1, CallId("c1")) not in keys
