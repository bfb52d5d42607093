"""What one worker process has at hand: the record, the model, agents and tools, and what it has in flight."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from paceline.core.agent import Agent
from paceline.core.answer import Answer
from paceline.core.errors import Bug, InfrastructureError, ToolLoadError
from paceline.core.ids import AgentDigest, Incarnation, RunId
from paceline.core.step import ModelCallFailed
from paceline.core.wire import Queue
from paceline.store.port import ClaimRequest, RunStore
from paceline.tools import Registry, Tool

from .cleared_views import ClearedViews
from .confinement import Guard, unguarded
from .lives import Lives
from .messages import Message
from .model import ModelClient
from .problems import Problems
from .pulse import BEATS_PER_CLAIM, Pulse
from .record_clock import RecordClock, believed_ms
from .settings import Settings

T = TypeVar("T")

log = logging.getLogger("paceline.desk")

CLAIM_MARGIN_SECONDS = 60.0
"""Beyond the longest model call: a claim ends by itself for a task that hangs in a living worker."""
GIVING_BACK_SECONDS = 4.0
"""How long a process that ends tries to give back what it was cut in: then it is left to those who remain."""
_HOLD_CACHE_SECONDS = 1.0
_OUTAGE_SECONDS = 1.0
_ASKED_AGAIN = 0.1
"""Of the retention: an agent in use is asked for so often, long before the record forgets it."""


@dataclass(slots=True)
class InFlight:
    """What a process is working on right now."""

    tasks: set[asyncio.Task[object]] = field(default_factory=set)
    cut_at: float = math.inf
    """When the process was told that it ends, by the loop's clock: whatever begins then is given back at once."""
    model_calls: dict[asyncio.Future[Answer | ModelCallFailed], RunId] = field(default_factory=dict)
    """Each with its run. A run has two where a worker that was given up for dead has come back."""
    cut: set[asyncio.Future[Answer | ModelCallFailed]] = field(default_factory=set)
    """Model calls that were ended because somebody cancelled the run."""
    delivered_ms: dict[Queue, int] = field(default_factory=dict)
    """For each queue, when the newest message that came here was sent."""
    problems: Problems = field(default_factory=Problems)

    @contextmanager
    def working(self) -> Iterator[None]:
        """While the current task carries out an attempt: it is cut when the process has no more time."""
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self.tasks.add(task)
        if self.cut_at < math.inf:
            task.cancel()
        try:
            yield
        finally:
            self.tasks.discard(task)

    async def model_call(
        self, run_id: RunId, call: Coroutine[Any, Any, Answer | ModelCallFailed]
    ) -> Answer | ModelCallFailed | None:
        """What the model call came to; None if it was cut because the run was cancelled."""
        calling = asyncio.ensure_future(call)
        self.model_calls[calling] = run_id
        try:
            return await calling
        except asyncio.CancelledError:
            if calling in self.cut:
                return None
            raise
        finally:
            self.cut.discard(calling)
            del self.model_calls[calling]

    def cut_model_calls(self, run_id: RunId) -> None:
        """Close the connections of a cancelled run's model calls, if there are any here."""
        for calling in [calling for calling, of_run in self.model_calls.items() if of_run == run_id]:
            self.cut.add(calling)
            calling.cancel()

    def cut_tasks(self) -> None:
        """Have every attempt give its claim back, and each that begins from now on."""
        self.cut_at = min(self.cut_at, _now_seconds())
        for task in self.tasks:
            task.cancel()

    def note_delivery(self, queue: Queue, sent_ms: int) -> None:
        self.delivered_ms[queue] = max(sent_ms, self.delivered_ms.get(queue, 0))


