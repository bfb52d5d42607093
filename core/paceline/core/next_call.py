"""The next call of a run, before it is made: how long its answer may be, and the most that it can use.

A function of the run's record alone, so whoever finds an attempt lost reckons the same for it as whoever began it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .agent import Agent
from .compaction import Compaction, compaction_due, sent_fragments
from .prices import worst_case
from .run import Run
from .transcript import Fragment, is_models, since_compaction, weight
from .usage import WorstCase

_CHARS_PER_TOKEN = 3
"""On the low side for today's tokenizers (facts 8), so that an estimate of tokens errs upwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextCall:
    """A call that is to be made, or was. `at_worst` takes every token of its input for one that is written to the
    cache, and its answer to be as long as it may."""

    max_tokens: int
    at_worst: WorstCase
    compaction: Compaction | None = None
    """What is cleared before it is made."""


def next_call(agent: Agent, run: Run, fragments: Sequence[Fragment]) -> NextCall:
    """The call that a run with this transcript makes next."""
    max_tokens = run.streaks.max_tokens or agent.max_tokens
    known = run.context_tokens + _new_bytes(agent, run, fragments) // _CHARS_PER_TOKEN
    compaction = compaction_due(agent, run, fragments, tokens=known, max_tokens=max_tokens)
    input_tokens = compaction.tokens_after if compaction else known
    at_worst = worst_case(agent.priced_by, input_tokens=input_tokens, output_tokens=max_tokens)
    return NextCall(max_tokens=max_tokens, at_worst=at_worst, compaction=compaction)


def _new_bytes(agent: Agent, run: Run, fragments: Sequence[Fragment]) -> int:
    """What is sent for the first time, in bytes: all of it before the first answer, or after a summary of the API's."""
    if not run.context_tokens:
        sent = since_compaction(sent_fragments(agent, fragments, run.cleared))
        return len(agent.head) + sum(map(weight, sent))
    at = len(fragments)
    while at and not is_models(fragments[at - 1]):
        at -= 1
    return sum(map(weight, fragments[at:]))
