"""What a newer version added to a stored value is passed over."""

from __future__ import annotations

import json

from support.runs import a_call

from paceline.core.ids import Incarnation
from paceline.store.encoding import decode_call, decode_report, encode_call, encode_report
from paceline.store.port import WorkerReport

REPORT = WorkerReport(
    incarnation=Incarnation("worker-1"),
    host="node-7",
    pid=4711,
    started_ms=1_800_000_000_000,
    concurrency=64,
    in_flight=3,
    delivered_ms={"paceline.turns": 1_800_000_000_100},
    problems=("wiki_tools:search cannot be imported",),
)


def _with_more(stored: bytes) -> bytes:
    return json.dumps(json.loads(stored) | {"colour": "red"}).encode()


def test_a_report_with_one_field_more_is_read() -> None:
    assert decode_report(REPORT.incarnation, _with_more(encode_report(REPORT))) == REPORT


def test_a_call_with_one_field_more_is_read() -> None:
    call = a_call("c1")
    assert decode_call(call.call_id, _with_more(encode_call(call, 2))) == (2, call)
