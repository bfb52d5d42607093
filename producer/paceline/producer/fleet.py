"""The Python API: submit rows to a fleet, watch them, collect their results, cancel them."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeAlias

from paceline.core.agent import Agent
from paceline.core.broker_address import broker_address
from paceline.core.errors import InfrastructureError, NewerVersion, UnknownBatch, UnknownRun, UsageError
from paceline.core.ids import BatchName, BatchTag, CallId, RunId, batch_tag, tag_of
from paceline.core.ledger import Entry
from paceline.core.lifecycle import CAN_GO_ON, State
from paceline.core.transcript import Fragment
from paceline.store.connect import ServerProblem, Severity, check_server, connect
from paceline.store.loop_thread import LoopThread
from paceline.store.port import (
    Approved,
    BatchCounts,
    BatchInfo,
    Budget,
    CallState,
    Cancelled,
    CountedAgent,
    Resolved,
    RunRecord,
    RunStore,
    WorkerReport,
)
from paceline.store.record import RedisRunStore

from .agent_file import AgentFile, load_agent_file
from .approvals import Approve, Deny, approvals_of, decided, told_to_model
from .budget import budget_nanousd, require_budget
from .decide import Decision, recorded
from .doubts import doubts_of
from .publish import KombuPublisher, Publisher
from .redrive import is_spent, redrive_run
from .result import Result, result_of
from .row_source import RowSource, row_source
from .rows import check_rows, read_rows
from .settings import ProducerSettings
from .submit import Submission, submit_rows

AgentLike: TypeAlias = "str | os.PathLike[str] | Agent | AgentFile"
RowsLike: TypeAlias = "str | os.PathLike[str] | Iterable[Mapping[str, Any]]"

_SLICE = 500
_POLL_FIRST_SECONDS = 0.1
_POLL_MOST_SECONDS = 1.0
_NAMES_TO_GUESS_FROM = 200
_DEAD_LOOKED_AT = 100_000
"""Of one batch's failed runs, those among so many of all batches."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BatchStatus:
    """Where a batch stands."""

    info: BatchInfo
    counts: BatchCounts
    budget: Budget | None = None

    def __repr__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in self.counts.states.items() if count)
        return f"<BatchStatus {self.info.name!r}: {states or 'no runs'}>"

    @property
    def is_done(self) -> bool:
        return not self.counts.active


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStory:
    """All that is on record of a run."""

    record: RunRecord
    batch: BatchInfo | None
    agent: Agent | None
    ledger: tuple[Entry, ...]
    calls: tuple[CallState, ...]
    transcript: tuple[Fragment, ...]

    def call(self, call_id: CallId) -> CallState | None:
        """An open call of the turn it is in; None if there is none of this id."""
        return next((state for state in self.calls if state.call.call_id == call_id), None)


