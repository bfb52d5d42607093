"""The record in a dictionary: the twin of `RedisRunStore` for fast tests, in one process and one event loop.

It keeps every promise of the port but one: it forgets everything with the process. No method awaits, so each is atomic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from paceline.core import counted
from paceline.core.approval import Permission
from paceline.core.endings import Outcome, StopReason
from paceline.core.ids import OTHER_AGENTS, AgentDigest, BatchTag, CallId, Incarnation, RunId, batch_tag, tag_of
from paceline.core.ledger import (
    ApprovalDecided,
    AttemptLost,
    EffectInDoubt,
    EffectRuledOut,
    Entry,
    ModelCalled,
    Redriven,
)
from paceline.core.lifecycle import AWAITS_PERSON, CAN_GO_ON, TURN_CAN_BEGIN, Event, State, move
from paceline.core.metrics import AGENTS_COUNTED, Counts, HoldReason, Recovery, label
from paceline.core.run import Run, Spent, Streaks
from paceline.core.tool_spec import Approval, Effect, Placement
from paceline.core.transcript import Fragment
from paceline.core.wire import Queue, queue_of_turn

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
    Doubt,
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

_CANCELLED = Outcome(reason=StopReason.CANCELLED, message="cancelled")
_PERSON_SPEAKS = {State.AWAITING_DECISION: Event.DECIDE, State.AWAITING_APPROVAL: Event.APPROVE}
_WEEK_SECONDS = 7 * 86_400.0


@dataclass(slots=True)
class _OpenCall:
    call: OpenCall
    attempt: int = 0
    nonce: str = ""
    owner: str = ""
    claim_until_ms: int = 0
    began_ms: int = 0
    losses: int = 0
    doubt: Doubt | None = None
    permission: Permission = Permission.GIVEN
    block: bytes | None = None

    @property
    def is_running(self) -> bool:
        return bool(self.nonce) and self.block is None

    @property
    def awaits_person(self) -> bool:
        return self.doubt is not None and self.doubt.asked is Asked.PERSON

    @property
    def may_not_begin(self) -> bool:
        return self.awaits_person or self.permission is not Permission.GIVEN

    def claim_for(self, claim: ClaimRequest, now_ms: int) -> None:
        self.attempt += 1
        self.began_ms = now_ms
        self.nonce, self.owner = claim.nonce, claim.owner
        self.claim_until_ms = now_ms + _ms(claim.longest_seconds) + _ms(self.call.timeout_s)

    def give_back(self, *, lost: bool = False) -> None:
        self.losses += lost
        self.nonce, self.owner, self.claim_until_ms = "", "", 0

    @property
    def state(self) -> CallState:
        return CallState(
            call=self.call,
            attempt=self.attempt,
            owner=self.owner,
            claim_until_ms=self.claim_until_ms,
            has_result=self.block is not None,
            began_ms=self.began_ms,
            doubt=self.doubt,
            losses=self.losses,
            permission=self.permission,
        )


@dataclass(slots=True)
class _Record:
    run: Run
    digest: str
    due_ms: int | None
    """When to look at the run; None: never again."""
    fragments: list[Fragment]
    ledger: list[Entry] = field(default_factory=list)
    calls: dict[CallId, _OpenCall] = field(default_factory=dict)
    """The calls of the turn, in id order."""
    seen: set[CallId] = field(default_factory=set)
    """Every call id of the run."""
    whole: dict[CallId, str] = field(default_factory=dict)
    """The texts that the model was shown cut."""
    nonce: str = ""
    wait: HoldReason = HoldReason.OTHER
    """As what its hold is counted."""
    outcome: Outcome | None = None
    ended_ms: int = 0

    @property
    def has_running_call(self) -> bool:
        return any(call.is_running for call in self.calls.values())

    def waits_for_its_turn(self, call_id: CallId) -> bool:
        """Whether an earlier `once` call of the turn has no result yet, and this one is `once` too."""
        once = self.once_without_result()
        return call_id in once and once[0] != call_id

    def once_without_result(self) -> list[CallId]:
        return [
            call_id
            for call_id, open_call in self.calls.items()
            if open_call.call.effect is Effect.ONCE and open_call.block is None
        ]

    @property
    def is_stuck(self) -> bool:
        """Whether all that it can do is to await a person: nothing of the turn runs or may be begun."""
        left = [call for call in self.calls.values() if call.block is None]
        return any(call.may_not_begin for call in left) and not any(
            call.is_running or not (call.may_not_begin or self.waits_for_its_turn(call.call.call_id)) for call in left
        )

    @property
    def is_in_doubt(self) -> bool:
        return any(call.awaits_person and call.block is None for call in self.calls.values())

    def public(self) -> RunRecord:
        turns = _count(self.ledger, ModelCalled)
        if self.outcome is None:
            return RunRecord(run=self.run, turns=turns)
        return RunRecord(
            run=self.run,
            reason=self.outcome.reason,
            error_class=self.outcome.blames or "",
            message=self.outcome.message,
            answer=self.outcome.answer,
            ended_ms=self.ended_ms,
            turns=turns,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """What a run holds of its batch's budget, by a claim with this fence, before its call or after it."""

    version: tuple[int, bool]
    spent: int
    at_most: int


