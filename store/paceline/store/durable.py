"""The record where what could not be made good later is confirmed, by a disk or by a replica, before it counts.

A confirmation is asked for on a connection that has just read the write back and then written something itself: a
server waits for what *this* connection wrote, and if that was nothing it answers at once, whatever is missing. Reading
back tells a failover between the write and the question: what the new primary does not have is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from paceline.core.errors import InfrastructureError
from paceline.core.ids import AgentDigest, CallId, RunId, batch_tag
from paceline.core.tool_spec import Effect

from .border import border
from .durability import ACKNOWLEDGEMENTS, Durability
from .port import BatchInfo, CallBegun, ClaimRequest, NewRun, NotBegun, Submitted
from .primaries import Command, by_primary, on_one_connection
from .record import RedisRunStore

_UNBLOCKED = "UNBLOCKED"


class DurableRunStore(RedisRunStore):
    """A RedisRunStore that confirms submissions, intents of calls with an effect, and what is reported."""

    def __init__(self, redis: Redis, *, durability: Durability, **rest: Any) -> None:
        super().__init__(redis, **rest)
        self.durability = durability
        self._acknowledgement = ACKNOWLEDGEMENTS[durability]

    async def put_agent(self, digest: AgentDigest, frozen: bytes) -> None:
        await super().put_agent(digest, frozen)
        await self._confirm_kept(self.keys.agent(digest))

    async def open_batch(self, batch: BatchInfo) -> BatchInfo:
        found = await super().open_batch(batch)
        await self._confirm_kept(self.keys.batch(batch_tag(batch.name)))
        return found

    async def submit(self, batch: BatchInfo, runs: Sequence[NewRun]) -> list[Submitted]:
        answers = await super().submit(batch, runs)
        if runs:
            await self._confirm_kept(self.keys.rows(batch_tag(batch.name)))
            with border():
                groups = await by_primary(self.redis, [self.keys.run(run.run_id) for run in runs])
            for keys in groups:
                _require(all(await self._ask([*(("EXISTS", key) for key in keys), self._mark(keys[0])], keys[0])))
        return answers

    async def begin_call(self, run_id: RunId, turn: int, call_id: CallId, claim: ClaimRequest) -> CallBegun | NotBegun:
        begun = await super().begin_call(run_id, turn, call_id, claim)
        if isinstance(begun, CallBegun) and begun.call.effect is not Effect.READS:
            # What came before is confirmed with it: the message that asks for the call is in the same server's stream.
            calls = self.keys.calls(run_id)
            stored, _ = await self._ask([("HGET", calls, f"{call_id}:claim"), self._mark(calls)], calls)
            _require(claim.nonce.encode() in (stored or b""))
        return begun

    async def settle(self) -> None:
        with border():
            groups = await by_primary(self.redis, self.keys.due())
        for first, *_ in groups:
            await self._ask([self._mark(first)], first)

    async def _confirm_kept(self, key: str) -> None:
        # Its time to live is set again: a write, and 1 only if the key is there.
        _require(all(await self._ask([("EXPIRE", key, self._retention_s)], key)))

    def _mark(self, beside: str) -> Command:
        return ("SET", self.keys.mark(beside), 1, "EX", self._retention_s)

    async def _ask(self, commands: Sequence[Command], key: str) -> list[Any]:
        """The replies to these commands, the last of them a write, once it is confirmed. Raises InfrastructureError."""
        asked = [*commands, self._acknowledgement.command]
        with border():
            try:
                *replies, answer = await on_one_connection(self.redis, key, asked)
            except ResponseError as error:
                if _UNBLOCKED not in str(error):
                    raise
                # The server ceased to be the primary while it waited: whichever is it now says what it has.
                *replies, answer = await on_one_connection(self.redis, key, asked)
        self._acknowledgement.check(answer)
        return replies


def _require(is_there: bool) -> None:
    if not is_there:
        raise InfrastructureError(
            "the record lost a write just after it had taken it: another server took its place, or it started again"
        )
