"""The record in Redis or Valkey: each transition one script."""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from paceline.core.counted import added
from paceline.core.endings import Outcome
from paceline.core.errors import Bug, NewerVersion
from paceline.core.ids import (
    OTHER_AGENTS,
    SHARDS,
    AgentDigest,
    BatchName,
    BatchTag,
    CallId,
    Incarnation,
    RunId,
    batch_tag,
    tag_of,
)
from paceline.core.ledger import ApprovalDecided, EffectInDoubt, EffectRuledOut, Entry, Redriven
from paceline.core.ledger import decode as decode_entry
from paceline.core.ledger import encode as encode_entry
from paceline.core.lifecycle import MOVES, State, move
from paceline.core.metrics import AGENTS_COUNTED, NOTHING, HoldReason, label
from paceline.core.tool_spec import Approval, Effect, Placement
from paceline.core.transcript import Fragment

from . import encoding
from .border import border
from .keys import Keys
from .port import (
    Approved,
    Asked,
    BatchCounts,
    BatchInfo,
    Begun,
    Budget,
    CallBegun,
    CallClaim,
    CallResult,
    CallState,
    CallStored,
    CallWritten,
    Cancelled,
    ClaimRequest,
    CountedAgent,
    Examined,
    MetricsRead,
    NewRun,
    NotBegun,
    OpenCall,
    Remains,
    Reserved,
    Resolved,
    RunRecord,
    Submitted,
    TurnClaim,
    TurnResults,
    TurnWrite,
    WorkerReport,
    Written,
)
from .primaries import infos
from .scripts import Argument, ScriptName, flat, load_scripts, pairs

log = logging.getLogger("paceline.store")

_SHARDS_IN_A_LOOK = 8
"""So few shards may hold all the runs of one look before some of them are left for the next."""
_LEAST_OF_A_SHARD = 16
_STATE_OF_STATUS: Mapping[str, State] = {state.value: state for state in State if state.is_terminal}