class Fleet:
    """A door to a fleet's record and broker; close it, or use it in a `with`.

    `url` and `broker_url` default to PACELINE_REDIS_URL and PACELINE_BROKER_URL; without the latter, the record's Redis
    is the broker too. The server is asked, at the first submission, whether runs can be trusted to it.
    """

    def __init__(
        self,
        url: str | None = None,
        broker_url: str | None = None,
        *,
        settings: ProducerSettings | None = None,
    ) -> None:
        self._settings = settings or ProducerSettings.from_environment(os.environ)
        self.url = url or self._settings.redis_url or _no_url()
        self.broker_url = broker_url or self._settings.broker_url or self.url
        store = connect(
            self.url,
            prefix=self._settings.prefix,
            claim_seconds=self._settings.claim_seconds,
            retention_seconds=self._settings.retention_seconds,
            durability=self._settings.durability,
        )
        address = broker_address(self.broker_url, prefix=self._settings.prefix)
        self._begin(store, KombuPublisher(address.url, address.transport_options), LoopThread())

    @classmethod
    def over(cls, store: RunStore, publisher: Publisher, *, settings: ProducerSettings | None = None) -> Fleet:
        """A fleet over a given record and publisher, which it closes."""
        fleet = cls.__new__(cls)
        fleet._settings = settings or ProducerSettings.from_environment({})
        fleet.url = fleet.broker_url = ""
        fleet._begin(store, publisher, LoopThread())
        return fleet

    def _begin(self, store: RunStore, publisher: Publisher, loop: LoopThread) -> None:
        self.store = store
        self.loop = loop
        self._publisher = publisher
        self._is_checked = False

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def retention_seconds(self) -> float:
        """How long a run is kept after its end."""
        return self._settings.retention_seconds

    def close(self) -> None:
        """Give all connections back. Batches of this fleet cannot be used any more."""
        self._publisher.close()
        self.loop.run(self.store.aclose())
        self.loop.close()

    def problems(self) -> list[ServerProblem]:
        """What is wrong with the server. Raises InfrastructureError, which says what to do, if it cannot be asked."""
        if not isinstance(self.store, RedisRunStore):
            return []
        return self.loop.run(check_server(self.store, url=self.url))

    def check(self) -> list[str]:
        """What is not well with the server but does not forbid its use.

        Raises InfrastructureError if it cannot be reached, or would lose runs.
        """
        problems = self.problems()
        fatal = [problem for problem in problems if problem.severity is Severity.FAIL]
        if fatal:
            raise InfrastructureError("\n".join(f"{problem.what}: {problem.fix}" for problem in fatal))
        self._is_checked = True
        return [f"{problem.what}: {problem.fix}" for problem in problems]

    def submit(
        self,
        agent: AgentLike,
        rows: RowsLike,
        batch: str | None = None,
        tenant: str = "default",
        budget_usd: float | None = None,
    ) -> Batch:
        """Submit rows as runs of an agent. Everything is checked before anything is submitted.

        Again with the same batch name: adds the rows that are missing, and nothing else. Without a name the batch is
        named after the agent's definition and the input. With `budget_usd` all its runs together cost no more than
        that; another budget the next time takes its place.
        Runs that the broker took no messages for are submitted all the same: see `submission.unannounced`.
        Raises AgentFileError, RowError, UsageError, InfrastructureError.
        """
        file = self.load_agent(agent)
        with row_source(rows) as source:
            check_rows(source, file.template)
            name = batch or default_batch_name(file, source)
            return self.submit_checked(file, source, batch=name, tenant=tenant, budget_usd=budget_usd)

    def submit_checked(
        self,
        file: AgentFile,
        source: RowSource,
        *,
        batch: str,
        tenant: str = "default",
        budget_usd: float | None = None,
    ) -> Batch:
        """Submit rows that `check_rows` has passed; else as `submit`."""
        budget = None if budget_usd is None else budget_nanousd(file.agent, budget_usd)
        if not self._is_checked:
            self.check()
        info = self.loop.run(self._open(file.agent, BatchName(batch), tenant, budget))
        rows = read_rows(source, file.template)
        return Batch(self, info, submit_rows(self.loop, self.store, self._publisher, info, rows))

    def load_agent(self, agent: AgentLike) -> AgentFile:
        """The agent with its prompt template. Raises AgentFileError."""
        match agent:
            case AgentFile():
                return agent
            case Agent():
                return AgentFile(agent=agent, template=None)
            case _:
                return load_agent_file(agent, search_paths=self._settings.tools_path)

    def batch(self, name: str) -> Batch:
        """A batch that was submitted before. Raises UnknownBatch."""
        info = self.loop.run(self.store.batch(batch_tag(BatchName(name))))
        if info is None:
            raise UnknownBatch(f"no batch {name!r} is on record{self._nearest(name)}: `paceline status` lists them")
        return Batch(self, info)

    def has_batch(self, name: str) -> bool:
        """Whether a batch of this name is on record."""
        return self.loop.run(self.store.batch(batch_tag(BatchName(name)))) is not None

    def batches(self, *, limit: int = 20) -> list[Batch]:
        """The newest batches, newest first."""
        return [Batch(self, info) for info in self.loop.run(self.store.batches(limit=limit))]

    def runs(self, *, batch: str | None = None, limit_batches: int = 20) -> Iterator[RunRecord]:
        """The runs of a batch, in the order of its input; or of the newest batches."""
        for found in [self.batch(batch)] if batch else self.batches(limit=limit_batches):
            yield from found.records()

    def show(self, run_id: str) -> RunStory:
        """All that is on record of a run. Raises UnknownRun."""
        return self.loop.run(self._story(RunId(run_id)))

    def cancel(self, run_id: str) -> Cancelled:
        """Cancel a run: at once, or as soon as what is running of it has stopped. Raises UnknownRun."""
        cancelled = self.loop.run(self.store.cancel(RunId(run_id)))
        if cancelled is Cancelled.MISSING:
            raise self._unknown_run(run_id)
        return cancelled

    def resolve(self, run_id: str, call_id: str, decision: Decision) -> None:
        """Say what became of a call that may have taken effect or not; the run goes on within a sweep.

        Raises UnknownRun, or UsageError where there is nothing to decide about this call.
        """
        self.loop.run(self._resolve(RunId(run_id), CallId(call_id), decision))

    def approve(self, run_id: str, call_id: str) -> None:
        """Let a call run that wants an approval; it begins within a sweep.

        Raises UnknownRun, or UsageError where this call wants none.
        """
        self.loop.run(self._rule(RunId(run_id), CallId(call_id), Approve()))

    def deny(self, run_id: str, call_id: str, *, reason: str = "") -> None:
        """Let a call not run that wants an approval: the model is told so, or the run stops, as its agent has it.

        Raises UnknownRun, or UsageError where this call wants none.
        """
        self.loop.run(self._rule(RunId(run_id), CallId(call_id), Deny(reason)))

    def dead(self, *, batch: str | None = None, limit: int = 50) -> list[RunRecord]:
        """Runs that failed, of all batches or of one, the latest first."""
        tag = self.batch(batch).tag if batch else None
        found = self.loop.run(self.store.dead(limit=limit if tag is None else _DEAD_LOOKED_AT))
        wanted = [run_id for run_id in found if tag in (None, tag_of(run_id))][:limit]
        return [record for record in self.loop.run(self.store.runs(wanted)) if record is not None]

    def redrive(self, run_id: str) -> None:
        """Let a run go on that failed or was stopped, from its last good state.

        Raises UnknownRun, or UsageError for a run that is anything else, or has used up a limit.
        """
        record = self.loop.run(self.store.run(RunId(run_id)))
        if record is None:
            raise self._unknown_run(run_id)
        if is_spent(record):
            raise UsageError(
                f"run {run_id} would only end by {record.reason} again, as its limits are frozen into it: raise the "
                "limit in the agent file and submit as a new batch"
            )
        if not self.loop.run(redrive_run(self.store, RunId(run_id))):
            raise UsageError(
                f"run {run_id} is {record.run.state}: only a run that failed or was stopped can go on after its end"
            )

    def now_ms(self) -> int:
        """The time by the record's clock, milliseconds since the epoch."""
        return self.loop.run(self.store.now_ms())

    def workers(self) -> list[WorkerReport]:
        """The living workers."""
        return self.loop.run(self.store.workers())

    async def _open(self, agent: Agent, name: BatchName, tenant: str, budget: int | None) -> BatchInfo:
        await self.store.put_agent(agent.digest, agent.freeze())
        await self.store.count_agent(agent.name, CountedAgent.of(agent))
        wanted = BatchInfo(
            name=name,
            tenant=tenant,
            agent=agent.digest,
            agent_name=agent.name,
            opened_ms=await self.store.now_ms(),
            has_budget=budget is not None,
        )
        info = await self.store.open_batch(wanted)
        if replace(info, opened_ms=0, has_budget=False) != replace(wanted, opened_ms=0, has_budget=False):
            raise UsageError(_other_batch(info, wanted))
        if budget is not None:
            require_budget(info)
            await self.store.set_budget(batch_tag(name), budget)
        return info

    async def _resolve(self, run_id: RunId, call_id: CallId, decision: Decision) -> None:
        story = await self._story(run_id)
        state = story.call(call_id)
        resolved = Resolved.NOT_IN_DOUBT
        if state is not None:
            now_ms = await self.store.now_ms()
            entry = recorded(decision, story.record.run, story.agent, state, now_ms=now_ms)
            resolved = await self.store.resolve(run_id, call_id, entry)
        if resolved is not Resolved.RESOLVED:
            raise UsageError(_nothing_to_decide(story, call_id))

    async def _rule(self, run_id: RunId, call_id: CallId, verdict: Approve | Deny) -> None:
        story = await self._story(run_id)
        state, run = story.call(call_id), story.record.run
        approved = Approved.NOT_WANTED
        if state is not None:
            now_ms = await self.store.now_ms()
            told = told_to_model(verdict, run, story.agent, state, now_ms=now_ms)
            entry = decided(verdict, run, state, now_ms=now_ms)
            approved = await self.store.approve(run_id, call_id, entry, told)
        if approved is not Approved.TAKEN:
            raise UsageError(_nothing_to_approve(story, call_id))

    async def _story(self, run_id: RunId) -> RunStory:
        record = await self.store.run(run_id)
        if record is None:
            raise self._unknown_run(run_id)
        return RunStory(
            record=record,
            batch=await self.store.batch(tag_of(run_id)),
            agent=_readable(await self.store.agent(record.run.agent)),
            ledger=await self.store.ledger(run_id),
            calls=await self.store.open_call_states(run_id),
            transcript=await self.store.transcript(run_id),
        )

    def _unknown_run(self, run_id: str) -> UnknownRun:
        kept = f"{self.retention_seconds:g} s"
        return UnknownRun(
            f"no run {run_id!r} is on record: `paceline runs` lists them; a record is kept for {kept} after the run's "
            "end (PACELINE_RETENTION_SECONDS)"
        )

    def _nearest(self, name: str) -> str:
        known = [info.name for info in self.loop.run(self.store.batches(limit=_NAMES_TO_GUESS_FROM))]
        near = difflib.get_close_matches(name, known, n=1)
        return f" (did you mean {near[0]!r}?)" if near else ""


