"""One trace a run, from real processes that die: what came to the receiver is what the record says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from integration.fleet import FleetPlan, RealFleet, wait_until
from support.otlp_receiver import OtlpReceiver, ReceivedSpan

from paceline.core.ids import trace_id
from paceline.core.ledger import AttemptLost, CallRan, Entry, ModelCalled
from paceline.core.lifecycle import State
from paceline.producer.children import Child
from paceline.producer.fleet import Batch
from paceline.producer.trace import traces_json
from paceline.sim import Answer, Call
from paceline.sim.request import Request
from paceline.store.port import RunRecord

TURNS = 4
SECRET = "sk-ant-never-to-be-seen"


def calling_script(request: Request) -> Answer:
    """Three turns with an inline call and one of the fleet, and an answer."""
    if request.turn == TURNS:
        return Answer(text="SECRET ANSWER")
    calls = [Call(tool=tool, input={"what": f"SECRET ARGUMENT {request.turn}"}) for tool in ("look", "fetch")]
    return Answer(text="SECRET THOUGHT", calls=calls, delay_s=1.5 if request.turn == 2 else 0.1)


def _environment(receiver: OtlpReceiver) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "ANTHROPIC_API_KEY": SECRET, "OTEL_SERVICE_NAME": "fleet"}


@pytest.mark.parametrize(("pool", "workers", "concurrency", "runs"), [("threads", 3, 16, 6), ("prefork", 2, 2, 3)])
def test_each_run_is_one_flat_trace_though_a_worker_dies(
    tmp_path: Path, pool: Literal["threads", "prefork"], workers: int, concurrency: int, runs: int
) -> None:
    with OtlpReceiver() as receiver:
        plan = FleetPlan(
            workers=workers,
            pool=pool,
            concurrency=concurrency,
            claim_seconds=2,
            environment=_environment(receiver),
        )
        with RealFleet(tmp_path, calling_script, plan) as real:
            real.wait_working()
            batch = real.submit(runs)
            real.kill(_worker_in_a_turn(real, batch))
            assert real.wait_ended(batch).counts.reasons == {"final_answer": runs}
            wait_until(lambda: len(_roots(receiver.spans)) == runs, "every run has its root")
            records = list(batch.records())
            lost = 0
            for record in records:
                story = real.fleet.show(record.run.run_id)
                ledger = story.ledger
                spans = [span for span in receiver.spans if span.trace == trace_id(record.run.run_id)]
                _assert_flat(spans)
                _assert_as_recorded(spans, record, ledger)
                _assert_as_shown(spans, traces_json(story, now_ms=0))
                lost += sum(isinstance(entry, AttemptLost) for entry in ledger)
        assert lost >= 1
        for hidden in ("SECRET", SECRET, "run 0", "You are tested"):
            assert not any(hidden.encode() in body for body in receiver.raw), hidden


def _worker_in_a_turn(real: RealFleet, batch: Batch) -> Child:
    """A worker that does nothing but wait for the model: what it has written, it has told."""
    wait_until(lambda: all(map(_is_in_second_turn, batch.records())), "every run waits for its second answer")
    owners = {record.run.owner for record in batch.records()}
    return next(worker for worker in real.alive() if owners & {*real.incarnations(worker)})


def _is_in_second_turn(record: RunRecord) -> bool:
    return (record.run.turn, record.run.state) == (2, State.IN_TURN)


def _roots(spans: Sequence[ReceivedSpan]) -> list[ReceivedSpan]:
    return [span for span in spans if not span.parent]


def _assert_flat(spans: Sequence[ReceivedSpan]) -> None:
    """One root, turns below it, calls below those, and nothing else."""
    by_id = {span.span: span for span in spans}
    assert len(by_id) == len(spans), "no span is told twice"
    (root,) = _roots(spans)
    assert (root.name, root.kind) == ("invoke_agent effects", "internal")
    for span in spans:
        if span is root:
            continue
        assert span.parent in by_id, f"{span.name} is an orphan"
        parent = by_id[span.parent]
        if span.name == "turn":
            assert (span.kind, parent) == ("consumer", root)
        else:
            assert (span.name, span.kind) in KINDS
            assert parent.name == "turn"
            assert span.attributes["paceline.turn"] == parent.attributes["paceline.turn"]


KINDS = {("chat claude-sonnet-5-5", "client"), ("execute_tool look", "internal"), ("execute_tool fetch", "internal")}


def _assert_as_shown(spans: Sequence[ReceivedSpan], traces: Sequence[dict[str, Any]]) -> None:
    """`paceline show --trace` tells the spans that were exported: the same names, ids and parents, errors and times."""
    received = {(span.name, span.span, span.parent, span.attributes.get("error.type")) for span in spans}
    (root,) = traces
    shown = list(_with_children(root))
    assert {(it["name"], it["span_id"], it["parent_span_id"] or "", it["error"]) for it in shown} == received
    ends = {span.span: span.end_ns // 1_000_000 for span in spans}
    assert max(abs(it["end_ms"] - ends[it["span_id"]]) for it in shown) < 1000


def _with_children(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node["children"]:
        yield from _with_children(child)


def _assert_as_recorded(spans: Sequence[ReceivedSpan], record: RunRecord, ledger: Sequence[Entry]) -> None:
    (root,) = _roots(spans)
    chats = [span for span in spans if span.name.startswith("chat")]
    called = [entry for entry in ledger if isinstance(entry, ModelCalled)]
    assert len(chats) == len(called)
    for name, total in {
        "gen_ai.usage.input_tokens": record.run.spent.usage.all_input,
        "gen_ai.usage.output_tokens": record.run.spent.usage.output,
    }.items():
        assert root.attributes[name] == sum(int(str(chat.attributes[name])) for chat in chats) == total
    assert root.attributes["paceline.stop_reason"] == record.reason
    assert root.attributes["gen_ai.conversation.id"] == record.run.run_id
    tools = Counter(span.attributes["gen_ai.tool.call.id"] for span in spans if span.name.startswith("execute_tool"))
    assert tools == Counter(entry.call for entry in ledger if isinstance(entry, CallRan))
    lost = [entry for entry in ledger if isinstance(entry, AttemptLost)]
    told = [span for span in spans if span.attributes.get("error.type") == "worker_lost"]
    assert Counter(span.attributes["paceline.attempt"] for span in told) == Counter(entry.attempt for entry in lost)
    assert all(span.error and span.name == "turn" for span in told)
    links = {span.attributes["paceline.turn"]: span.links for span in spans if span.name == "turn"}
    assert [len(links[turn]) for turn in sorted(links, key=str)] == [0, *[1] * (TURNS - 1)]
