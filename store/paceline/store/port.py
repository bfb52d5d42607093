"""The record, in the words of the domain. `RedisRunStore` keeps it in Redis, `MemoryRunStore` in a dictionary.

Every transition is one method and atomic. A write of a turn carries the fence of its claim: an older fence is answered
LOST and changes nothing. A method that is carried out twice because its reply was lost says the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from paceline.core.agent import Agent
from paceline.core.approval import Permission
from paceline.core.endings import Outcome
from paceline.core.ids import OTHER_AGENTS, AgentDigest, BatchName, BatchTag, CallId, Incarnation, RunId
from paceline.core.ledger import ApprovalDecided, CallRan, EffectInDoubt, EffectRuledOut, Entry, Redriven
from paceline.core.lifecycle import State
from paceline.core.metrics import Counts, HoldReason
from paceline.core.run import ContextUsed, Run, Spent, Streaks
from paceline.core.tool_spec import Approval, Effect, Placement
from paceline.core.transcript import Fragment

# Submission ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInfo:
    """A batch, as it was opened."""

    name: BatchName
    tenant: str
    agent: AgentDigest
    agent_name: str
    opened_ms: int = 0
    has_budget: bool = False
    """Whether its runs hold each call against the batch's budget: for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedAgent:
    """An agent that is counted by its name, as it was submitted last."""

    model: str
    tools: tuple[str, ...] = ()
    cost_budget_usd: float | None = None

    @classmethod
    def of(cls, agent: Agent) -> CountedAgent:
        """What of an agent is to be known of beforehand, so that its series are there before they count."""
        tools = tuple(tool.name for tool in agent.tools)
        return cls(model=agent.model, tools=tools, cost_budget_usd=agent.limits.usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run to be. `index` is its row's place in the input; `digest` tells two contents of one row id apart."""

    run_id: RunId
    row_id: str
    index: int
    digest: str
    first: tuple[Fragment, ...]


class Submitted(StrEnum):
    """What became of a new run."""

    CREATED = "created"
    EXISTS = "exists"
    """The same row was submitted before; nothing changed."""
    CONFLICT = "conflict"
    """Another row was submitted before under this id; nothing changed."""


# The budget of a batch -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a batch may cost and what of that is gone, in nano-dollars.

    `spent`: what its answered calls cost, and the others may have. `held`: with what calls under way may cost at most.
    """

    total: int
    spent: int = 0
    held: int = 0

    @property
    def reserved(self) -> int:
        """For calls under way."""
        return self.held - self.spent


class Reserved(StrEnum):
    """Whether a call may be made that is held against its batch's budget."""

    RESERVED = "reserved"
    WAIT = "wait"
    """Not now: it would fit if calls under way came to nothing, and they may cost less than is held for them."""
    SPENT = "spent"
    """It does not fit into what is left."""
    STALE = "stale"
    """The budget has heard of a later claim of the run: this attempt has none any more."""


# A turn --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Who wants the right to carry out an attempt, and until when at most. `nonce` is new for each try."""

    owner: Incarnation
    nonce: str
    longest_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The claim is held: the run with its new fence, its transcript, and the time by the record's clock."""

    run: Run
    fragments: tuple[Fragment, ...]
    now_ms: int


class NotBegun(StrEnum):
    """Why there is nothing to do here."""

    MISSING = "missing"
    BUSY = "busy"
    """Somebody holds the claim."""
    STALE = "stale"
    """The run is elsewhere: past this turn, in another phase, or over."""
    HELD = "held"
    """The run is on hold and its moment has not come."""
    WAITS = "waits"
    """A call of a `once` tool whose predecessor has no result yet."""
    DONE = "done"
    """The call has its result."""
    NOT_APPROVED = "not_approved"
    """No person has said yet that the call may run, or one has said that it may not."""
    IN_DOUBT = "in_doubt"
    """Nobody knows whether the call took effect, and a person must say."""
    CANCELLED = "cancelled"
    """Somebody asked for the run to be cancelled: no further call starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnClaim:
    """The right to write: the run, the turn and the fence of the claim."""

    run_id: RunId
    turn: int
    fence: int

    @classmethod
    def of(cls, run: Run) -> TurnClaim:
        """The claim that a run stands under."""
        return cls(run_id=run.run_id, turn=run.turn, fence=run.fence)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnWrite:
    """What every write at the end of an attempt carries. `spent` and `counts` are added; `context_tokens` and
    `context_used` None: as before.

    `container` empty: as before. `cleared` None: as before.
    """

    append: tuple[Fragment, ...] = ()
    spent: Spent = field(default_factory=Spent)
    context_tokens: int | None = None
    streaks: Streaks = field(default_factory=Streaks)
    ledger: tuple[Entry, ...] = ()
    container: str = ""
    cleared: int | None = None
    context_used: ContextUsed | None = None
    counts: Counts = field(default_factory=dict)
    """What it adds to the metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A call of the turn, as recorded before it runs."""

    call_id: CallId
    tool: str
    raw_input: str
    effect: Effect
    placement: Placement
    timeout_s: float = 0.0
    """How long its tool may take: its claim lasts so much longer than whoever claims it asks for."""
    approval: Approval = Approval.NEVER
    """Whether a person must approve the call before it runs."""
    answer: str | None = None
    """Set: the tool does not run. The model is told this, as an error."""


class Written(StrEnum):
    """What became of a write."""

    WRITTEN = "written"
    LOST = "lost"
    """The claim is no longer ours. Nothing was changed."""
    DUPLICATE_CALL = "duplicate_call"
    """The answer uses a call id that the run has seen. Nothing was changed."""


# A call --------------------------------------------------------------------------------------------------------------


class Asked(StrEnum):
    """Who is asked what a call in doubt did."""

    TOOL = "tool"
    PERSON = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A `once` call may have taken effect or not: what is known of the try that was lost."""

    asked: Asked
    worker: str
    began_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBegun:
    """The claim of a call is held."""

    call: OpenCall
    attempt: int
    """1 for the first try; it is the fence of this claim."""
    agent: AgentDigest
    label: str = OTHER_AGENTS
    """As the run is counted."""
    doubt: Doubt | None = None
    """Set: the tool may not run. It is to be asked what became of the try that is in doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What a call came to: its `tool_result` block, the ledger's entry, and the whole text if the block cuts it."""

    call_id: CallId
    block: bytes
    entry: CallRan
    whole: str | None = None
    counts: Counts = field(default_factory=dict)
    """What it adds to the metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallClaim:
    """The right to say what became of a try of a call."""

    run_id: RunId
    turn: int
    call_id: CallId
    attempt: int


class CallWritten(StrEnum):
    """What became of a result."""

    STORED = "stored"
    LAST = "last"
    """Stored, and it was the last one of its turn: the join is due."""
    LOST = "lost"
    """The claim is no longer ours, or the call has its result, or the run is elsewhere. Nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStored:
    """What became of a result, and the `once` call that may start now, if there is one."""

    written: CallWritten
    next_once: CallId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResults:
    """The results of a turn that is to be joined: the calls in id order, and each one's block."""

    held: TurnClaim
    asked: Fragment
    """The assistant message that made the calls."""
    calls: tuple[CallId, ...]
    blocks: Mapping[CallId, bytes]


# Sweeping ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CallState:
    """An open call as the sweeper sees it. `owner` is empty while nobody has claimed it."""

    call: OpenCall
    attempt: int
    owner: str
    claim_until_ms: int
    has_result: bool
    began_ms: int = 0
    """When the last try began."""
    doubt: Doubt | None = None
    losses: int = 0
    """Workers that were lost while they had its claim."""

    permission: Permission = Permission.GIVEN

    @property
    def awaits_person(self) -> bool:
        """Whether it is in doubt, and nobody but a person can say what it did."""
        return self.doubt is not None and self.doubt.asked is Asked.PERSON and not self.has_result

    @property
    def awaits_approval(self) -> bool:
        """Whether a person must say that it may run."""
        return self.permission is Permission.WANTED and not self.has_result

    @property
    def may_not_begin(self) -> bool:
        """Whether nobody may begin it as long as no person says another thing."""
        return self.awaits_person or self.permission is not Permission.GIVEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A run that was due to be looked at, and its open calls in order."""

    run: Run
    calls: tuple[CallState, ...]


class Resolved(StrEnum):
    """What became of a decision about a call in doubt. What is due because of it, the next sweep sends."""

    RESOLVED = "resolved"
    NOT_IN_DOUBT = "not_in_doubt"
    """Of this call there is nothing for a person to decide, now or any more. Nothing was changed."""
    MISSING = "missing"


class Approved(StrEnum):
    """What became of a person's word whether a call may run. What is due because of it, the next sweep sends."""

    TAKEN = "taken"
    NOT_WANTED = "not_wanted"
    """Nobody is asked about this call, now or any more. Nothing was changed."""
    MISSING = "missing"


class Cancelled(StrEnum):
    """What became of the wish to cancel a run."""

    CANCELLED = "cancelled"
    REQUESTED = "requested"
    """Something of it is running; it ends as soon as that is done."""
    ENDED = "ended"
    """It was over already."""
    MISSING = "missing"


# Reading -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run and, if it is over, how it ended. `reason` is a StopReason's value."""

    run: Run
    reason: str = ""
    error_class: str = ""
    message: str = ""
    answer: str | None = None
    ended_ms: int = 0
    turns: int = 0
    """The model's answers, as its batch counts them. 0 too for a run whose answers came before they were counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What a run that failed or was stopped left behind: its open calls in order, and what results there are."""

    held: TurnClaim
    calls: tuple[CallState, ...]
    blocks: Mapping[CallId, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """Totals of a batch: added up over its runs, exact."""

    states: Mapping[State, int]
    reasons: Mapping[str, int]
    turns: int
    spent: Spent

    @property
    def runs(self) -> int:
        return sum(self.states.values())

    @property
    def active(self) -> int:
        """Runs that are not over."""
        return sum(count for state, count in self.states.items() if not state.is_terminal)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What a living worker process says of itself. `delivered_ms`: for each queue, when its newest message was due."""

    incarnation: Incarnation
    host: str
    pid: int
    started_ms: int
    concurrency: int
    in_flight: int
    delivered_ms: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsRead:
    """What the record knows of the fleet. `counts` are totals by field, as `core/metrics.py` names them."""

    now_ms: int
    counts: Counts
    agents: Mapping[str, CountedAgent]
    dead_letters: int
    workers: int


class RunStore(Protocol):
    """The record. Every method may raise InfrastructureError when the record cannot be reached."""

    # Submission

    async def put_agent(self, digest: AgentDigest, frozen: bytes) -> None:
        """Keep a frozen agent for a retention; the same again changes nothing else."""

    async def agent(self, digest: AgentDigest) -> bytes | None:
        """A frozen agent. It is kept for a retention from now on."""

    async def open_batch(self, batch: BatchInfo) -> BatchInfo:
        """Open a batch, or find it: the one that is in the record from now on is returned.

        It is kept for a retention.
        """

    async def submit(self, batch: BatchInfo, runs: Sequence[NewRun]) -> list[Submitted]:
        """Create these runs, each atomically; one answer a run, in their order. Rows take the place of `index`."""

    # The budget of a batch

    async def set_budget(self, tag: BatchTag, nanousd: int) -> None:
        """Let a batch cost so much, whatever it was before."""

    async def budget(self, tag: BatchTag) -> Budget | None:
        """A batch's budget; None if it has none."""

    async def reserve(self, held: TurnClaim, *, spent: int, call: int) -> Reserved:
        """Hold what the run has spent over its life and what a call may cost, in nano-dollars, against the budget.

        If it does not fit, only what is spent is held. Of a run the latest claim's word counts, and `release` after
        `reserve`.
        """

    async def release(self, held: TurnClaim, *, spent: int) -> None:
        """The call that was reserved for is over, or was not made: hold what the run has spent, and no more."""

    # A turn: QUEUED, TURN_DUE or ON_HOLD -> IN_TURN -> ...

    async def begin(self, run_id: RunId, turn: int, claim: ClaimRequest) -> Begun | NotBegun:
        """ClaimRequest the next attempt at this turn."""

    async def open_calls(self, held: TurnClaim, write: TurnWrite, calls: Sequence[OpenCall]) -> Written:
        """Append the assistant message and record its calls, before any of them runs.

        Those whose tool wants an approval may not be begun before `approve`. Where no other may be, the run awaits it:
        IN_TURN -> IN_TOOLS -> AWAITING_APPROVAL.
        """

    async def go_on(self, held: TurnClaim, write: TurnWrite, *, advance: bool) -> Written:
        """Give the claim back: the next turn is due, or this one again."""

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
        """Give the claim back: this turn is due again in so many seconds. `reason` is told, `counted_as` is counted.

        `timed`: its message is sent then. Else that is left to the sweeper.
        """

    async def finish(self, held: TurnClaim, write: TurnWrite, outcome: Outcome) -> Written:
        """End the run from IN_TURN, or from any state by the sweeper, which holds the fence it examined."""

    # Calls: IN_TOOLS -> JOINING -> TURN_DUE

    async def begin_call(self, run_id: RunId, turn: int, call_id: CallId, claim: ClaimRequest) -> CallBegun | NotBegun:
        """ClaimRequest a call: the intent is on record before the tool starts.

        The claim ends by itself `claim.longest_seconds` after the call's own timeout.
        """

    async def finish_call(self, held: CallClaim, result: CallResult) -> CallStored:
        """Store a call's result. The first one wins."""

    async def results(self, run_id: RunId, turn: int) -> TurnResults | None:
        """What there is to join; None unless the turn is JOINING."""

    async def join(self, held: TurnClaim, message: Fragment, inline: Sequence[CallResult] = ()) -> Written:
        """Append the results and make the next turn due.

        From JOINING; or from IN_TOOLS where every call ran inline, `inline` accounts for each of them, and nobody else
        has begun one.
        """

    async def whole_result(self, run_id: RunId, call_id: CallId) -> str | None:
        """The whole text of a result that was shown cut."""

    # Sweeping

    async def now_ms(self) -> int:
        """The time by the record's clock: the one that all workers share."""

    async def due(self, *, limit: int) -> list[RunId]:
        """Runs whose moment to be looked at has come, the longest due first, at most `limit`.

        Where nearly all of them are in few shards, some may be left for the next time.
        """

    async def examine(self, run_ids: Sequence[RunId]) -> list[Examined | None]:
        """These runs, each as one atomic view; None: there is no such run, or it cannot be read here."""

    async def look_in(self, run_ids: Sequence[RunId], *, seconds: float) -> None:
        """Look at these in so many seconds, whatever they are."""

    async def let_go(self, run_id: RunId) -> None:
        """Look no more at a run that is over: one that was cancelled while nobody worked on it is looked at once."""

    async def look_again(self, held: TurnClaim, *, seconds: float) -> None:
        """Look at the run again in so many seconds; no effect if it has moved."""

    async def send_again(self, held: TurnClaim, *, seconds: float, sent_ms: int) -> Written:
        """The right to send the message for what is due again. The run is looked at again in so many seconds.

        LOST if the run has moved, or if the message did not go out last at `sent_ms`: somebody else who examined the
        run sends it. Whoever has run the turn's calls inline until now has lost the turn's claim.
        """

    async def keep(self, tags: Iterable[BatchTag], digests: Iterable[AgentDigest]) -> None:
        """Keep these batches, with their rows and totals, and these agents for a retention from now on.

        For those of runs that are not over: they must not be forgotten before them. It may be asked for often.
        """

    async def recover(self, held: TurnClaim, write: TurnWrite) -> Written:
        """Take the claim of a turn from a worker that is gone: the turn is due again, the attempt counts as lost."""

    async def recover_call(self, held: CallClaim, *, lost: bool = False) -> Written:
        """Give the claim of a call back: anybody may begin it again. `lost`: taken from a worker that is gone."""

    async def doubt(self, held: CallClaim, asked: Asked, entry: EffectInDoubt, *, lost: bool = False) -> Written:
        """Take the claim of a `once` call without a result: somebody is to be asked what it did, it is not run again.

        Where a person is asked and nothing else of the turn runs or may run, the run awaits the decision: IN_TOOLS ->
        AWAITING_DECISION; AWAITING_APPROVAL where there is no doubt, and calls want an approval.
        """

    async def rule_out(self, held: CallClaim, entry: EffectRuledOut) -> Written:
        """The tool was asked, and its call has not taken effect: anybody may begin it, to run it."""

    async def may_sweep(self, owner: Incarnation, *, seconds: float) -> bool:
        """Whether it is this worker's turn to sweep, for so many seconds. It stays so for as long as it asks again."""

    # Control and reading

    async def cancel(self, run_id: RunId) -> Cancelled:
        """End the run as cancelled, at once or as soon as what is running has stopped.

        One that ends at once is due to be looked at: no worker knows of its end.
        """

    async def resolve(self, run_id: RunId, call_id: CallId, entry: EffectRuledOut | CallResult) -> Resolved:
        """A person's decision about a call in doubt: it has not taken effect and may run, or this is its result.

        AWAITING_DECISION -> IN_TOOLS; with the last result -> JOINING. The run is due to be looked at, at once.
        """

    async def approve(
        self, run_id: RunId, call_id: CallId, entry: ApprovalDecided, told: CallResult | None
    ) -> Approved:
        """A person's word whether a call may run. One that is denied with `told` has that as its result.

        AWAITING_APPROVAL -> IN_TOOLS; with the last result -> JOINING; back again if nothing may run even so. The run
        is due to be looked at, at once.
        """

    async def dead(self, *, limit: int) -> list[RunId]:
        """Runs that failed, the latest first, at most `limit`."""

    async def remains(self, run_id: RunId) -> Remains | None:
        """What a run left behind; None unless it failed or was stopped."""

    async def redrive(self, held: TurnClaim, answers: Fragment | None, entry: Redriven) -> Written:
        """Let a run go on that failed or was stopped: FAILED or STOPPED -> TURN_DUE. Its life is no longer limited.

        With `answers` to the calls that it left open the next turn is due, else the turn in which it ended. What
        happened in a row is forgotten. It is due to be looked at, at once.
        """

    async def cancel_requested(self, run_ids: Sequence[RunId]) -> list[RunId]:
        """Those of these runs that somebody asked to cancel."""

    async def run(self, run_id: RunId) -> RunRecord | None:
        """One run."""

    async def runs(self, run_ids: Sequence[RunId]) -> list[RunRecord | None]:
        """These runs, in this order."""

    async def transcript(self, run_id: RunId) -> tuple[Fragment, ...]:
        """A run's messages."""

    async def ledger(self, run_id: RunId) -> tuple[Entry, ...]:
        """What happened to a run, in order."""

    async def open_call_states(self, run_id: RunId) -> tuple[CallState, ...]:
        """The calls of the turn a run is in."""

    async def batch(self, tag: BatchTag) -> BatchInfo | None:
        """A batch by its tag (`ids.batch_tag` of its name)."""

    async def batches(self, *, limit: int) -> list[BatchInfo]:
        """The newest batches, newest first."""

    async def batch_rows(self, tag: BatchTag, *, start: int, count: int) -> list[RunId]:
        """A slice of a batch's runs, in the order of the input."""

    async def counts(self, tag: BatchTag) -> BatchCounts:
        """A batch's totals."""

    async def count_agent(self, name: str, agent: CountedAgent) -> None:
        """Have the runs of this agent counted by its name from now on, if there is room for one more.

        It is kept for a retention, and as long as batches are.
        """

    async def metrics(self) -> MetricsRead:
        """Everything that was counted, and what only a look at the record tells."""

    async def settle(self) -> None:
        """Return when all that was read before is as durable as the record was asked to be."""

    # Workers

    async def servers(self) -> str:
        """A name for the servers behind the record, as they run now.

        It is another one when a server was started again or another took its place: either may have lost writes.
        """

    async def beat(self, report: WorkerReport, *, alive_seconds: float, former: Sequence[Incarnation] = ()) -> int:
        """Say that this worker lives, for so many seconds more; under its former names too, where they hold claims.

        Answers with the time by the record's clock.
        """

    async def retire(self, incarnation: Incarnation) -> None:
        """Say that this worker is gone: what it still holds may be recovered at once."""

    async def workers(self) -> list[WorkerReport]:
        """The living workers."""

    async def alive_ms(self, owners: Sequence[Incarnation]) -> dict[Incarnation, int]:
        """For each of these that lives: for how many milliseconds more that is known."""

    # The model's room

    async def hold_model(self, model: str, *, seconds: float) -> None:
        """Let no run call this model for so many seconds at least: its API has no room."""

    async def model_hold_seconds(self, model: str) -> float:
        """For how much longer no run may call this model; 0: it may."""

    async def aclose(self) -> None:
        """Give the connections back."""