@dataclass(slots=True)
class _Batch:
    info: BatchInfo
    rows: dict[RunId, int] = field(default_factory=dict)
    states: Counter[State] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    spent: Spent = field(default_factory=Spent)
    budget: int | None = None
    shares: dict[RunId, _Share] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        return any(count for state, count in self.states.items() if not state.is_terminal)


class MemoryRunStore:
    """A RunStore in memory. `clock` gives the time in milliseconds since the epoch; runs that are over for
    `retention_seconds` are forgotten, and batches and agents that were not used for so long."""

    def __init__(
        self, clock: Callable[[], int], *, claim_seconds: float = 30.0, retention_seconds: float = _WEEK_SECONDS
    ) -> None:
        self._now_ms = clock
        self._claim_ms = _ms(claim_seconds)
        self._retention_ms = _ms(retention_seconds)
        self._agents: dict[AgentDigest, bytes] = {}
        self._batches: dict[BatchTag, _Batch] = {}
        self._kept_until_ms: dict[str, int] = {}
        """For each batch's tag and each agent's digest."""
        self._records: dict[RunId, _Record] = {}
        self._counts: Counter[str] = Counter()
        self._counted_agents: dict[str, CountedAgent] = {}
        self._workers: dict[Incarnation, tuple[WorkerReport, int]] = {}
        self._former_ms: dict[Incarnation, int] = {}
        self._model_holds_ms: dict[str, int] = {}
        self._sweeper = Incarnation("")
        self._next_sweep_ms = 0

    # Submission

    async def put_agent(self, digest: AgentDigest, frozen: bytes) -> None:
        self._agents[digest] = frozen
        self._keep(digest)

    async def agent(self, digest: AgentDigest) -> bytes | None:
        if not self._is_kept(digest):
            return None
        self._keep(digest)
        return self._agents[digest]

    async def open_batch(self, batch: BatchInfo) -> BatchInfo:
        tag = batch_tag(batch.name)
        if not self._is_kept(tag):
            known = self._batches.get(tag)
            opened = replace(known, info=batch, rows={}) if known and known.is_active else _Batch(info=batch)
            self._batches[tag] = opened
        self._keep(tag)
        return self._batches[tag].info

    async def submit(self, batch: BatchInfo, runs: Sequence[NewRun]) -> list[Submitted]:
        return [self._submit(batch, new) for new in runs]

    def _submit(self, info: BatchInfo, new: NewRun) -> Submitted:
        known = self._find(new.run_id)
        if known:
            return Submitted.EXISTS if known.digest == new.digest else Submitted.CONFLICT
        self._records[new.run_id] = self._new_record(info, new)
        batch = self._batches[batch_tag(info.name)]
        batch.rows[new.run_id] = new.index
        self._keep(tag_of(new.run_id))
        batch.states[State.QUEUED] += 1
        record = self._records[new.run_id]
        self._count(counted.stands(record.run, State.QUEUED, record.wait, 1))
        return Submitted.CREATED

    def _new_record(self, info: BatchInfo, new: NewRun) -> _Record:
        now_ms = self._now_ms()
        run = Run(
            run_id=new.run_id,
            row_id=new.row_id,
            agent=info.agent,
            state=State.QUEUED,
            turn=1,
            fence=0,
            submitted_ms=now_ms,
            sent_ms=now_ms,
            label=label(info.agent_name) if label(info.agent_name) in self._counted_agents else OTHER_AGENTS,
            has_budget=info.has_budget,
        )
        return _Record(run=run, digest=new.digest, due_ms=now_ms + self._claim_ms, fragments=list(new.first))

    # The budget of a batch

    async def set_budget(self, tag: BatchTag, nanousd: int) -> None:
        self._batches[tag].budget = nanousd

    async def budget(self, tag: BatchTag) -> Budget | None:
        batch = self._batches.get(tag)
        if batch is None or batch.budget is None:
            return None
        shares = batch.shares.values()
        spent, held = sum(share.spent for share in shares), sum(share.at_most for share in shares)
        return Budget(total=batch.budget, spent=spent, held=held)

    async def reserve(self, held: TurnClaim, *, spent: int, call: int) -> Reserved:
        return self._hold_of_budget(held, _Share(version=(held.fence, False), spent=spent, at_most=spent + call))

    async def release(self, held: TurnClaim, *, spent: int) -> None:
        self._hold_of_budget(held, _Share(version=(held.fence, True), spent=spent, at_most=spent))

    def _hold_of_budget(self, held: TurnClaim, share: _Share) -> Reserved:
        batch = self._batches[tag_of(held.run_id)]
        known = batch.shares.get(held.run_id)
        if known and known.version > share.version:
            return Reserved.STALE
        others = [other for run_id, other in batch.shares.items() if run_id != held.run_id]
        total = batch.budget or 0
        if share.at_most == share.spent or sum(other.at_most for other in others) + share.at_most <= total:
            batch.shares[held.run_id] = share
            return Reserved.RESERVED
        batch.shares[held.run_id] = replace(share, at_most=share.spent)
        fits = sum(other.spent for other in others) + share.at_most <= total
        return Reserved.WAIT if fits else Reserved.SPENT

    # A turn

    async def begin(self, run_id: RunId, turn: int, claim: ClaimRequest) -> Begun | NotBegun:
        record = self._find(run_id)
        if record is None:
            return NotBegun.MISSING
        if record.run.turn != turn:
            return NotBegun.STALE
        if record.run.state is State.IN_TURN:
            return _begun(record, self._now_ms()) if record.nonce == claim.nonce else NotBegun.BUSY
        if record.run.state not in TURN_CAN_BEGIN:
            return NotBegun.STALE
        if record.run.state is State.ON_HOLD and record.run.hold_until_ms > self._now_ms():
            return NotBegun.HELD
        self._claim(record, claim)
        return _begun(record, self._now_ms())

    def _claim(self, record: _Record, claim: ClaimRequest) -> None:
        due_ms = max(record.run.sent_ms, record.run.hold_until_ms)
        self._count(counted.waited(queue_of_turn(record.run), due_ms, self._now_ms()))
        self._move(record, Event.BEGIN)
        record.run = replace(
            record.run,
            fence=record.run.fence + 1,
            attempts=record.run.attempts + 1,
            owner=claim.owner,
            claim_until_ms=self._now_ms() + _ms(claim.longest_seconds),
        )
        record.nonce = claim.nonce
        self._look_after_claim(record)

    async def open_calls(self, held: TurnClaim, write: TurnWrite, calls: Sequence[OpenCall]) -> Written:
        record = self._in_turn(held)
        if record is None:
            return Written.LOST
        if any(call.call_id in record.seen for call in calls):
            return Written.DUPLICATE_CALL
        if self._write(record, write, Event.OPEN_CALLS):
            record.calls = {call.call_id: _opened(call) for call in calls}
            record.seen.update(record.calls)
            if any(call.placement is Placement.FLEET for call in calls):
                _give_back(record)
            _forget_hold(record)
            self._send(record)
            self._await_person_if_stuck(record)
        return Written.WRITTEN

    async def go_on(self, held: TurnClaim, write: TurnWrite, *, advance: bool) -> Written:
        record = self._in_turn(held)
        if record is None:
            return Written.LOST
        if self._write(record, write, Event.GO_ON):
            record.run = replace(record.run, turn=record.run.turn + advance)
            self._turn_due(record)
        return Written.WRITTEN

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
        record = self._in_turn(held)
        if record is None:
            return Written.LOST
        record.wait = counted_as
        if self._write(record, write, Event.HOLD):
            _give_back(record)
            until_ms = self._now_ms() + _ms(seconds)
            record.due_ms = until_ms + self._claim_ms * timed
            sent_ms = until_ms if timed else 0
            record.run = replace(record.run, hold_until_ms=until_ms, hold_reason=reason, sent_ms=sent_ms)
        return Written.WRITTEN

    async def finish(self, held: TurnClaim, write: TurnWrite, outcome: Outcome) -> Written:
        record = self._held(held)
        if record is None or record.run.state.is_terminal:
            return Written.LOST
        move(record.run.state, outcome.ending.event)
        self._take(record, write)
        self._end(record, outcome)
        self._keep_with(record)
        return Written.WRITTEN

    # Calls

    async def begin_call(self, run_id: RunId, turn: int, call_id: CallId, claim: ClaimRequest) -> CallBegun | NotBegun:
        record = self._find(run_id)
        if record is None:
            return NotBegun.MISSING
        call = record.calls.get(call_id)
        if call is None or record.run.state is not State.IN_TOOLS or record.run.turn != turn:
            return NotBegun.STALE
        if call.block is not None:
            return NotBegun.DONE
        return self._begin_call(record, call, claim)

    def _begin_call(self, record: _Record, call: _OpenCall, claim: ClaimRequest) -> CallBegun | NotBegun:
        if call.nonce and call.nonce != claim.nonce:
            return NotBegun.BUSY
        if not call.nonce:
            if record.run.cancel_requested:
                return NotBegun.CANCELLED
            if record.waits_for_its_turn(call.call.call_id):
                return NotBegun.WAITS
            if call.permission is not Permission.GIVEN:
                return NotBegun.NOT_APPROVED
            if call.awaits_person:
                return NotBegun.IN_DOUBT
            if not call.attempt and call.call.effect is not Effect.ONCE:
                self._count(counted.waited(Queue.TOOLS, record.run.sent_ms, self._now_ms()))
            call.claim_for(claim, self._now_ms())
        run = record.run
        return CallBegun(call=call.call, attempt=call.attempt, agent=run.agent, doubt=call.doubt, label=run.label)

    async def finish_call(self, held: CallClaim, result: CallResult) -> CallStored:
        record = self._find(held.run_id)
        call = _running_call(record, held) if record else None
        if record is None or call is None:
            return CallStored(written=CallWritten.LOST)
        call.block = result.block
        self._take_result(record, result)
        if record.run.cancel_requested:
            self._end_when_quiet(record)
            return CallStored(written=CallWritten.STORED)
        return self._after_result(record, call)

    def _after_result(self, record: _Record, call: _OpenCall) -> CallStored:
        if self._joins_if_complete(record):
            return CallStored(written=CallWritten.LAST)
        self._await_person_if_stuck(record)
        waiting = record.once_without_result()[:1] if call.call.effect is Effect.ONCE else []
        ready = [call_id for call_id in waiting if record.calls[call_id].permission is Permission.GIVEN]
        return CallStored(written=CallWritten.STORED, next_once=ready[0] if ready else None)

    def _joins_if_complete(self, record: _Record) -> bool:
        if any(call.block is None for call in record.calls.values()):
            return False
        self._move(record, Event.LAST_RESULT)
        _give_back(record)
        self._send(record)
        return True

    def _await_person_if_stuck(self, record: _Record) -> None:
        if record.is_stuck:
            self._move(record, Event.AWAIT_DECISION if record.is_in_doubt else Event.AWAIT_APPROVAL)
            record.due_ms = self._now_ms()

    async def results(self, run_id: RunId, turn: int) -> TurnResults | None:
        record = self._find(run_id)
        if record is None or record.run.state is not State.JOINING or record.run.turn != turn:
            return None
        return TurnResults(
            held=TurnClaim.of(record.run),
            asked=record.fragments[-1],
            calls=tuple(record.calls),
            blocks={call_id: call.block for call_id, call in record.calls.items() if call.block is not None},
        )

    async def join(self, held: TurnClaim, message: Fragment, inline: Sequence[CallResult] = ()) -> Written:
        record = self._held(held)
        if record is None or not _can_join(record, inline=len(inline)):
            return Written.LOST
        for result in inline:
            self._take_result(record, result)
        record.fragments.append(message)
        if not self._cancelled_instead(record):
            self._move(record, Event.JOIN)
            record.calls = {}
            record.run = replace(record.run, turn=record.run.turn + 1)
            self._turn_due(record)
        return Written.WRITTEN

    async def whole_result(self, run_id: RunId, call_id: CallId) -> str | None:
        record = self._find(run_id)
        return record.whole.get(call_id) if record else None

    # Sweeping

    async def now_ms(self) -> int:
        return self._now_ms()

    async def due(self, *, limit: int) -> list[RunId]:
        now_ms = self._now_ms()
        moments = sorted(
            (record.due_ms, run_id)
            for run_id, record in self._records.items()
            if record.due_ms is not None and record.due_ms <= now_ms
        )
        return [run_id for _, run_id in moments[:limit]]

    async def examine(self, run_ids: Sequence[RunId]) -> list[Examined | None]:
        records = [self._find(run_id) for run_id in run_ids]
        return [Examined(run=record.run, calls=_call_states(record)) if record else None for record in records]

    async def look_in(self, run_ids: Sequence[RunId], *, seconds: float) -> None:
        for record in filter(None, map(self._find, run_ids)):
            if record.due_ms is not None:
                record.due_ms = self._now_ms() + _ms(seconds)

    async def let_go(self, run_id: RunId) -> None:
        record = self._find(run_id)
        if record and record.run.state.is_terminal:
            record.due_ms = None

    async def look_again(self, held: TurnClaim, *, seconds: float) -> None:
        record = self._held(held)
        if record and not record.run.state.is_terminal:
            record.due_ms = self._now_ms() + _ms(seconds)

    async def send_again(self, held: TurnClaim, *, seconds: float, sent_ms: int) -> Written:
        record = self._held(held)
        if record is None or record.run.state.is_terminal or record.run.sent_ms != sent_ms:
            return Written.LOST
        record.due_ms = self._now_ms() + _ms(seconds)
        record.run = replace(record.run, sent_ms=self._now_ms())
        self._count(counted.recovered(Recovery.MESSAGE))
        if record.run.state is State.IN_TOOLS and record.run.owner:
            record.run = replace(record.run, fence=record.run.fence + 1)
            _give_back(record)
        return Written.WRITTEN

    async def keep(self, tags: Iterable[BatchTag], digests: Iterable[AgentDigest]) -> None:
        for name in (*tags, *digests):
            if self._is_kept(name):
                self._keep(name)

    async def recover(self, held: TurnClaim, write: TurnWrite) -> Written:
        record = self._in_turn(held)
        if record is None:
            return Written.LOST
        record.run = replace(record.run, fence=record.run.fence + 1)
        if self._write(record, write, Event.RECOVER):
            self._turn_due(record)
        return Written.WRITTEN

    async def recover_call(self, held: CallClaim, *, lost: bool = False) -> Written:
        record = self._find(held.run_id)
        call = _running_call(record, held) if record else None
        if record is None or call is None:
            return Written.LOST
        call.give_back(lost=lost)
        if lost:
            self._count(counted.recovered(Recovery.CALL))
        if record.run.cancel_requested:
            self._end_when_quiet(record)
        return Written.WRITTEN

    async def doubt(self, held: CallClaim, asked: Asked, entry: EffectInDoubt, *, lost: bool = False) -> Written:
        record = self._find(held.run_id)
        call = _running_call(record, held) if record else None
        if record is None or call is None:
            return Written.LOST
        known = call.doubt or Doubt(asked=asked, worker=call.owner, began_ms=call.began_ms)
        call.doubt = replace(known, asked=asked)
        call.give_back(lost=lost)
        if lost:
            self._count(counted.recovered(Recovery.DOUBT))
        record.ledger.append(entry)
        if record.run.cancel_requested:
            self._end_when_quiet(record)
        else:
            self._await_person_if_stuck(record)
        return Written.WRITTEN

    async def rule_out(self, held: CallClaim, entry: EffectRuledOut) -> Written:
        record = self._find(held.run_id)
        call = _running_call(record, held) if record else None
        if record is None or call is None or call.doubt is None:
            return Written.LOST
        call.doubt = None
        call.give_back()
        record.ledger.append(entry)
        if record.run.cancel_requested:
            self._end_when_quiet(record)
        return Written.WRITTEN

    async def may_sweep(self, owner: Incarnation, *, seconds: float) -> bool:
        if self._now_ms() < self._next_sweep_ms and owner != self._sweeper:
            return False
        self._sweeper, self._next_sweep_ms = owner, self._now_ms() + _ms(seconds)
        return True

    # Control and reading

    async def cancel(self, run_id: RunId) -> Cancelled:
        record = self._find(run_id)
        if record is None:
            return Cancelled.MISSING
        if record.run.state.is_terminal:
            return Cancelled.ENDED
        self._keep_with(record)
        if record.run.owner or record.has_running_call:
            record.run = replace(record.run, cancel_requested=True)
            return Cancelled.REQUESTED
        self._end(record, _CANCELLED)
        record.due_ms = self._now_ms()
        return Cancelled.CANCELLED

    async def resolve(self, run_id: RunId, call_id: CallId, entry: EffectRuledOut | CallResult) -> Resolved:
        record = self._find(run_id)
        if record is None:
            return Resolved.MISSING
        call = record.calls.get(call_id)
        if record.run.state.is_terminal or call is None or call.block is not None or not call.awaits_person:
            return Resolved.NOT_IN_DOUBT
        call.doubt = None
        if isinstance(entry, CallResult):
            call.block = entry.block
            self._take_result(record, entry)
        else:
            record.ledger.append(entry)
        self._go_on_after_person(record)
        return Resolved.RESOLVED

    async def approve(
        self, run_id: RunId, call_id: CallId, entry: ApprovalDecided, told: CallResult | None
    ) -> Approved:
        record = self._find(run_id)
        if record is None:
            return Approved.MISSING
        call = record.calls.get(call_id)
        if record.run.state.is_terminal or call is None or call.permission is not Permission.WANTED or call.block:
            return Approved.NOT_WANTED
        record.ledger.append(entry)
        call.permission = Permission.GIVEN if entry.approved or told else Permission.DENIED
        if told:
            call.block = told.block
            self._take_result(record, told)
        self._go_on_after_person(record)
        return Approved.TAKEN

    def _go_on_after_person(self, record: _Record) -> None:
        if record.run.state in AWAITS_PERSON:
            record.run = replace(record.run, fence=record.run.fence + 1)
            self._move(record, _PERSON_SPEAKS[record.run.state])
        if not self._joins_if_complete(record):
            self._await_person_if_stuck(record)
        record.run = replace(record.run, sent_ms=0)
        record.due_ms = self._now_ms()

    async def dead(self, *, limit: int) -> list[RunId]:
        found = [record for run_id in list(self._records) if (record := self._find(run_id))]
        failed = [(record.ended_ms, record.run.run_id) for record in found if record.run.state is State.FAILED]
        return [run_id for _, run_id in sorted(failed, reverse=True)[:limit]]

    async def remains(self, run_id: RunId) -> Remains | None:
        record = self._find(run_id)
        if record is None or record.run.state not in CAN_GO_ON:
            return None
        return Remains(
            held=TurnClaim.of(record.run),
            calls=tuple(call.state for call in record.calls.values()),
            blocks={call_id: call.block for call_id, call in record.calls.items() if call.block is not None},
        )

    async def redrive(self, held: TurnClaim, answers: Fragment | None, entry: Redriven) -> Written:
        record = self._held(held)
        if record is None or record.outcome is None or record.run.state not in CAN_GO_ON:
            return Written.LOST
        self._batch_of(record).reasons[record.outcome.reason] -= 1
        self._move(record, Event.REDRIVE)
        record.outcome, record.ended_ms, record.calls = None, 0, {}
        record.fragments += [answers] if answers else []
        record.ledger.append(entry)
        record.run = replace(
            record.run,
            turn=record.run.turn + (answers is not None),
            fence=record.run.fence + 1,
            streaks=Streaks(),
            sent_ms=0,
            cancel_requested=False,
        )
        record.due_ms = self._now_ms()
        self._keep_with(record)
        return Written.WRITTEN

    async def cancel_requested(self, run_ids: Sequence[RunId]) -> list[RunId]:
        records = [self._find(run_id) for run_id in run_ids]
        return [record.run.run_id for record in records if record and record.run.cancel_requested]

    async def run(self, run_id: RunId) -> RunRecord | None:
        record = self._find(run_id)
        return record.public() if record else None

    async def runs(self, run_ids: Sequence[RunId]) -> list[RunRecord | None]:
        return [await self.run(run_id) for run_id in run_ids]

    async def transcript(self, run_id: RunId) -> tuple[Fragment, ...]:
        record = self._find(run_id)
        return tuple(record.fragments) if record else ()

    async def ledger(self, run_id: RunId) -> tuple[Entry, ...]:
        record = self._find(run_id)
        return tuple(record.ledger) if record else ()

    async def open_call_states(self, run_id: RunId) -> tuple[CallState, ...]:
        record = self._find(run_id)
        return _call_states(record) if record else ()

    async def batch(self, tag: BatchTag) -> BatchInfo | None:
        return self._batches[tag].info if self._is_kept(tag) else None

    async def batches(self, *, limit: int) -> list[BatchInfo]:
        known = [batch.info for tag, batch in self._batches.items() if self._is_kept(tag)]
        return sorted(known, key=lambda batch: batch.opened_ms, reverse=True)[:limit]

    async def batch_rows(self, tag: BatchTag, *, start: int, count: int) -> list[RunId]:
        rows = self._batches[tag].rows if self._is_kept(tag) else {}
        return sorted(rows, key=lambda run_id: (rows[run_id], run_id))[start : start + count]

    async def counts(self, tag: BatchTag) -> BatchCounts:
        batch = self._batches.get(tag)
        if batch is None or not (batch.is_active or self._is_kept(tag)):
            return BatchCounts(states=dict.fromkeys(State, 0), reasons={}, turns=0, spent=Spent())
        return BatchCounts(
            states={state: batch.states[state] for state in State},
            reasons=dict(+batch.reasons),
            turns=batch.turns,
            spent=batch.spent,
        )

    async def count_agent(self, name: str, agent: CountedAgent) -> None:
        if label(name) in self._counted_agents or len(self._counted_agents) < AGENTS_COUNTED:
            self._counted_agents[label(name)] = agent

    async def metrics(self) -> MetricsRead:
        return MetricsRead(
            now_ms=self._now_ms(),
            counts=dict(self._counts),
            agents=dict(self._counted_agents),
            dead_letters=len(await self.dead(limit=len(self._records))),
            workers=len(await self.workers()),
        )

    async def settle(self) -> None:
        """Nothing here is ever more durable than it was."""

    # Workers

    async def servers(self) -> str:
        return "memory"

    async def beat(self, report: WorkerReport, *, alive_seconds: float, former: Sequence[Incarnation] = ()) -> int:
        until_ms = self._now_ms() + _ms(alive_seconds)
        self._workers[report.incarnation] = (report, until_ms)
        self._former_ms.update(dict.fromkeys(former, until_ms))
        return self._now_ms()

    async def retire(self, incarnation: Incarnation) -> None:
        self._workers.pop(incarnation, None)
        self._former_ms.pop(incarnation, None)

    async def workers(self) -> list[WorkerReport]:
        return [report for report, _ in self._living()]

    async def alive_ms(self, owners: Sequence[Incarnation]) -> dict[Incarnation, int]:
        until_ms = self._former_ms | {report.incarnation: until_ms for report, until_ms in self._living()}
        left = {owner: until_ms.get(owner, 0) - self._now_ms() for owner in owners}
        return {owner: ms for owner, ms in left.items() if ms > 0}

    # The model's room

    async def hold_model(self, model: str, *, seconds: float) -> None:
        self._model_holds_ms[model] = max(self._model_holds_ms.get(model, 0), self._now_ms() + _ms(seconds))

    async def model_hold_seconds(self, model: str) -> float:
        return max(0, self._model_holds_ms.get(model, 0) - self._now_ms()) / 1000

    async def aclose(self) -> None:
        """There is nothing to give back."""

    # What the transitions share

    def _find(self, run_id: RunId) -> _Record | None:
        record = self._records.get(run_id)
        if record and record.ended_ms and self._now_ms() >= record.ended_ms + self._retention_ms:
            del self._records[run_id]
            return None
        return record

    def _keep(self, name: str) -> None:
        self._kept_until_ms[name] = self._now_ms() + self._retention_ms

    def _is_kept(self, name: str) -> bool:
        return self._kept_until_ms.get(name, 0) > self._now_ms()

    def _keep_with(self, record: _Record) -> None:
        """Keep the batch and the agent of a run as long as the run."""
        for name in (tag_of(record.run.run_id), record.run.agent):
            if self._is_kept(name):
                self._keep(name)

    def _held(self, held: TurnClaim) -> _Record | None:
        record = self._find(held.run_id)
        if record and (record.run.fence, record.run.turn) == (held.fence, held.turn):
            return record
        return None

    def _in_turn(self, held: TurnClaim) -> _Record | None:
        record = self._held(held)
        return record if record and record.run.state is State.IN_TURN else None

    def _write(self, record: _Record, write: TurnWrite, event: Event) -> bool:
        """Account for an attempt and move the run; False if it was to be cancelled, and now is."""
        self._take(record, write)
        if self._cancelled_instead(record):
            return False
        self._move(record, event)
        return True

    def _take(self, record: _Record, write: TurnWrite) -> None:
        self._account(record, write.spent, write.ledger)
        record.fragments += write.append
        known = record.run.context_tokens if write.context_tokens is None else write.context_tokens
        container = write.container or record.run.container
        cleared = record.run.cleared if write.cleared is None else write.cleared
        record.run = replace(
            record.run,
            context_tokens=known,
            streaks=write.streaks,
            container=container,
            cleared=cleared,
            context_used=write.context_used or record.run.context_used,
        )
        self._count(write.counts)

    def _take_result(self, record: _Record, result: CallResult) -> None:
        self._account(record, Spent(working_ms=result.entry.took_ms, tool_calls=1), [result.entry])
        self._count(result.counts)
        if result.whole is not None:
            record.whole[result.call_id] = result.whole

    def _cancelled_instead(self, record: _Record) -> bool:
        if record.run.cancel_requested:
            self._end(record, _CANCELLED)
        return record.run.cancel_requested

    def _end_when_quiet(self, record: _Record) -> None:
        if not record.has_running_call:
            self._end(record, _CANCELLED)

    def _move(self, record: _Record, event: Event) -> None:
        state = move(record.run.state, event)
        states = self._batch_of(record).states
        states[record.run.state] -= 1
        states[state] += 1
        self._count(counted.stands(record.run, record.run.state, record.wait, -1))
        self._count(counted.stands(record.run, state, record.wait, 1))
        record.run = replace(record.run, state=state)

    def _account(self, record: _Record, spent: Spent, entries: Sequence[Entry]) -> None:
        batch = self._batch_of(record)
        batch.spent += spent
        batch.turns += _count(entries, ModelCalled)
        lost = record.run.lost_attempts + _count(entries, AttemptLost)
        record.run = replace(record.run, spent=record.run.spent + spent, lost_attempts=lost)
        record.ledger += entries

    def _end(self, record: _Record, outcome: Outcome) -> None:
        self._move(record, outcome.ending.event)
        _give_back(record)
        _forget_hold(record)
        record.run = replace(record.run, fence=record.run.fence + 1)
        record.outcome, record.ended_ms, record.due_ms = outcome, self._now_ms(), None
        turns = _count(record.ledger, ModelCalled)
        self._count(
            counted.ended(
                record.run, outcome=record.run.state, reason=outcome.reason, turns=turns, ended_ms=record.ended_ms
            )
        )
        if record.run.state not in CAN_GO_ON:
            record.calls = {}
        self._batch_of(record).reasons[outcome.reason] += 1

    def _count(self, counts: Counts) -> None:
        self._counts.update(counts)

    def _turn_due(self, record: _Record) -> None:
        _give_back(record)
        _forget_hold(record)
        self._send(record)

    def _send(self, record: _Record) -> None:
        record.run = replace(record.run, sent_ms=self._now_ms())
        self._look_after_claim(record)

    def _look_after_claim(self, record: _Record) -> None:
        record.due_ms = self._now_ms() + self._claim_ms

    def _batch_of(self, record: _Record) -> _Batch:
        return self._batches[tag_of(record.run.run_id)]

    def _living(self) -> Iterator[tuple[WorkerReport, int]]:
        now_ms = self._now_ms()
        return (known for known in self._workers.values() if known[1] > now_ms)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def _count(entries: Sequence[Entry], kind: type[Entry]) -> int:
    return sum(isinstance(entry, kind) for entry in entries)


