"""Messages whose results are cleared, as this process has made them of late: each is read once, not in every turn."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from paceline.core.agent import Agent
from paceline.core.compaction import sent_fragments
from paceline.core.ids import RunId
from paceline.core.run import Run
from paceline.core.transcript import Fragment

MOST_BYTES = 64 * 2**20

_Name = tuple[RunId, int, int]
"""A run, when it was submitted, and how far it is cleared: a row that comes again after its run was forgotten is the
same run by name, and another by what was said."""


class ClearedViews:
    """The latest views, in so many bytes. They follow from the record alone, so any process can make each again."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: OrderedDict[_Name, Sequence[Fragment]] = OrderedDict()

    def sent(self, agent: Agent, run: Run, fragments: Sequence[Fragment]) -> Sequence[Fragment]:
        """The messages of a run as they are sent: see `core.compaction.sent_fragments`."""
        if not run.cleared:
            return fragments
        name = (run.run_id, run.submitted_ms, run.cleared)
        if name not in self._known:
            self._keep(name, sent_fragments(agent, fragments[: run.cleared], run.cleared))
        self._known.move_to_end(name)
        view = [*self._known[name], *fragments[run.cleared :]]
        self._forget()
        return view

    def _keep(self, name: _Name, view: Sequence[Fragment]) -> None:
        self._known[name] = view
        self._bytes += sum(map(len, view))

    def _forget(self) -> None:
        while self._bytes > self._most_bytes:
            _, view = self._known.popitem(last=False)
            self._bytes -= sum(map(len, view))
