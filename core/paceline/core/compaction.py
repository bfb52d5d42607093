"""Compaction: old tool results are cleared from what is sent, so that a long conversation gets on within its window.

What is stored is never touched. The run's record says how far results are cleared, and what is sent is a function of
the transcript and of that number alone: the same bytes on every worker and in every turn, until the next compaction.
Only the content of results is replaced, by a note that says how to get it back: no call loses its result, no message
its place, and no answer of the model a byte.

Clearing changes what the prompt cache holds, from the first cleared result on. Whether it pays is arithmetic. Take a
model of $1 a million tokens in, $1.25 to write to the cache and $0.10 to read from it, and 130,000 tokens of which
100,000 can be cleared behind a prefix of 2,000 that stays cached: what is left behind it, 28,000, is written anew.

>>> from paceline.core.usage import NANO_USD
>>> prices = given_prices(Decimal(1), Decimal(5))
>>> worth = weigh(before=130_000, after=30_000, rewritten=28_000, turns=30, prices=prices)
>>> worth.saved_nanousd / NANO_USD, worth.rewrite_nanousd / NANO_USD, worth.pays
(0.3, 0.035, True)

With three turns to go the cache would cost more than is saved:

>>> worth = weigh(before=130_000, after=30_000, rewritten=28_000, turns=3, prices=prices)
>>> worth.saved_nanousd / NANO_USD, worth.rewrite_nanousd / NANO_USD, worth.pays
(0.03, 0.035, False)

A run goes on, as far as anybody can tell, for as many turns as it has taken, if its limit lets it:

>>> expected_turns(turn=31, limit=None), expected_turns(turn=31, limit=40), expected_turns(turn=1, limit=25)
(30, 10, 1)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import accumulate
from typing import Any

from .agent import Agent
from .models import context_window_tokens
from .prices import Prices, call_nanousd, given_prices
from .request_fields import CLEAR_TOOL_USES
from .run import Overflow, Run
from .tool_spec import READ_RESULT
from .transcript import Fragment, dump, is_users, weight
from .usage import Usage

KEPT_RESULTS = 3
"""The latest results, which stay as they are; so do all results that the model has not seen yet."""
_LEAST_CLEARED = 0.1
"""Of the tokens at which compaction begins. Each edit is dear: it must make room for a good while."""
_MOST_BYTES_PER_TOKEN = 4
"""On the high side, so that an estimate of what is cleared errs downwards, and one of what is left upwards."""

_USUAL = given_prices(Decimal(1), Decimal(5))
"""Stands for a price that is not known, where only the ratios count."""

_RESULT = b'"tool_result"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Both sides of a compaction, in nano-dollars. None: the price is not known."""

    saved_nanousd: int | None
    """Reading what is cleared from the cache, in each turn that is expected."""
    rewrite_nanousd: int | None
    """Writing to the cache again, once, what stands behind the first result that is cleared."""
    pays: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """A compaction that is due. Its tokens are estimates, which the next answer's usage corrects."""

    cleared: int
    """Fragments before this one are sent with their results cleared."""
    results: int
    """How many are cleared that were not before."""
    tokens_before: int
    """What the next call would have sent."""
    tokens_after: int
    expected_turns: int
    worth: Worth

    @property
    def cleared_tokens(self) -> int:
        return self.tokens_before - self.tokens_after


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clearing:
    """What can be cleared. Bytes are weighed: see `transcript.weight`."""

    upto: int
    results: int
    cleared_bytes: int
    kept_bytes: int
    """Before the first result that would be cleared."""
    sent_bytes: int
    """In all, as it is now."""


def may_clear(agent: Agent) -> bool:
    """Whether results may be cleared here. Not where the API edits the context, nor where the model's thinking is bound
    to all that stands before it: the API would refuse the request."""
    return agent.compact_at is not None and agent.passed_through.bears_edits(agent.model)


def cleared_by_api(agent: Agent) -> Agent:
    """The agent, with its `compact_at` left to the API: it clears old results itself, and nothing is edited here.

    Its edit is `clear_tool_uses_20250919` (Anthropic's page on context editing). It keeps as many results and clears as
    much at a time as a compaction here would.
    """
    at_tokens = _begins_at(agent)
    edit = {
        "type": CLEAR_TOOL_USES,
        "trigger": {"type": "input_tokens", "value": at_tokens},
        "keep": {"type": "tool_uses", "value": KEPT_RESULTS},
        "clear_at_least": {"type": "input_tokens", "value": int(_LEAST_CLEARED * at_tokens)},
    }
    return replace(agent, passed_through=agent.passed_through.with_edit(edit))


def compaction_due(
    agent: Agent, run: Run, fragments: Sequence[Fragment], *, tokens: int, max_tokens: int
) -> Compaction | None:
    """The compaction before the next call, which would send so many `tokens`; None where none is due.

    It is due past the agent's `compact_at`, if it clears enough and pays; and whatever it costs where the call would
    not fit the model's window without it, or did not, as the API has said.
    """
    window = context_window_tokens(agent.model)
    begins_at = _begins_at(agent)
    must = run.streaks.overflow is Overflow.TOLD or tokens + max_tokens > window
    if not may_clear(agent) or not (must or tokens > begins_at):
        return None
    least = 0 if must else int(_LEAST_CLEARED * begins_at)
    clearing = _clearing(agent, fragments, run.cleared, least)
    if clearing is None:
        return None
    compaction = _weighed(agent, run, clearing, tokens)
    return compaction if must or (compaction.cleared_tokens >= least and compaction.worth.pays) else None


def compacted(run: Run, compaction: Compaction) -> Run:
    """The run as it is with this compaction."""
    return replace(
        run,
        cleared=compaction.cleared,
        context_tokens=max(0, run.context_tokens - compaction.cleared_tokens),
        streaks=replace(run.streaks, overflow=Overflow.MADE_ROOM if run.streaks.overflow else Overflow.NONE),
    )


