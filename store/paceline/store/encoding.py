"""How the record's values look as hash fields and back. docs/wire-format.md lists the fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from paceline.core.approval import Permission
from paceline.core.errors import NewerVersion
from paceline.core.ids import OTHER_AGENTS, AgentDigest, BatchName, CallId, Incarnation, RunId
from paceline.core.known_fields import known_fields
from paceline.core.ledger import AttemptLost, Entry, ModelCalled
from paceline.core.ledger import encode as encode_entry
from paceline.core.lifecycle import State
from paceline.core.metrics import Counts
from paceline.core.run import ContextUsed, Run, Spent, Streaks
from paceline.core.tool_spec import Approval, Effect, Placement
from paceline.core.usage import Usage

from .port import (
    Asked,
    BatchCounts,
    BatchInfo,
    CallResult,
    CallState,
    CountedAgent,
    Doubt,
    OpenCall,
    RunRecord,
    TurnWrite,
    WorkerReport,
)
from .scripts import Argument, flat, pairs

Fields = Mapping[bytes, bytes]

RECORD_VERSION = 1


def fields(flat_pairs: Sequence[bytes]) -> dict[bytes, bytes]:
    """A hash as a script answers it."""
    return dict(zip(flat_pairs[::2], flat_pairs[1::2], strict=True))


def number(stored: Fields, name: bytes) -> int:
    return int(stored.get(name) or 0)


def text(stored: Fields, name: bytes) -> str:
    return stored.get(name, b"").decode()


def read_run(run_id: RunId, stored: Fields) -> Run:
    """The run that these fields of its hash tell of. Raises NewerVersion."""
    return Run(
        run_id=run_id,
        row_id=text(stored, b"row"),
        agent=AgentDigest(text(stored, b"agent")),
        state=_state(run_id, text(stored, b"state")),
        turn=number(stored, b"turn"),
        fence=number(stored, b"fence"),
        attempts=number(stored, b"attempts"),
        lost_attempts=number(stored, b"lost"),
        owner=text(stored, b"owner"),
        claim_until_ms=number(stored, b"until"),
        context_tokens=number(stored, b"context"),
        spent=read_spent(stored),
        streaks=Streaks.decode(text(stored, b"streaks")),
        submitted_ms=number(stored, b"submitted"),
        sent_ms=number(stored, b"sent"),
        hold_until_ms=number(stored, b"hold"),
        hold_reason=text(stored, b"why"),
        cancel_requested=stored.get(b"cancel") == b"1",
        container=text(stored, b"container"),
        cleared=number(stored, b"cleared"),
        label=text(stored, b"label") or OTHER_AGENTS,
        context_used=ContextUsed.decode(text(stored, b"used")),
        has_budget=stored.get(b"budget") == b"1",
    )


def _state(run_id: RunId, name: str) -> State:
    if name not in {*State}:
        raise NewerVersion(f"run {run_id} is in a state that only a newer paceline knows ({name!r}): upgrade this one")
    return State(name)


def read_spent(stored: Fields) -> Spent:
    """The totals of a run's hash or of a batch's counts."""
    usage = Usage(
        input=number(stored, b"input"),
        cache_read=number(stored, b"cache_read"),
        cache_write=number(stored, b"cache_write"),
        output=number(stored, b"output"),
    )
    return Spent(
        usage=usage,
        cost_nanousd=number(stored, b"cost"),
        unpriced_calls=number(stored, b"unpriced"),
        working_ms=number(stored, b"working"),
        tool_calls=number(stored, b"tools"),
        possibly_billed_tokens=number(stored, b"maybe_tokens"),
        possibly_billed_nanousd=number(stored, b"maybe_cost"),
    )


def read_record(run_id: RunId, stored: Fields) -> RunRecord:
    """A run with its ending."""
    return RunRecord(
        run=read_run(run_id, stored),
        reason=text(stored, b"reason"),
        error_class=text(stored, b"class"),
        message=text(stored, b"message"),
        answer=stored[b"answer"].decode() if b"answer" in stored else None,
        ended_ms=number(stored, b"ended"),
        turns=number(stored, b"turns"),
    )


def write_arguments(write: TurnWrite) -> list[Argument]:
    """A TurnWrite as `take_write` in lib.lua reads it."""
    usage, spent = write.spent.usage, write.spent
    told = flat(
        list(write.append),
        [encode_entry(entry) for entry in write.ledger],
        write.streaks.encode(),
        "" if write.context_tokens is None else write.context_tokens,
        write.container,
        "" if write.cleared is None else write.cleared,
        write.context_used.encode() if write.context_used else "",
    )
    return [
        *told,
        *pairs(write.counts.items()),
        usage.input,
        usage.cache_read,
        usage.cache_write,
        usage.output,
        spent.cost_nanousd,
        spent.unpriced_calls,
        spent.working_ms,
        spent.tool_calls,
        spent.possibly_billed_tokens,
        spent.possibly_billed_nanousd,
        _count(write.ledger, ModelCalled),
        _count(write.ledger, AttemptLost),
    ]


def result_arguments(result: CallResult) -> list[Argument]:
    """A CallResult as `take_result` in lib.lua reads it."""
    return [
        result.call_id,
        result.block,
        encode_entry(result.entry),
        result.entry.took_ms,
        int(result.whole is not None),
        result.whole or "",
        *pairs(result.counts.items()),
    ]


def _count(entries: Sequence[Entry], kind: type[Entry]) -> int:
    return sum(isinstance(entry, kind) for entry in entries)


def encode_call(call: OpenCall, place: int) -> bytes:
    """An open call as stored; `place` is its number in id order."""
    data = {
        "version": RECORD_VERSION,
        "place": place,
        "tool": call.tool,
        "input": call.raw_input,
        "effect": call.effect,
        "placement": call.placement,
        **({"timeout_s": call.timeout_s} if call.timeout_s else {}),
        **({} if call.approval is Approval.NEVER else {"approval": call.approval}),
        **({} if call.answer is None else {"answer": call.answer}),
    }
    return json.dumps(data, separators=(",", ":")).encode()


def decode_call(call_id: CallId, stored: bytes) -> tuple[int, OpenCall]:
    """The place and the call that `encode_call` wrote."""
    data = json.loads(stored)
    call = OpenCall(
        call_id=call_id,
        tool=data["tool"],
        raw_input=data["input"],
        effect=Effect(data["effect"]),
        placement=Placement(data["placement"]),
        timeout_s=data.get("timeout_s", 0.0),
        approval=Approval(data.get("approval", Approval.NEVER)),
        answer=data.get("answer"),
    )
    return data["place"], call


def read_call_states(calls: Fields, results: Sequence[bytes]) -> tuple[CallState, ...]:
    """The open calls in id order, each with its claim."""
    answered = {result.decode() for result in results}
    found = []
    for field, stored in calls.items():
        call_id = CallId(field.decode())
        if not call_id.endswith((":claim", ":doubt", ":approval")):
            place, call = decode_call(call_id, stored)
            state = _call_state(call, calls.get(field + b":claim", _NO_CLAIM), call_id in answered)
            doubt, permission = calls.get(field + b":doubt", b""), calls.get(field + b":approval", b"given")
            state = replace(state, doubt=read_doubt(doubt), permission=Permission(permission.decode()))
            found.append((place, state))
    return tuple(state for _, state in sorted(found, key=lambda pair: pair[0]))


_NO_CLAIM = b"0||0||0"


def _call_state(call: OpenCall, claim: bytes, has_result: bool) -> CallState:
    attempt, owner, until, _, *rest = claim.decode().split("|")
    return CallState(
        call=call,
        attempt=int(attempt),
        owner=owner,
        claim_until_ms=int(float(until)),
        has_result=has_result,
        began_ms=int(float(rest[0])) if rest else 0,
        losses=int(rest[1]) if len(rest) > 1 else 0,
    )


def read_doubt(stored: bytes) -> Doubt | None:
    """A call's doubt as `set_doubt` in lib.lua writes it; None where there is none."""
    if not stored:
        return None
    asked, worker, began, _ = stored.decode().split("|")
    return Doubt(asked=Asked(asked), worker=worker, began_ms=int(float(began)))


