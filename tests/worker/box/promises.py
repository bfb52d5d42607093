"""What must be true of a run that is over, whatever happened on its way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from paceline.core.errors import InfrastructureError
from paceline.core.ledger import AttemptLost, Ended, ModelCalled, PossiblyBilled, Redriven
from paceline.core.transcript import check_whole
from paceline.core.usage import Usage

from .box import Over
from .worker import SETTINGS

REPAIR_SECONDS = SETTINGS.claim_seconds + 2 * SETTINGS.sweep_seconds
"""A claim and a sweep, and what is left of a sweep that another worker has just made."""


def check_promises(over: Over) -> None:
    """Raises AssertionError where one is broken."""
    _transcript_is_sendable(over)
    _history_was_never_rewritten(over)
    _nothing_ran_twice(over)
    _every_model_call_is_accounted_for(over)
    _totals_add_up(over)
    _it_ended_once(over)
    assert over.due_later == (), "somebody would still look at a run that is over"
    assert all(isinstance(error, InfrastructureError) for error in over.raised), over.raised


def _transcript_is_sendable(over: Over) -> None:
    check_whole(over.transcript)


def _history_was_never_rewritten(over: Over) -> None:
    messages = [json.loads(fragment) for fragment in over.transcript]
    for request in over.requests:
        assert list(map(_unmarked, request.messages)) == list(map(_unmarked, messages[: len(request.messages)]))


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


def _it_ended_once(over: Over) -> None:
    lives = 1 + sum(isinstance(entry, Redriven) for entry in over.ledger)
    assert sum(isinstance(entry, Ended) for entry in over.ledger) <= lives
    assert (over.record.answer is not None) == (over.record.reason in ("final_answer", "finish_tool"))