class Desk:
    """Lives on the process's loop."""

    def __init__(
        self,
        *,
        settings: Settings,
        store: RunStore,
        model: ModelClient,
        registry: Registry,
        built_in: Mapping[str, Tool],
        incarnation: Incarnation,
        send: Callable[[Sequence[Message]], None],
        guard: Guard = unguarded,
        clock: RecordClock | None = None,
    ) -> None:
        self.clock = clock or RecordClock()
        self.settings = settings
        self.store = store
        self.model = model
        self.lives = Lives(incarnation)
        self.pulse = Pulse(seconds=settings.claim_seconds / BEATS_PER_CLAIM)
        self.guard = guard
        self.in_flight = InFlight()
        self.cleared_views = ClearedViews()
        self.background: list[asyncio.Future[None]] = []
        self._registry = registry
        self._built_in = built_in
        self._send = send
        self._timers: dict[asyncio.TimerHandle, Message] = {}
        self._holds: dict[str, float] = {}
        self._holds_asked: dict[str, float] = {}
        self._agents: dict[AgentDigest, Agent] = {}
        self._agents_known_until: dict[AgentDigest, float] = {}
        self._importable: set[AgentDigest] = set()

    async def send(self, messages: Sequence[Message]) -> None:
        """Send these now; the loop goes on meanwhile."""
        if messages:
            await asyncio.to_thread(self._send, messages)

    def send_later(self, message: Message, *, seconds: float) -> None:
        """Send this after a wait. A timer that dies with its process is made good by the sweeper."""
        loop = asyncio.get_running_loop()

        def ring() -> None:
            del self._timers[timer]
            loop.run_in_executor(None, self._send, (message,))

        timer = loop.call_later(seconds, ring)
        self._timers[timer] = message

    async def leave_timers(self) -> None:
        """The process ends: what it would have sent later is left to the sweepers of others, and they look at it."""
        waiting = sorted({message.run_id for message in self._timers.values()})
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if waiting:
            await self.store.look_in(waiting, seconds=0)

    def note_delivery(self, queue: Queue, sent_ms: int) -> None:
        """A message came here, from a sender that says when it sent it."""
        believed = believed_ms(sent_ms, self.clock.now_ms())
        if believed is not None:
            self.in_flight.note_delivery(queue, believed)

    async def hold_model(self, model: str, *, seconds: float) -> None:
        """Let no run of the fleet call this model for so many seconds at least."""
        self._holds[model] = max(self._holds.get(model, 0.0), _now_seconds() + seconds)
        await self.until_written(lambda: self.store.hold_model(model, seconds=seconds))

    async def model_hold_seconds(self, model: str) -> float:
        """For how much longer this model may not be called. What other workers found is asked for once a second."""
        now = _now_seconds()
        if now - self._holds_asked.get(model, -_HOLD_CACHE_SECONDS) >= _HOLD_CACHE_SECONDS:
            self._holds_asked[model] = now
            self._holds[model] = now + await self.store.model_hold_seconds(model)
        return max(0.0, self._holds.get(model, 0.0) - now)

    @property
    def incarnation(self) -> Incarnation:
        """The name under which this process claims at present."""
        return self.lives.current

    @contextmanager
    def claiming(self, longest_seconds: float) -> Iterator[ClaimRequest]:
        """A claim of this process, with a nonce of its own, for as long as it is in use."""
        with self.lives.claiming() as owner:
            yield ClaimRequest(
                owner=owner, nonce=secrets.token_hex(6), longest_seconds=longest_seconds + CLAIM_MARGIN_SECONDS
            )

    async def agent(self, digest: AgentDigest) -> Agent:
        """A frozen agent. Raises Bug if the record has lost it."""
        now = _now_seconds()
        if now >= self._agents_known_until.get(digest, now):
            frozen = await self.store.agent(digest)
            if frozen is None:
                raise Bug(f"the record has no agent {digest}")
            self._agents[digest] = Agent.thaw(frozen)
            # The record keeps what is asked for.
            self._agents_known_until[digest] = now + _ASKED_AGAIN * self.settings.retention_seconds
        return self._agents[digest]

    def tool(self, path: str) -> Tool:
        """The tool at this path. Raises ToolLoadError where this process cannot import it."""
        return self._built_in.get(path) or self._registry.load(path)

    def report_missing(self, digest: AgentDigest, why: str) -> None:
        """Have it told that runs of this agent wait for a worker with its tools; empty: they do not, or no more."""
        cause = f"agent {digest}"
        if why:
            self.in_flight.problems.note(cause, f"{cause}: {why}")
        else:
            self.in_flight.problems.solve(cause)

    async def until_written(self, write: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the write answers, once the record can be reached: what is held here must not be dropped for an outage.

        Raises InfrastructureError if the process ends and has no more time to wait.
        """
        while True:
            try:
                return await write()
            except InfrastructureError as error:
                if _now_seconds() - self.in_flight.cut_at >= GIVING_BACK_SECONDS:
                    raise
                log.warning("waiting for the record: %s", error)
                await asyncio.sleep(_OUTAGE_SECONDS)

    async def missing_tools(self, agent: Agent) -> str:
        """Why this process cannot run the agent's tools; empty if it can. Imports on a thread: modules may be slow."""
        if agent.digest in self._importable:
            return ""
        missing = await asyncio.to_thread(lambda: "; ".join(dict.fromkeys(self._import_problems(agent))))
        self.report_missing(agent.digest, missing)
        if not missing:
            self._importable.add(agent.digest)
        return missing

    def _import_problems(self, agent: Agent) -> Iterator[str]:
        for spec in agent.tools:
            try:
                self.tool(spec.path)
            except ToolLoadError as error:
                yield str(error)


def _now_seconds() -> float:
    """The loop's own clock, by which its timers ring: in a test it need not be the machine's."""
    return asyncio.get_running_loop().time()