def _begun(record: _Record, now_ms: int) -> Begun:
    return Begun(run=record.run, fragments=tuple(record.fragments), now_ms=now_ms)


def _give_back(record: _Record) -> None:
    record.nonce = ""
    record.run = replace(record.run, owner="", claim_until_ms=0)


def _forget_hold(record: _Record) -> None:
    record.run = replace(record.run, hold_until_ms=0, hold_reason="")


def _can_join(record: _Record, *, inline: int) -> bool:
    if record.run.state is State.IN_TOOLS:
        return inline == len(record.calls) and not any(call.attempt for call in record.calls.values())
    return record.run.state is State.JOINING


def _opened(call: OpenCall) -> _OpenCall:
    return _OpenCall(call, permission=Permission.WANTED if call.approval is Approval.ALWAYS else Permission.GIVEN)


def _running_call(record: _Record, held: CallClaim) -> _OpenCall | None:
    if record.run.state is not State.IN_TOOLS or record.run.turn != held.turn:
        return None
    call = record.calls.get(held.call_id)
    return call if call and call.is_running and call.attempt == held.attempt else None


def _call_states(record: _Record) -> tuple[CallState, ...]:
    if record.run.state not in {State.IN_TOOLS, *AWAITS_PERSON}:
        return ()
    return tuple(open_call.state for open_call in record.calls.values())