class Batch:
    """A batch of runs. `submission` says what this submission added; None for a batch that was looked up."""

    def __init__(self, fleet: Fleet, info: BatchInfo, submission: Submission | None = None) -> None:
        self._fleet = fleet
        self.info = info
        self.submission = submission
        self._most_runs = submission.created if submission else 0
        self._known_since = time.monotonic()

    def __repr__(self) -> str:
        return f"<Batch {self.name!r}: agent {self.info.agent_name!r}, tenant {self.info.tenant!r}>"

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def tag(self) -> BatchTag:
        return batch_tag(self.info.name)

    def agent(self) -> Agent | None:
        """The agent of its runs; None where it is not on record any more, or only a newer paceline can read it."""
        return _readable(self._fleet.loop.run(self._fleet.store.agent(self.info.agent)))

    def status(self) -> BatchStatus:
        """Counts and totals, exact."""
        return self._fleet.loop.run(self._status())

    async def _status(self) -> BatchStatus:
        store = self._fleet.store
        budget = await store.budget(self.tag) if self.info.has_budget else None
        return BatchStatus(info=self.info, counts=await store.counts(self.tag), budget=budget)

    def wait(
        self, timeout: float | None = None, *, on_status: Callable[[BatchStatus], None] | None = None
    ) -> BatchStatus:
        """Return when every run is over. `on_status` is told where the batch stands, about once a second.

        Raises TimeoutError after `timeout` seconds; the batch lives on. Raises InfrastructureError if the record has
        lost runs of the batch, or does not confirm what is to be reported.
        """
        end = None if timeout is None else time.monotonic() + timeout
        pause = _POLL_FIRST_SECONDS
        while True:
            status = self.status()
            self._require_all_runs(status)
            if on_status:
                on_status(status)
            if status.is_done and self._is_settled(status):
                return status
            if end is not None and time.monotonic() + pause > end:
                raise TimeoutError(f"batch {self.name!r}: {_not_over(status.counts.active)} after {timeout:g} s")
            time.sleep(pause)
            pause = min(pause * 1.5, _POLL_MOST_SECONDS)

    def _require_all_runs(self, status: BatchStatus) -> None:
        # A batch never has fewer runs than before: its totals are forgotten only when the retention is over.
        gone, self._most_runs = self._most_runs - status.counts.runs, max(self._most_runs, status.counts.runs)
        if gone > 0 and time.monotonic() - self._known_since < self._fleet.retention_seconds:
            raise InfrastructureError(
                f"batch {self.name!r}: {gone} of {self._most_runs} runs are gone from the record: its server was "
                "started again without what it had stored, or a replica that had not got it yet took over. "
                "Submit the same rows to the same batch: only what is missing is run"
            )

    def _is_settled(self, status: BatchStatus) -> bool:
        """Whether what is to be reported cannot be taken back: it is confirmed, and the same when read after that."""
        self._fleet.loop.run(self._fleet.store.settle())
        return self.status() == status

    def results(self) -> Iterator[Result]:
        """The result of each row, in the order of the input; of runs that are not over, as they stand."""
        return (result_of(record) for record in self.records())

    def records(self) -> Iterator[RunRecord]:
        """Each run as the record has it, in the order of the input."""
        for run_ids in self._slices():
            found = self._fleet.loop.run(self._fleet.store.runs(run_ids))
            yield from (record for record in found if record is not None)

    def cancel(self) -> dict[Cancelled, int]:
        """Cancel every run that is not over; how many were cancelled at once, on request, or over before."""
        outcomes: dict[Cancelled, int] = {}
        for run_ids in self._slices():
            for outcome in self._fleet.loop.run(self._cancel(run_ids)):
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
        return outcomes

    def redrive(self, states: Collection[State] = CAN_GO_ON) -> int:
        """Let every run go on that ended in one of these states; how many there were.

        Those that have used up a limit are passed over: they would only end so again.
        """
        return sum(self._fleet.loop.run(self._redrive(run_ids, states)) for run_ids in self._slices())

    async def _redrive(self, run_ids: list[RunId], states: Collection[State]) -> int:
        records = await self._fleet.store.runs(run_ids)
        ended = [
            record.run.run_id for record in records if record and record.run.state in states and not is_spent(record)
        ]
        return sum(await asyncio.gather(*(redrive_run(self._fleet.store, run_id) for run_id in ended)))

    async def _cancel(self, run_ids: list[RunId]) -> list[Cancelled]:
        return await asyncio.gather(*(self._fleet.store.cancel(run_id) for run_id in run_ids))

    def _slices(self) -> Iterator[list[RunId]]:
        start = 0
        while run_ids := self._fleet.loop.run(self._fleet.store.batch_rows(self.tag, start=start, count=_SLICE)):
            yield run_ids
            start += len(run_ids)