def _begins_at(agent: Agent) -> int:
    """Tokens. Where there is no `compact_at`, nothing is ever cleared."""
    return int((agent.compact_at or 0.0) * context_window_tokens(agent.model))


def expected_turns(*, turn: int, limit: int | None) -> int:
    """How many turns are to come, this one among them: as many as there were, but no more than the limit leaves."""
    been = max(1, turn - 1)
    return been if limit is None else max(1, min(been, limit - turn + 1))


def weigh(*, before: int, after: int, rewritten: int, turns: int, prices: Prices) -> Worth:
    """What a compaction saves and what it costs. It sends `after` tokens in place of `before` in each of so many turns,
    and writes `rewritten` of them to the cache anew."""
    saved, rewrite = _sides(before, after, rewritten, turns, prices)
    if saved is not None and rewrite is not None:
        return Worth(saved_nanousd=saved, rewrite_nanousd=rewrite, pays=saved > rewrite)
    usual_saved, usual_rewrite = _sides(before, after, rewritten, turns, _USUAL)
    return Worth(saved_nanousd=None, rewrite_nanousd=None, pays=(usual_saved or 0) > (usual_rewrite or 0))


def _sides(before: int, after: int, rewritten: int, turns: int, prices: Prices) -> tuple[int | None, int | None]:
    read_before, read_after = (call_nanousd(prices, Usage(cache_read=tokens)) for tokens in (before, after))
    rewrite = call_nanousd(prices, Usage(cache_write=rewritten))
    return (None if read_before is None or read_after is None else turns * (read_before - read_after)), rewrite


def _turns_to_come(agent: Agent, run: Run, tokens: int) -> int:
    """As many as are expected, but no more of so many tokens than `limits.tokens` leaves."""
    turns, most = expected_turns(turn=run.turn, limit=agent.limits.turns), agent.limits.tokens
    return turns if most is None else max(1, min(turns, (most - run.spent.tokens_at_most) // max(1, tokens)))


def _weighed(agent: Agent, run: Run, clearing: _Clearing, tokens: int) -> Compaction:
    by_ratio = tokens * clearing.cleared_bytes // clearing.sent_bytes
    after = tokens - min(by_ratio, clearing.cleared_bytes // _MOST_BYTES_PER_TOKEN)
    kept = tokens * clearing.kept_bytes // clearing.sent_bytes
    turns = _turns_to_come(agent, run, after)
    worth = weigh(before=tokens, after=after, rewritten=max(0, after - kept), turns=turns, prices=agent.priced_by)
    return Compaction(
        cleared=clearing.upto,
        results=clearing.results,
        tokens_before=tokens,
        tokens_after=after,
        expected_turns=turns,
        worth=worth,
    )


def _clearing(agent: Agent, fragments: Sequence[Fragment], cleared: int, least: int) -> _Clearing | None:
    upto = _first_kept(fragments)
    # Most of the turns in which nothing is to be won are told without reading a message.
    if sum(len(each) for each in fragments[cleared:upto] if _has_results(each)) <= least:
        return None
    now, then = (sent_fragments(agent, fragments, until) for until in (cleared, upto))
    changed = [at for at in range(cleared, upto) if now[at] is not then[at]]
    if not changed:
        return None
    sizes = list(accumulate(map(weight, now), initial=len(agent.head)))
    return _Clearing(
        upto=changed[-1] + 1,
        results=sum(_changed_results(now[at], then[at]) for at in changed),
        cleared_bytes=sizes[-1] - len(agent.head) - sum(map(weight, then)),
        kept_bytes=sizes[changed[0]],
        sent_bytes=sizes[-1],
    )


def _changed_results(now: Fragment, then: Fragment) -> int:
    return sum(before != after for before, after in zip(_results(now), _results(then), strict=True))


def _first_kept(fragments: Sequence[Fragment]) -> int:
    """The first of the messages whose results are kept."""
    at, kept = len(fragments) - 1, 0
    while at > 0 and (kept := kept + len(_results(fragments[at]))) < KEPT_RESULTS:
        at -= 1
    return max(at, 0)


def sent_fragments(agent: Agent, fragments: Sequence[Fragment], cleared: int) -> Sequence[Fragment]:
    """The messages as they are sent: those before number `cleared` without the content of their results."""
    if not cleared:
        return fragments
    readable = READ_RESULT in agent.tools_by_name
    return [*(clear_results(each, readable=readable) for each in fragments[:cleared]), *fragments[cleared:]]


def clear_results(fragment: Fragment, *, readable: bool) -> Fragment:
    """The message with a note in place of each result's content, where that is shorter; the same object where nothing
    is. `readable`: the model can read results again."""
    if not _has_results(fragment):
        return fragment
    message = json.loads(fragment)
    content = [_cleared(block, readable) for block in message["content"]]
    return fragment if content == message["content"] else Fragment(dump({**message, "content": content}))


def _cleared(block: dict[str, Any], readable: bool) -> dict[str, Any]:
    if block["type"] != "tool_result":
        return block
    how = f': {READ_RESULT}(call_id="{block["tool_use_id"]}") returns it' if readable else ""
    note = f"[This result was cleared to make room{how}.]"
    return {**block, "content": note} if len(dump(note)) < len(dump(block.get("content"))) else block


def _results(fragment: Fragment) -> list[Any]:
    if not _has_results(fragment):
        return []
    return [block for block in json.loads(fragment)["content"] if block["type"] == "tool_result"]


def _has_results(fragment: Fragment) -> bool:
    return is_users(fragment) and fragment.find(_RESULT) >= 0
