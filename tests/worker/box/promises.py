"""What must be true of a run that is over, whatever happened on its way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from paceline.core import metrics
from paceline.core.compaction import sent_fragments
from paceline.core.errors import InfrastructureError
from paceline.core.ledger import AttemptLost, Compacted, Ended, ModelCalled, PossiblyBilled, Redriven
from paceline.core.metrics import Metric
from paceline.core.transcript import check_whole
from paceline.core.usage import Usage

from .box import Over
from .worker import SETTINGS

ACTIVE, HELD = f"{metrics.ACTIVE_RUNS.name}|", f"{metrics.HOLDS.name}|"
REPAIR_SECONDS = SETTINGS.claim_seconds + 2 * SETTINGS.sweep_seconds
"""A claim and a sweep, and what is left of a sweep that another worker has just made."""


def check_promises(over: Over) -> None:
    """Raises AssertionError where one is broken."""
    _transcript_is_sendable(over)
    _history_was_never_rewritten(over)
    _nothing_ran_twice(over)
    _every_model_call_is_accounted_for(over)
    _totals_add_up(over)
    _the_metrics_say_the_same(over)
    _it_ended_once(over)
    assert over.due_later == (), "somebody would still look at a run that is over"
    assert all(isinstance(error, InfrastructureError) for error in over.raised), over.raised


def _transcript_is_sendable(over: Over) -> None:
    check_whole(over.transcript)


def _history_was_never_rewritten(over: Over) -> None:
    """All that is sent is as it is stored, but for results that a compaction on record has cleared."""
    cleared = (0, *(entry.cleared for entry in over.ledger if isinstance(entry, Compacted)))
    views = [
        [_unmarked(json.loads(fragment)) for fragment in sent_fragments(over.agent, over.transcript, until)]
        for until in cleared
    ]
    for request in over.requests:
        messages = list(map(_unmarked, request.messages))
        assert messages in [view[: len(messages)] for view in views]


def _unmarked(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """But for the cache breakpoints that are set in what is sent."""
    blocks = [
        {name: member for name, member in block.items() if name != "cache_control"} for block in message["content"]
    ]
    return {**message, "content": blocks}


def _nothing_ran_twice(over: Over) -> None:
    assert max(Counter(over.charges).values(), default=0) <= 1, "a `once` tool ran twice for one call"


def _every_model_call_is_accounted_for(over: Over) -> None:
    answered = sum(isinstance(entry, ModelCalled) for entry in over.ledger)
    possibly_billed = sum(isinstance(entry, AttemptLost) for entry in over.ledger)
    assert over.record.run.lost_attempts == possibly_billed
    assert len(over.requests) - answered - over.failed_calls <= possibly_billed


def _totals_add_up(over: Over) -> None:
    answered = [entry for entry in over.ledger if isinstance(entry, ModelCalled)]
    spent = over.record.run.spent
    assert spent.usage == sum((entry.usage for entry in answered), Usage())
    assert spent.cost_nanousd == sum(entry.cost_nanousd or 0 for entry in answered)
    unanswered = [entry for entry in over.ledger if isinstance(entry, PossiblyBilled)]
    assert spent.possibly_billed_tokens == sum(entry.tokens for entry in unanswered)
    assert spent.possibly_billed_nanousd == sum(entry.cost_nanousd or 0 for entry in unanswered)
    assert (over.counts.spent, over.counts.turns) == (spent, len(answered))
    assert {state: runs for state, runs in over.counts.states.items() if runs} == {over.record.run.state: 1}
    assert over.counts.reasons == {over.record.reason: 1}


def _the_metrics_say_the_same(over: Over) -> None:
    answered = sum(isinstance(entry, ModelCalled) for entry in over.ledger)
    spent = over.record.run.spent
    assert _counted(over, metrics.RUNS) == _lives(over)
    assert not any(by for name, by in over.metrics.items() if name.startswith((ACTIVE, HELD)))
    assert _counted(over, metrics.INPUT_TOKENS) == spent.usage.all_input
    assert _counted(over, metrics.OUTPUT_TOKENS) == spent.usage.output
    assert _counted(over, metrics.COST) == spent.cost_nanousd
    unanswered = sum(isinstance(entry, PossiblyBilled) for entry in over.ledger)
    assert _counted(over, metrics.POSSIBLY_BILLED_TWICE) == unanswered
    if _lives(over) == 1:  # each end counts all that was used until then
        assert _counted(over, metrics.RUN_TURNS, metrics.SUM) == answered
        assert _counted(over, metrics.RUN_TOOL_CALLS, metrics.SUM) == spent.tool_calls


def _counted(over: Over, metric: Metric, part: str = "") -> int:
    """What was counted of a metric, over all its labels."""
    found = [(metrics.read_field(name), by) for name, by in over.metrics.items()]
    return sum(by for field, by in found if field and (field.metric, field.part) == (metric, part))


def _it_ended_once(over: Over) -> None:
    assert sum(isinstance(entry, Ended) for entry in over.ledger) <= _lives(over)
    assert (over.record.answer is not None) == (over.record.reason in ("final_answer", "finish_tool"))


def _lives(over: Over) -> int:
    return 1 + sum(isinstance(entry, Redriven) for entry in over.ledger)
