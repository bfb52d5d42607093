"""Rows become runs: first the record, then the messages. A crash between the two leaves runs that the workers find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from paceline.core.errors import InfrastructureError, RowError
from paceline.core.ids import BatchName, RunId, run_id
from paceline.store.loop_thread import LoopThread
from paceline.store.port import BatchInfo, NewRun, RunStore, Submitted

from .publish import Publisher
from .rows import Row

CHUNK = 500
"""Runs of one round trip: enough to hide its price, few enough to keep the server answering others."""

_SHOWN = 20
_TRIES_IN_A_ROW = 3
"""A broker that took none of so many chunks is left alone: each further try could take the time of a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What became of the rows: new runs, rows that were there already, and ids that are taken by other rows."""

    created: int = 0
    existed: int = 0
    conflicts: int = 0
    conflicting: tuple[str, ...] = ()
    """The ids of the first few conflicts."""
    unannounced: str = ""
    """Why runs, which are on record, were not announced, if so: the first error. The workers find them by sweeping."""

    @property
    def rows(self) -> int:
        return self.created + self.existed + self.conflicts

    def plus(self, rows: Sequence[Row], answers: Sequence[Submitted]) -> Submission:
        """With the answers for these rows."""
        taken = [row.row_id for row, answer in zip(rows, answers, strict=True) if answer is Submitted.CONFLICT]
        return replace(
            self,
            created=self.created + answers.count(Submitted.CREATED),
            existed=self.existed + answers.count(Submitted.EXISTS),
            conflicts=self.conflicts + len(taken),
            conflicting=(*self.conflicting, *taken)[:_SHOWN],
        )


def submit_rows(
    loop: LoopThread, store: RunStore, publisher: Publisher, batch: BatchInfo, rows: Iterable[Row]
) -> Submission:
    """Submit all rows of an open batch. Submitting them again adds what is missing and changes nothing else.

    A broker that takes no messages is no failure: `unannounced` of the answer tells of it.
    Raises RowError, after all other rows are submitted, for ids that an earlier submission used for other content.
    """
    submission, announcer = Submission(), _Announcer(publisher)
    for chunk in _chunks(rows):
        new = [_new_run(batch.name, row) for row in chunk]
        answers = loop.run(store.submit(batch, new))
        announcer.announce(
            [run.run_id for run, answer in zip(new, answers, strict=True) if answer is Submitted.CREATED]
        )
        submission = submission.plus(chunk, answers)
    if submission.conflicts:
        raise RowError(_conflict(batch.name, submission))
    return replace(submission, unannounced=announcer.first_error)


class _Announcer:
    """Announces runs as long as the broker takes messages: they are hints, and the record is what counts."""

    def __init__(self, publisher: Publisher) -> None:
        self.first_error = ""
        self._publisher = publisher
        self._failures = 0

    def announce(self, run_ids: Sequence[RunId]) -> None:
        if not run_ids or self._failures == _TRIES_IN_A_ROW:
            return
        try:
            self._publisher.publish_turns(run_ids)
            self._failures = 0
        except InfrastructureError as error:
            self._failures += 1
            self.first_error = self.first_error or str(error)


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    iterator = iter(rows)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def _new_run(batch: BatchName, row: Row) -> NewRun:
    return NewRun(
        run_id=run_id(batch, row.row_id), row_id=row.row_id, index=row.index, digest=row.digest, first=row.first
    )


def _conflict(batch: BatchName, submission: Submission) -> str:
    names = ", ".join(repr(row_id) for row_id in submission.conflicting)
    more = "" if submission.conflicts <= _SHOWN else f" and {submission.conflicts - _SHOWN} more"
    return (
        f"batch {batch!r} has other content under the same id for {names}{more}: these rows stay as they were, the "
        f"{submission.rows - submission.conflicts} other ones are submitted; give the changed rows other ids, or "
        "submit under another batch name"
    )
