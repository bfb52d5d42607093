"""The sweeper: in every worker, one at a time in the fleet, it looks at the runs that are due and mends what broke."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from paceline.core import counted
from paceline.core.agent import Agent
from paceline.core.endings import Outcome, StopReason
from paceline.core.errors import Bug, InfrastructureError, NewerVersion
from paceline.core.ids import Incarnation, tag_of
from paceline.core.ledger import Ended
from paceline.core.lifecycle import State
from paceline.core.metrics import Recovery
from paceline.core.next_call import next_call
from paceline.core.run import Run
from paceline.core.usage import WorstCase
from paceline.core.wire import Queue, queue_of_turn
from paceline.store.port import CallClaim, CallState, Examined, TurnClaim, TurnWrite, Written

from .budget import release_budget
from .desk import CLAIM_MARGIN_SECONDS, Desk
from .doubt import LostTry, put_in_doubt
from .lost_attempt import lost_attempt
from .messages import ChordMessage, JoinMessage, Message, TurnMessage
from .record_clock import believed_ms, now_ms
from .run_log import log_end, of_attempt
from .sweep import EndRun, LetGo, LookAgain, MendCalls, RecoverTurn, Repair, SendJoin, SendTurn, View, repair

log = logging.getLogger("paceline.sweeper")

_RUNS_AT_ONCE = 500
_MENDED_AT_ONCE = 32
_ASIDE_SECONDS = 900.0
"""How long a run is left alone that cannot be read or mended here."""
_BROKER = "broker"
_OWNERLESS = Incarnation("")
_SOONEST_LOOK_SECONDS = 0.05
_SWEEP_EVERY = 0.5
"""Of `sweep_seconds`, by whose end what was found is to have begun again: finding it may take half of them."""
_LOCK = 0.4
"""Less than the pause between two sweeps of one worker, which it must never outlast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeper:
    """Lives on the process's loop. `empty_queues` asks the broker, and blocks."""

    desk: Desk
    empty_queues: Callable[[], frozenset[Queue]]

    async def sweep_forever(self) -> None:
        """Sweep until cancelled. While the record is away there is nothing to sweep."""
        while True:
            try:
                await self.sweep()
            except InfrastructureError as error:
                log.warning("no sweep: %s", error)
            except Exception:
                log.exception("a sweep failed; the next one goes on")
            await asyncio.sleep(_SWEEP_EVERY * self.desk.settings.sweep_seconds)

    async def sweep(self) -> None:
        """One sweep, if no other worker sweeps or has just done so, and the record has heard this one all the while."""
        if not self.desk.pulse.is_steady(asyncio.get_running_loop().time()):
            return
        while await self._may_sweep() and await self._sweep_some() == _RUNS_AT_ONCE:
            pass

    async def _may_sweep(self) -> bool:
        seconds = _LOCK * self.desk.settings.sweep_seconds
        return await self.desk.store.may_sweep(self.desk.incarnation, seconds=seconds)

    async def _sweep_some(self) -> int:
        """How many were due. Some of them are left to whoever sweeps by now, if this took too long."""
        due = await self.desk.store.due(limit=_RUNS_AT_ONCE)
        found = await self.desk.store.examine(due) if due else []
        nowhere = [run_id for run_id, examined in zip(due, found, strict=True) if examined is None]
        if nowhere:
            await self.desk.store.look_in(nowhere, seconds=_ASIDE_SECONDS)
        if due:
            await self._mend_all([examined for examined in found if examined])
        return len(due)

    async def _mend_all(self, examined: Sequence[Examined]) -> None:
        runs = [found.run for found in examined]
        await self.desk.store.keep({tag_of(run.run_id) for run in runs}, {run.agent for run in runs})
        view = await self._view(examined)
        for at in range(0, len(examined), _MENDED_AT_ONCE):
            if at and not await self._may_sweep():
                return
            mended = await asyncio.gather(*(self._mended(it, view) for it in examined[at : at + _MENDED_AT_ONCE]))
            await self.desk.send([message for messages in mended for message in messages])

    async def _mended(self, examined: Examined, view: View) -> Sequence[Message]:
        """What is to be sent for this run. A run that cannot be mended is in the way of no other."""
        run_id = examined.run.run_id
        try:
            return await self._mend(examined, view)
        except InfrastructureError as error:
            log.warning("run %s is not mended yet: %s", run_id, error)
        except Exception:
            log.exception("run %s cannot be mended; it is looked at again in %d s", run_id, _ASIDE_SECONDS)
            await self.desk.store.look_in([run_id], seconds=_ASIDE_SECONDS)
        return ()

    async def _view(self, examined: Sequence[Examined]) -> View:
        settings = self.desk.settings
        owners = {Incarnation(owner) for found in examined for owner in _owners(found)} - {_OWNERLESS}
        now_ms = await self.desk.store.now_ms()
        return View(
            now_ms=now_ms,
            alive_ms=await self.desk.store.alive_ms(sorted(owners)) if owners else {},
            delivered_ms=await self._delivered_ms(now_ms),
            empty=await self._empty(),
            claim_seconds=settings.claim_seconds,
            poison_after=settings.poison_after,
        )

    async def _empty(self) -> frozenset[Queue]:
        """Queues that are known to be empty: none while the broker is away, and there is much to mend without it."""
        problems = self.desk.in_flight.problems
        try:
            empty = await asyncio.to_thread(self.empty_queues)
        except Exception as error:  # of any kind that a broker's client has
            if problems.note(_BROKER, f"the broker cannot be asked what waits in it: {type(error).__name__}"):
                log.warning("the broker cannot say which queues are empty", exc_info=True)
            return frozenset()
        problems.solve(_BROKER)
        return empty

    async def _delivered_ms(self, now_ms: int) -> dict[Queue, int]:
        newest: dict[Queue, int] = {}
        for report in await self.desk.store.workers():
            for queue in (queue for queue in Queue if queue in report.delivered_ms):  # a newer worker may have others
                moment = believed_ms(report.delivered_ms[queue], now_ms) or 0
                newest[queue] = max(moment, newest.get(queue, 0))
        return newest

    async def _mend(self, examined: Examined, view: View) -> Sequence[Message]:
        remedy = await self._remedy(examined, view)
        if not isinstance(remedy, LookAgain | LetGo):
            run = examined.run
            log.info("run %s is mended: %s", run.run_id, type(remedy).__name__, extra=of_attempt(run))
        return await self._carry_out(examined, remedy, view)

    async def _remedy(self, examined: Examined, view: View) -> Repair:
        try:
            return repair(await self.desk.agent(examined.run.agent), examined, view)
        except NewerVersion:
            return LookAgain(seconds=view.claim_seconds)  # a worker of that version will know what to do
        except Bug as bug:
            return EndRun(outcome=Outcome(reason=StopReason.INTERNAL_ERROR, message=str(bug)))

    async def _carry_out(self, examined: Examined, remedy: Repair, view: View) -> Sequence[Message]:
        run, held = examined.run, TurnClaim.of(examined.run)
        match remedy:
            case LookAgain(seconds=seconds):
                await self.desk.store.look_again(held, seconds=max(seconds, _SOONEST_LOOK_SECONDS))
                return ()
            case SendTurn():
                message = TurnMessage(run_id=run.run_id, turn=run.turn, queue=queue_of_turn(run))
                return await self._send_again(run, message, view.claim_seconds)
            case SendJoin():
                return await self._send_again(run, JoinMessage(run_id=run.run_id, turn=run.turn), view.claim_seconds)
            case RecoverTurn():
                return await self._recover_turn(held, remedy)
            case MendCalls():
                return await self._mend_calls(run, await self.desk.agent(run.agent), remedy)
            case EndRun(outcome=outcome):
                await self._end(held, run, outcome)
                return ()
            case LetGo():
                await self.desk.store.let_go(run.run_id)
                return ()
            case _:
                assert_never(remedy)

    async def _end(self, held: TurnClaim, run: Run, outcome: Outcome) -> None:
        lost = await self._lost(run) if run.owner else TurnWrite()
        ended = Ended(turn=run.turn, at_ms=now_ms(), reason=outcome.reason, message=outcome.message)
        lost = _with_recovery(run, Recovery.END, lost)
        await release_budget(self.desk, run, lost)
        written = await self.desk.store.finish(held, replace(lost, ledger=(*lost.ledger, ended)), outcome)
        if written is Written.WRITTEN:
            log_end(run.run_id, run.turn, outcome)

    async def _send_again(self, run: Run, message: Message, seconds: float) -> Sequence[Message]:
        """The message, unless somebody else has sent it since the run was examined."""
        written = await self.desk.store.send_again(TurnClaim.of(run), seconds=seconds, sent_ms=run.sent_ms)
        return (message,) if written is Written.WRITTEN else ()

    async def _recover_turn(self, held: TurnClaim, remedy: RecoverTurn) -> Sequence[Message]:
        write = _with_recovery(remedy.run, Recovery.TURN, await self._lost(remedy.run))
        await release_budget(self.desk, remedy.run, write)
        written = await self.desk.store.recover(held, write)
        return (TurnMessage(run_id=held.run_id, turn=held.turn),) if written is Written.WRITTEN else ()

    async def _lost(self, run: Run) -> TurnWrite:
        """What there is to write of an attempt whose worker is gone: if it was at a model call, that may be billed."""
        at_worst = await self._at_worst(run) if run.state is State.IN_TURN else None
        return lost_attempt(run, run.owner, at_worst, began_ms=self._began_ms(run))

    def _began_ms(self, run: Run) -> int:
        """When the attempt under way began, as far as that is known."""
        # A claim's end is as far from its beginning as the longest claim is.
        longest_ms = round((self.desk.settings.model_seconds + CLAIM_MARGIN_SECONDS) * 1000)
        return max(run.sent_ms, run.claim_until_ms - longest_ms)

    async def _at_worst(self, run: Run) -> WorstCase | None:
        """What the model call of this turn may have used; None if the record has lost what it is reckoned from."""
        try:
            agent = await self.desk.agent(run.agent)
        except Bug:
            return None
        return next_call(agent, run, await self.desk.store.transcript(run.run_id)).at_worst

    async def _mend_calls(self, run: Run, agent: Agent, remedy: MendCalls) -> Sequence[Message]:
        held = TurnClaim.of(run)
        for state in remedy.recover:
            await self.desk.store.recover_call(_held_call(held, state), lost=True)
        messages: list[Message] = []
        for state in remedy.in_doubt:
            ran = await put_in_doubt(
                self.desk, agent, _held_call(held, state), state.call, _lost_try(state), why="its worker was lost"
            )
            messages += ran.messages
            if ran.is_last:
                return (JoinMessage(run_id=held.run_id, turn=held.turn),)
        look_seconds = max(remedy.look_seconds, _SOONEST_LOOK_SECONDS)
        if remedy.send:
            chord = ChordMessage(run_id=run.run_id, turn=run.turn, calls=remedy.send)
            return [*messages, *await self._send_again(run, chord, look_seconds)]
        if messages:
            await self.desk.store.send_again(held, seconds=look_seconds, sent_ms=run.sent_ms)
        else:
            await self.desk.store.look_again(held, seconds=look_seconds)
        return messages


def _with_recovery(run: Run, what: Recovery, write: TurnWrite) -> TurnWrite:
    return replace(write, counts=counted.added(counted.unanswered(run, write.ledger), counted.recovered(what)))


def _owners(examined: Examined) -> list[str]:
    return [examined.run.owner, *(state.owner for state in examined.calls)]


def _held_call(held: TurnClaim, state: CallState) -> CallClaim:
    return CallClaim(run_id=held.run_id, turn=held.turn, call_id=state.call.call_id, attempt=state.attempt)


def _lost_try(state: CallState) -> LostTry:
    """The try that may have taken effect: the last one, unless that was a question to the tool about an earlier one."""
    if state.doubt:
        doubt = state.doubt
        return LostTry(worker=doubt.worker, began_ms=doubt.began_ms, was_reconciled=True, worker_is_gone=True)
    return LostTry(worker=state.owner, began_ms=state.began_ms, worker_is_gone=True)