class RedisRunStore:
    """A RunStore over one asyncio client. `clock` (milliseconds) is for tests; else the server's clock counts."""

    def __init__(
        self,
        redis: Redis,
        *,
        prefix: str = "paceline",
        claim_seconds: float = 30.0,
        retention_seconds: float = 7 * 86_400.0,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.redis = redis
        self.keys = Keys(prefix)
        self._look_ms = int(claim_seconds * 1000)
        self._retention_s = int(retention_seconds)
        self._clock = clock
        self._keep_every_s = self._retention_s // 10
        self._kept_ms: dict[str, int] = {}
        """What `keep` has renewed of late, and when: not more often, however often the sweeper asks for it."""
        self._scripts = load_scripts()

    # Submission

    async def put_agent(self, digest: AgentDigest, frozen: bytes) -> None:
        with border():
            await self.redis.set(self.keys.agent(digest), frozen, ex=self._retention_s)

    async def agent(self, digest: AgentDigest) -> bytes | None:
        with border():
            stored = await self.redis.getex(self.keys.agent(digest), ex=self._retention_s)
        return cast("bytes | None", stored)

    async def open_batch(self, batch: BatchInfo) -> BatchInfo:
        tag = batch_tag(batch.name)
        key = self.keys.batch(tag)
        with border():
            async with self.redis.pipeline(transaction=True) as pipe:
                for field, value in encoding.batch_fields(batch).items():
                    pipe.hsetnx(key, field, value)  # whoever opens it first, opens it wholly
                pipe.expire(key, self._retention_s)
                await pipe.execute()
        found = await self.batch(tag) or batch
        await self._forget_batches()
        with border():
            await self.redis.zadd(self.keys.batches(), {found.name: found.opened_ms})
            await self.redis.expire(self.keys.batches(), self._retention_s)
        return found

    async def _forget_batches(self) -> None:
        """Take the names of batches that are gone off the list: else it would grow as long as batches are opened."""
        # Whoever is older than the retention and still there is kept by runs that are not over.
        oldest_ms = await self.now_ms() - self._retention_s * 1000
        with border():
            names = await _reply(self.redis.zrangebyscore(self.keys.batches(), "-inf", oldest_ms))
        found = await self._batches_of(names)
        gone = [name for name, batch in zip(names, found, strict=True) if batch is None]
        if gone:
            with border():
                await self.redis.zrem(self.keys.batches(), *gone)

    async def _batches_of(self, names: Sequence[bytes]) -> list[BatchInfo | None]:
        with border():
            async with self.redis.pipeline(transaction=False) as pipe:
                for name in names:
                    pipe.hgetall(self.keys.batch(batch_tag(BatchName(name.decode()))))
                stored = await pipe.execute()
        return [encoding.read_batch(fields) if b"agent" in fields else None for fields in stored]

    async def submit(self, batch: BatchInfo, runs: Sequence[NewRun]) -> list[Submitted]:
        tag = batch_tag(batch.name)
        if not runs:
            return []
        rows = self.keys.rows(tag)
        nonce = _nonce()
        with border():
            async with self.redis.pipeline(transaction=False) as pipe:
                # The rows first: a row without a run is skipped by readers, a run without a row would be invisible.
                pipe.zadd(rows, {run.run_id: run.index for run in runs}, nx=True)
                pipe.expire(rows, self._retention_s)
                pipe.hexists(self.keys.agents(), label(batch.agent_name))
                *_, is_counted = await pipe.execute()
        name, has_budget = label(batch.agent_name) if is_counted else OTHER_AGENTS, int(batch.has_budget)
        calls = [
            (run.run_id, flat(batch.agent, name, run.row_id, run.digest, nonce, has_budget, list(run.first)))
            for run in runs
        ]
        return [Submitted(word.decode()) for word in await self._eval_many(ScriptName.CREATE, calls)]

    # The budget of a batch

    async def set_budget(self, tag: BatchTag, nanousd: int) -> None:
        key = self.keys.budget(tag)
        with border():
            async with self.redis.pipeline(transaction=True) as pipe:
                pipe.hset(key, "total", nanousd)
                pipe.expire(key, self._retention_s)
                await pipe.execute()

    async def budget(self, tag: BatchTag) -> Budget | None:
        with border():
            total, spent, held = await _reply(self.redis.hmget(self.keys.budget(tag), "total", "spent", "held"))
        return None if total is None else Budget(total=int(total), spent=int(spent or 0), held=int(held or 0))

    async def reserve(self, held: TurnClaim, *, spent: int, call: int) -> Reserved:
        return await self._hold_of_budget(held.run_id, 2 * held.fence, spent, spent + call)

    async def release(self, held: TurnClaim, *, spent: int) -> None:
        await self._hold_of_budget(held.run_id, 2 * held.fence + 1, spent, spent)

    async def _hold_of_budget(self, run_id: RunId, version: int, spent: int, at_most: int) -> Reserved:
        arguments: list[Argument] = [self._retention_s, run_id, version, spent, at_most]
        word = await self._call(ScriptName.RESERVE, [self.keys.budget(tag_of(run_id))], arguments)
        return Reserved(word.decode())

    # A turn

    async def begin(self, run_id: RunId, turn: int, claim: ClaimRequest) -> Begun | NotBegun:
        arguments = flat(turn, claim.owner, claim.nonce, int(claim.longest_seconds * 1000))
        answer, transcript = await self._eval_and_read(ScriptName.BEGIN, run_id, arguments)
        if answer[0] != b"ok":
            return NotBegun(answer[0].decode())
        run = encoding.read_run(run_id, encoding.fields(answer[1]))
        return Begun(run=run, fragments=transcript, now_ms=int(answer[2]))

    async def open_calls(self, held: TurnClaim, write: TurnWrite, calls: Sequence[OpenCall]) -> Written:
        once = " ".join(call.call_id for call in calls if call.effect is Effect.ONCE)
        approvals = [call.call_id for call in calls if call.approval is Approval.ALWAYS]
        keep = int(all(call.placement is Placement.INLINE for call in calls))
        specs = pairs((call.call_id, encoding.encode_call(call, place)) for place, call in enumerate(calls))
        return await self._write(ScriptName.OPEN_CALLS, held, [keep, once, *flat(approvals), *specs], write)

    async def go_on(self, held: TurnClaim, write: TurnWrite, *, advance: bool) -> Written:
        return await self._write(ScriptName.GO_ON, held, [int(advance)], write)

    async def hold(
        self,
        held: TurnClaim,
        write: TurnWrite,
        *,
        seconds: float,
        reason: str,
        counted_as: HoldReason = HoldReason.OTHER,
        timed: bool = False,
    ) -> Written:
        own: list[Argument] = [int(seconds * 1000), reason, counted_as, int(timed)]
        return await self._write(ScriptName.HOLD, held, own, write)

    async def finish(self, held: TurnClaim, write: TurnWrite, outcome: Outcome) -> Written:
        event = outcome.ending.event
        arguments: list[Argument] = [
            " ".join(state for state, ending in MOVES if ending is event),
            _STATE_OF_STATUS[outcome.ending.status],
            outcome.reason,
            outcome.blames or "",
            outcome.message,
            int(outcome.answer is not None),
            outcome.answer or "",
        ]
        word, _, state = (await self._word(ScriptName.FINISH, held, arguments, write)).partition(":")
        if state:
            move(State(state), event)  # the script found a move that the table does not have: this raises
        await self._keep_with(held.run_id)
        return Written(word)

    async def _keep_with(self, run_id: RunId) -> None:
        """Keep the batch and the agent of a run as long as the run, which is over or about to be, or goes on."""
        # In other slots than the run, so not in its script: at worst they are forgotten a little early.
        with border():
            digest, has_budget = await _reply(self.redis.hmget(self.keys.run(run_id), "agent", "budget"))
        if digest:
            tag = tag_of(run_id)
            keys = [self.keys.batch(tag), self.keys.rows(tag), self.keys.agent(AgentDigest(digest.decode()))]
            keys += [self.keys.budget(tag)] if has_budget else []
            await self._renew([*keys, self.keys.batches(), self.keys.agents()], self._retention_s)

    async def _renew(self, keys: Sequence[str], seconds: int) -> None:
        """Let these keys live for so many seconds at least; those that live for ever do."""
        with border():
            async with self.redis.pipeline(transaction=False) as pipe:
                for key in keys:
                    pipe.expire(key, seconds, gt=True)
                await pipe.execute()

    async def recover(self, held: TurnClaim, write: TurnWrite) -> Written:
        return await self._write(ScriptName.RECOVER, held, [], write)

    async def _write(self, name: ScriptName, held: TurnClaim, own: list[Argument], write: TurnWrite) -> Written:
        return Written(await self._word(name, held, own, write))

    async def _word(self, name: ScriptName, held: TurnClaim, own: list[Argument], write: TurnWrite) -> str:
        arguments = [held.fence, held.turn, _nonce(), *own, *encoding.write_arguments(write)]
        return str((await self._eval(name, held.run_id, arguments)).decode())

    # Calls

    async def begin_call(self, run_id: RunId, turn: int, call_id: CallId, claim: ClaimRequest) -> CallBegun | NotBegun:
        arguments = flat(turn, call_id, claim.owner, claim.nonce, int(claim.longest_seconds * 1000))
        answer = await self._eval(ScriptName.BEGIN_CALL, run_id, arguments)
        if answer[0] != b"ok":
            return NotBegun(answer[0].decode())
        _, call = encoding.decode_call(call_id, answer[1])
        return CallBegun(
            call=call,
            attempt=int(answer[2]),
            agent=AgentDigest(answer[3].decode()),
            doubt=encoding.read_doubt(answer[4]),
            label=answer[5].decode(),
        )

    async def finish_call(self, held: CallClaim, result: CallResult) -> CallStored:
        arguments = flat(held.turn, held.call_id, held.attempt, _nonce(), *encoding.result_arguments(result))
        word, following = await self._eval(ScriptName.FINISH_CALL, held.run_id, arguments)
        return CallStored(
            written=CallWritten(word.decode()), next_once=CallId(following.decode()) if following else None
        )

    async def results(self, run_id: RunId, turn: int) -> TurnResults | None:
        answer = await self._eval(ScriptName.RESULTS, run_id, [turn])
        if not answer:
            return None
        blocks = {CallId(call.decode()): block for call, block in encoding.fields(answer[3]).items()}
        states = encoding.read_call_states(encoding.fields(answer[2]), [])
        held = TurnClaim(run_id=run_id, turn=turn, fence=int(answer[0]))
        calls = tuple(state.call.call_id for state in states)
        return TurnResults(held=held, asked=Fragment(answer[1]), calls=calls, blocks=blocks)

    async def join(self, held: TurnClaim, message: Fragment, inline: Sequence[CallResult] = ()) -> Written:
        results: list[Argument] = [
            argument for result in _counted_together(inline) for argument in encoding.result_arguments(result)
        ]
        arguments = [held.fence, held.turn, _nonce(), message, len(inline), *results]
        return Written((await self._eval(ScriptName.JOIN, held.run_id, arguments)).decode())

    async def whole_result(self, run_id: RunId, call_id: CallId) -> str | None:
        with border():
            stored = await _reply(self.redis.hget(self.keys.whole(run_id), call_id))
        return None if stored is None else stored.decode()

    # Sweeping

    async def now_ms(self) -> int:
        if self._clock:
            return self._clock()
        with border():
            seconds, microseconds = await self.redis.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def due(self, *, limit: int) -> list[RunId]:
        now = await self.now_ms()
        # Of each shard its share and something over: most of what all of them had to say would be thrown away.
        share = max(_LEAST_OF_A_SHARD, limit // _SHARDS_IN_A_LOOK)
        with border():
            async with self.redis.pipeline(transaction=False) as pipe:
                for key in self.keys.due():
                    pipe.zrangebyscore(key, "-inf", now, start=0, num=share, withscores=True)
                shards = await pipe.execute()
        found = sorted((score, RunId(run.decode())) for shard in shards for run, score in shard)
        return [run for _, run in found[:limit]]

    async def examine(self, run_ids: Sequence[RunId]) -> list[Examined | None]:
        nothing: list[Argument] = []
        answers = await self._ask_many(ScriptName.EXAMINE, [(run_id, nothing) for run_id in run_ids])
        return [_examined(run_id, answer) for run_id, answer in zip(run_ids, answers, strict=True)]

    async def look_in(self, run_ids: Sequence[RunId], *, seconds: float) -> None:
        moment = await self.now_ms() + int(seconds * 1000)
        with border():
            async with self.redis.pipeline(transaction=False) as pipe:
                for run_id in run_ids:
                    pipe.zadd(self.keys.due_of(run_id), {run_id: moment}, xx=True)
                await pipe.execute()

    async def let_go(self, run_id: RunId) -> None:
        await self._eval(ScriptName.LET_GO, run_id, [])

    async def look_again(self, held: TurnClaim, *, seconds: float) -> None:
        arguments = flat(held.fence, held.turn, int(seconds * 1000))
        await self._eval(ScriptName.LOOK_AGAIN, held.run_id, arguments)

    async def send_again(self, held: TurnClaim, *, seconds: float, sent_ms: int) -> Written:
        arguments = flat(held.fence, held.turn, _nonce(), int(seconds * 1000), sent_ms)
        return Written((await self._eval(ScriptName.SEND_AGAIN, held.run_id, arguments)).decode())

    async def keep(self, tags: Iterable[BatchTag], digests: Iterable[AgentDigest]) -> None:
        now_ms = self._clock() if self._clock else time.monotonic_ns() // 1_000_000
        lately = {name: at for name, at in self._kept_ms.items() if now_ms - at < self._keep_every_s * 1000}
        tags, digests = set(tags) - lately.keys(), set(digests) - lately.keys()
        if tags or digests:
            batches = [key for tag in tags for key in self.keys.of_batch(tag)]
            fleet = [self.keys.batches(), self.keys.agents(), *self.keys.metrics()]
            keys = [*batches, *map(self.keys.agent, digests), *fleet]
            await self._renew(keys, self._retention_s + self._keep_every_s)
        self._kept_ms = {**lately, **dict.fromkeys([*tags, *digests], now_ms)}

    async def recover_call(self, held: CallClaim, *, lost: bool = False) -> Written:
        arguments = flat(held.turn, held.call_id, held.attempt, _nonce(), int(lost))
        return Written((await self._eval(ScriptName.RECOVER_CALL, held.run_id, arguments)).decode())

    async def doubt(self, held: CallClaim, asked: Asked, entry: EffectInDoubt, *, lost: bool = False) -> Written:
        arguments = flat(held.turn, held.call_id, held.attempt, _nonce(), int(lost), asked, encode_entry(entry))
        return Written((await self._eval(ScriptName.DOUBT, held.run_id, arguments)).decode())

    async def rule_out(self, held: CallClaim, entry: EffectRuledOut) -> Written:
        arguments = flat(held.turn, held.call_id, held.attempt, _nonce(), encode_entry(entry))
        return Written((await self._eval(ScriptName.RULE_OUT, held.run_id, arguments)).decode())

    async def may_sweep(self, owner: Incarnation, *, seconds: float) -> bool:
        key, lasts_ms = self.keys.sweep(), int(seconds * 1000)
        with border():
            found = await self.redis.set(key, owner, nx=True, px=lasts_ms, get=True)
            if found == owner.encode():
                await self.redis.set(key, owner, xx=True, px=lasts_ms)
        return found is None or found == owner.encode()

    # Control and reading

    async def cancel(self, run_id: RunId) -> Cancelled:
        cancelled = Cancelled((await self._eval(ScriptName.CANCEL, run_id, [_nonce()])).decode())
        await self._keep_with(run_id)
        return cancelled

    async def resolve(self, run_id: RunId, call_id: CallId, entry: EffectRuledOut | CallResult) -> Resolved:
        told = encoding.result_arguments(entry) if isinstance(entry, CallResult) else [encode_entry(entry)]
        arguments = flat(call_id, _nonce(), int(isinstance(entry, CallResult)), *told)
        return Resolved((await self._eval(ScriptName.RESOLVE, run_id, arguments)).decode())

    async def approve(
        self, run_id: RunId, call_id: CallId, entry: ApprovalDecided, told: CallResult | None
    ) -> Approved:
        word = "given" if entry.approved else "denied" if told is None else "told"
        result = encoding.result_arguments(told) if told else []
        arguments = flat(call_id, _nonce(), word, encode_entry(entry), *result)
        return Approved((await self._eval(ScriptName.APPROVE, run_id, arguments)).decode())

    async def dead(self, *, limit: int) -> list[RunId]:
        since = await self.now_ms() - self._retention_s * 1000
        with border():
            async with self.redis.pipeline(transaction=False) as pipe:
                for key in self.keys.dead():
                    pipe.zrevrangebyscore(key, "+inf", f"({since}", start=0, num=limit, withscores=True)
                shards = await pipe.execute()
        found = sorted(((ended, RunId(run.decode())) for shard in shards for run, ended in shard), reverse=True)
        return [run for _, run in found[:limit]]

    async def remains(self, run_id: RunId) -> Remains | None:
        answer = await self._eval(ScriptName.REMAINS, run_id, [])
        if not answer:
            return None
        blocks = {CallId(call.decode()): block for call, block in encoding.fields(answer[3]).items()}
        return Remains(
            held=TurnClaim(run_id=run_id, turn=int(answer[0]), fence=int(answer[1])),
            calls=encoding.read_call_states(encoding.fields(answer[2]), [call.encode() for call in blocks]),
            blocks=blocks,
        )

    async def redrive(self, held: TurnClaim, answers: Fragment | None, entry: Redriven) -> Written:
        arguments = flat(held.fence, held.turn, _nonce(), [answers] if answers else [], encode_entry(entry))
        written = Written((await self._eval(ScriptName.REDRIVE, held.run_id, arguments)).decode())
        await self._keep_with(held.run_id)
        return written

    async def cancel_requested(self, run_ids: Sequence[RunId]) -> list[RunId]:
        if len(run_ids) == 1:  # as a worker that tells of its runs asks: a pipeline costs twice as much
            with border():
                asked = await _reply(self.redis.hget(self.keys.run(run_ids[0]), "cancel"))
            return [*run_ids] if asked == b"1" else []
        with border():
            async with self.redis.pipeline(transaction=False) as pipe:
                for run_id in run_ids:
                    pipe.hget(self.keys.run(run_id), "cancel")
                answers = await pipe.execute()
        return [run_id for run_id, answer in zip(run_ids, answers, strict=True) if answer == b"1"]

    async def run(self, run_id: RunId) -> RunRecord | None:
        return (await self.runs([run_id]))[0]

    async def runs(self, run_ids: Sequence[RunId]) -> list[RunRecord | None]:
        with border():
            async with self.redis.pipeline(transaction=False) as pipe:
                for run_id in run_ids:
                    pipe.hgetall(self.keys.run(run_id))
                answers = await pipe.execute()
        return [
            encoding.read_record(run_id, stored) if stored else None
            for run_id, stored in zip(run_ids, answers, strict=True)
        ]

    async def transcript(self, run_id: RunId) -> tuple[Fragment, ...]:
        with border():
            stored = await _reply(self.redis.lrange(self.keys.log(run_id), 0, -1))
        return tuple(Fragment(fragment) for fragment in stored)

    async def ledger(self, run_id: RunId) -> tuple[Entry, ...]:
        with border():
            stored = await _reply(self.redis.lrange(self.keys.ledger(run_id), 0, -1))
        return tuple(decode_entry(entry) for entry in stored)

    async def open_call_states(self, run_id: RunId) -> tuple[CallState, ...]:
        examined = (await self.examine([run_id]))[0]
        return examined.calls if examined else ()

    async def batch(self, tag: BatchTag) -> BatchInfo | None:
        with border():
            stored = await _reply(self.redis.hgetall(self.keys.batch(tag)))
        return encoding.read_batch(stored) if b"agent" in stored else None

    async def batches(self, *, limit: int) -> list[BatchInfo]:
        found: list[BatchInfo] = []
        for start in itertools.count(0, limit):
            with border():
                names = await _reply(self.redis.zrevrange(self.keys.batches(), start, start + limit - 1))
            found += [batch for batch in await self._batches_of(names) if batch]
            if not names or len(found) >= limit:
                break
        return found[:limit]

    async def batch_rows(self, tag: BatchTag, *, start: int, count: int) -> list[RunId]:
        with border():
            stored = await _reply(self.redis.zrange(self.keys.rows(tag), start, start + count - 1))
        return [RunId(run.decode()) for run in stored]

    async def counts(self, tag: BatchTag) -> BatchCounts:
        with border():
            async with self.redis.pipeline(transaction=False) as pipe:
                for key in self.keys.counts(tag):
                    pipe.hgetall(key)
                shards = await pipe.execute()
        return encoding.read_counts(shards)

    async def count_agent(self, name: str, agent: CountedAgent) -> None:
        key, name = self.keys.agents(), label(name)
        with border():
            async with self.redis.pipeline(transaction=False) as pipe:
                pipe.hexists(key, name)
                pipe.hlen(key)
                is_known, known = await pipe.execute()
                if is_known or known < AGENTS_COUNTED:
                    pipe.hset(key, name, encoding.encode_counted_agent(agent))
                    pipe.expire(key, self._retention_s)
                    await pipe.execute()

    async def metrics(self) -> MetricsRead:
        now_ms = await self.now_ms()
        with border():
            async with self.redis.pipeline(transaction=False) as pipe:
                for key in self.keys.metrics():
                    pipe.hgetall(key)
                for key in self.keys.dead():
                    pipe.zcount(key, f"({now_ms - self._retention_s * 1000}", "+inf")
                pipe.hgetall(self.keys.agents())
                *read, agents = await pipe.execute()
        return MetricsRead(
            now_ms=now_ms,
            counts=encoding.read_metrics(read[:SHARDS]),
            agents={name.decode(): encoding.decode_counted_agent(agent) for name, agent in agents.items()},
            dead_letters=sum(read[SHARDS:]),
            workers=len(await self.workers()),
        )

    async def settle(self) -> None:
        """What the server has counts: DurableRunStore asks for more."""

    # Workers

    async def servers(self) -> str:
        with border():
            found = await infos(self.redis, "server")
        return " ".join(sorted(str(info["run_id"]) for info in found.values()))

    async def beat(self, report: WorkerReport, *, alive_seconds: float, former: Sequence[Incarnation] = ()) -> int:
        alive_ms, now = int(alive_seconds * 1000), await self.now_ms()
        with border():
            async with self.redis.pipeline(transaction=False) as pipe:
                pipe.set(self.keys.worker(report.incarnation), encoding.encode_report(report), px=alive_ms)
                for name in former:
                    pipe.set(self.keys.worker(name), b"", px=alive_ms)
                pipe.zadd(self.keys.workers(), {report.incarnation: now + alive_ms})
                pipe.zremrangebyscore(self.keys.workers(), "-inf", now - alive_ms)
                pipe.expire(self.keys.workers(), self._retention_s)
                await pipe.execute()
        return now

    async def retire(self, incarnation: Incarnation) -> None:
        with border():
            await self.redis.delete(self.keys.worker(incarnation))
            await self.redis.zrem(self.keys.workers(), incarnation)

    async def workers(self) -> list[WorkerReport]:
        with border():
            stored = await _reply(self.redis.zrange(self.keys.workers(), 0, -1))
            names = [Incarnation(name.decode()) for name in stored]
            async with self.redis.pipeline(transaction=False) as pipe:
                for name in names:
                    pipe.get(self.keys.worker(name))
                reports = await pipe.execute()
        return [encoding.decode_report(name, report) for name, report in zip(names, reports, strict=True) if report]

    async def alive_ms(self, owners: Sequence[Incarnation]) -> dict[Incarnation, int]:
        with border():
            async with self.redis.pipeline(transaction=False) as pipe:
                for owner in owners:
                    pipe.pttl(self.keys.worker(owner))
                left = await pipe.execute()
        return {owner: ms for owner, ms in zip(owners, left, strict=True) if ms > 0}

    # The model's room

    async def hold_model(self, model: str, *, seconds: float) -> None:
        key, hold_ms = self.keys.model_hold(model), max(1, int(seconds * 1000))
        with border():
            async with self.redis.pipeline(transaction=True) as pipe:
                pipe.set(key, 1, nx=True, px=hold_ms)
                pipe.pexpire(key, hold_ms, gt=True)
                await pipe.execute()

    async def model_hold_seconds(self, model: str) -> float:
        with border():
            left = await self.redis.pttl(self.keys.model_hold(model))
        return max(0, left) / 1000

    async def aclose(self) -> None:
        await self.redis.aclose()

    # Calling scripts

    def _arguments(self, run_id: RunId, own: Sequence[Argument]) -> list[Argument]:
        now: Argument = self._clock() if self._clock else ""
        return [now, run_id, self._look_ms, self._retention_s, *own]

    async def _eval(self, name: ScriptName, run_id: RunId, own: Sequence[Argument]) -> Any:
        return await self._call(name, self.keys.of_run(run_id), self._arguments(run_id, own))

    async def _call(self, name: ScriptName, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        script = self._scripts[name]
        with border():
            try:
                return await _reply(self.redis.evalsha(script.sha, len(keys), *keys, *arguments))
            except NoScriptError:
                return await _reply(self.redis.eval(script.text, len(keys), *keys, *arguments))

    async def _eval_and_read(
        self, name: ScriptName, run_id: RunId, own: Sequence[Argument]
    ) -> tuple[Any, tuple[Fragment, ...]]:
        """A script's answer, and the transcript as it stands then, in one round trip.

        Beside the script and not through it: Lua would take each message apart and put it together again.
        """
        script, keys = self._scripts[name], self.keys.of_run(run_id)
        arguments = [len(keys), *keys, *self._arguments(run_id, own)]
        with border():
            try:
                return await self._with_transcript(run_id, "EVALSHA", script.sha, *arguments)
            except NoScriptError:
                return await self._with_transcript(run_id, "EVAL", script.text, *arguments)

    async def _with_transcript(self, run_id: RunId, *command: Argument) -> tuple[Any, tuple[Fragment, ...]]:
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.execute_command(*command)
            pipe.lrange(self.keys.log(run_id), 0, -1)
            replies = await pipe.execute(raise_on_error=False)
        for refused in (reply for reply in replies if isinstance(reply, Exception)):
            raise refused  # as the server said it: a pipeline would name the whole command
        return replies[0], tuple(replies[1])

    async def _eval_many(self, name: ScriptName, calls: Sequence[tuple[RunId, list[Argument]]]) -> list[Any]:
        answers = await self._ask_many(name, calls)
        for refused in (answer for answer in answers if isinstance(answer, Exception)):
            with border():
                raise refused
        return answers

    async def _ask_many(self, name: ScriptName, calls: Sequence[tuple[RunId, list[Argument]]]) -> list[Any]:
        """What each is answered with; the error where the server refused one."""
        script = self._scripts[name]
        with border():
            await self.redis.script_load(script.text)
            async with self.redis.pipeline(transaction=False) as pipe:
                for run_id, own in calls:
                    keys = self.keys.of_run(run_id)
                    pipe.execute_command("EVALSHA", script.sha, len(keys), *keys, *self._arguments(run_id, own))
                return await pipe.execute(raise_on_error=False)


def _examined(run_id: RunId, answer: Any) -> Examined | None:
    if not answer:
        return None
    try:
        if isinstance(answer, Exception):
            with border():
                raise answer
        calls = encoding.read_call_states(encoding.fields(answer[1]), answer[2])
        return Examined(run=encoding.read_run(run_id, encoding.fields(answer[0])), calls=calls)
    except NewerVersion as error:
        log.warning("%s", error)
    except (ValueError, KeyError, TypeError, Bug):  # something broke it: a value, or a key that is of another type
        log.exception("run %s cannot be read", run_id)
    return None


def _counted_together(results: Sequence[CallResult]) -> Sequence[CallResult]:
    """These results; what they count is added up beforehand, as they are stored in one script."""
    if len(results) < 2:
        return results
    counts = added(*(result.counts for result in results))
    return [replace(results[0], counts=counts), *(replace(result, counts=NOTHING) for result in results[1:])]


def _nonce() -> str:
    return secrets.token_hex(6)


async def _reply(command: Awaitable[Any] | Any) -> Any:
    """What a command answers; redis-py types one class for its sync and its asyncio client."""
    return await command