def default_batch_name(file: AgentFile, source: RowSource) -> str:
    """`<agent>-<12 hex>`: the same for the same definition, prompt and input, so the same command resumes."""
    of = f"{file.agent.digest}\n{file.template}\n{source.identity()}"
    return f"{file.agent.name}-{hashlib.blake2b(of.encode(), digest_size=6).hexdigest()}"


def has_state(record: RunRecord, wanted: str) -> bool:
    """Whether a run is in the state, or has the status, of this name."""
    return wanted in (record.run.state, record.run.state.status)


def known_states() -> list[str]:
    """The names that `has_state` knows."""
    return sorted({*State, *(state.status for state in State)})


def _readable(frozen: bytes | None) -> Agent | None:
    try:
        return Agent.thaw(frozen) if frozen else None
    except NewerVersion:
        return None


def _not_over(count: int) -> str:
    return "1 run is not over" if count == 1 else f"{count} runs are not over"


def _other_batch(found: BatchInfo, wanted: BatchInfo) -> str:
    if found.name != wanted.name:
        return f"the names {wanted.name!r} and {found.name!r} have one digest: take another for this batch"
    what = "agent definition" if found.agent != wanted.agent else "tenant"
    return (
        f"batch {wanted.name!r} was opened with another {what} ({found.agent_name}, {found.agent}, tenant "
        f"{found.tenant}): submit under another batch name, or with the agent as it was"
    )


def _nothing_to_decide(story: RunStory, call_id: CallId) -> str:
    run = story.record.run
    doubtful = ", ".join(doubt.call_id for doubt in doubts_of(run, story.calls)) or "none"
    return (
        f"there is nothing to decide about call {call_id!r} of run {run.run_id}, which is {run.state}: "
        f"its calls in doubt are: {doubtful}"
    )


def _nothing_to_approve(story: RunStory, call_id: CallId) -> str:
    run = story.record.run
    waiting = ", ".join(asked.call_id for asked in approvals_of(run, story.calls)) or "none"
    return (
        f"call {call_id!r} of run {run.run_id}, which is {run.state}, wants no approval: its calls that do are: "
        f"{waiting}"
    )


def _no_url() -> str:
    raise UsageError("there is no Redis to talk to: set PACELINE_REDIS_URL=redis://host:6379/0, or use `paceline run`")