def read_counts(shards: Sequence[Fields]) -> BatchCounts:
    """A batch's totals over all shards."""
    totals = _summed(shards)
    stored = {name: str(value).encode() for name, value in totals.items()}
    return BatchCounts(
        states={state: number(stored, f"state:{state}".encode()) for state in State},
        reasons=_with_prefix(totals, b"reason:"),
        turns=number(stored, b"turns"),
        spent=read_spent(stored),
    )


def read_metrics(shards: Sequence[Fields]) -> Counts:
    """What was counted, over all shards."""
    return {name.decode(): value for name, value in _summed(shards).items()}


def _summed(shards: Sequence[Fields]) -> dict[bytes, int]:
    totals: dict[bytes, int] = {}
    for shard in shards:
        for name, value in shard.items():
            totals[name] = totals.get(name, 0) + int(value)
    return totals


def _with_prefix(totals: Mapping[bytes, int], prefix: bytes) -> dict[str, int]:
    counted = {name: value for name, value in totals.items() if value and name.startswith(prefix)}
    return {name.removeprefix(prefix).decode(): value for name, value in counted.items()}


def batch_fields(batch: BatchInfo) -> dict[str, str | int]:
    """A batch's hash."""
    return {
        "version": RECORD_VERSION,
        "name": batch.name,
        "tenant": batch.tenant,
        "agent": batch.agent,
        "agent_name": batch.agent_name,
        "opened": batch.opened_ms,
        "budget": int(batch.has_budget),
    }


def encode_counted_agent(agent: CountedAgent) -> bytes:
    """A value of the hash of agents that are counted by name."""
    return json.dumps({"version": RECORD_VERSION, **asdict(agent)}, separators=(",", ":")).encode()


def decode_counted_agent(stored: bytes) -> CountedAgent:
    """The agent that `encode_counted_agent` wrote; members that are not known here are passed over."""
    data = known_fields(CountedAgent, json.loads(stored))
    return CountedAgent(**{**data, "tools": tuple(data.get("tools", ()))})


def read_batch(stored: Fields) -> BatchInfo:
    """The batch that `batch_fields` wrote."""
    return BatchInfo(
        name=BatchName(text(stored, b"name")),
        tenant=text(stored, b"tenant"),
        agent=AgentDigest(text(stored, b"agent")),
        agent_name=text(stored, b"agent_name"),
        opened_ms=number(stored, b"opened"),
        has_budget=stored.get(b"budget") == b"1",
    )


def encode_report(report: WorkerReport) -> bytes:
    """A worker's report as stored under its liveness key."""
    data = {
        "version": RECORD_VERSION,
        "host": report.host,
        "pid": report.pid,
        "started_ms": report.started_ms,
        "concurrency": report.concurrency,
        "in_flight": report.in_flight,
        "delivered_ms": dict(report.delivered_ms),
        "problems": list(report.problems),
    }
    return json.dumps(data, separators=(",", ":")).encode()


def decode_report(incarnation: Incarnation, stored: bytes) -> WorkerReport:
    """The report that `encode_report` wrote; members that are not known here are passed over."""
    data = known_fields(WorkerReport, json.loads(stored))
    return WorkerReport(**{**data, "incarnation": incarnation, "problems": tuple(data["problems"])})
