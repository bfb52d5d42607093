"""Names of things: what a run, a call and a batch are called, and how a name is derived.

A run's id is derived from its batch and its row, so submitting the same rows again names the same runs. Its first part
names the batch, so a worker that knows only a run's id finds the batch's counters.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from typing import NewType

RunId = NewType("RunId", str)
"""`<batch tag>-<row tag>`; see `run_id`."""

CallId = NewType("CallId", str)
"""The id of a `tool_use` block, as the model wrote it."""

BatchName = NewType("BatchName", str)
"""What people call a batch; unique in the fleet."""

BatchTag = NewType("BatchTag", str)
"""A short digest of a batch's name."""

AgentDigest = NewType("AgentDigest", str)
"""A digest of a frozen agent's bytes: equal digests are equal definitions."""

Incarnation = NewType("Incarnation", str)
"""One life of one worker process."""

OTHER_AGENTS = "other"
"""Under this the runs of agents are counted that have no series of their own."""

SHARDS = 64
"""Runs are spread over this many hash slots. Part of the wire format: it cannot change for a living record."""


def _digest(text: str, *, characters: int) -> str:
    raw = hashlib.blake2b(text.encode(), digest_size=characters * 5 // 8).digest()
    return base64.b32encode(raw).decode().lower()[:characters]


def batch_tag(batch: BatchName) -> BatchTag:
    """The short name of a batch: 8 characters, 40 bits."""
    return BatchTag(_digest(batch, characters=8))


def run_id(batch: BatchName, row_id: str) -> RunId:
    """The one id of the run of this row in this batch."""
    row_in_batch = f"{batch}\n{row_id}"
    return RunId(f"{batch_tag(batch)}-{_digest(row_in_batch, characters=16)}")


def tag_of(run: RunId) -> BatchTag:
    """The tag of the batch that a run belongs to."""
    return BatchTag(run.partition("-")[0])


def shard_of(run: RunId) -> int:
    """The shard that holds everything of one run: 0 to SHARDS - 1."""
    return zlib.crc32(run.encode()) % SHARDS


def agent_digest(frozen: bytes) -> AgentDigest:
    """The name of a frozen agent."""
    return AgentDigest(hashlib.blake2b(frozen, digest_size=10).hexdigest())


def trace_id(run: RunId) -> str:
    """The trace of a run, 32 hex digits: derived, so that every process knows it before anything is stored."""
    return hashlib.blake2b(run.encode(), digest_size=16, person=b"paceline-trace").hexdigest()


def idempotency_key(run: RunId, turn: int, call: CallId) -> str:
    """The key that a tool hands to the outside: the same on every try of one call."""
    return hashlib.blake2b(f"{run}\n{turn}\n{call}".encode(), digest_size=16).hexdigest()
