"""A further cache breakpoint for long turns.

What the last request wrote to the cache is found from a breakpoint at most 20 blocks behind it (Anthropic's page on
prompt caching). A turn of many parallel calls adds more, and the one breakpoint that moves with the conversation would
find nothing: so another is set where the last request ended. It is set in what is sent, never in what is stored; it
changes neither the cached prefix nor what signatures are bound to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from .transcript import is_models, is_users

MOST_BLOCKS = 15
"""Added by a turn, without a breakpoint of its own where the last request ended."""
MOST_BREAKPOINTS = 4
_OWN_BREAKPOINTS = 3
"""The head's, the moving one, and this."""

_COMPACTION = b'"compaction"'
_END = b"}]}"
_MARKER = b',"cache_control":{"type":"ephemeral"}'


def with_breakpoint(fragments: Sequence[bytes]) -> Sequence[bytes]:
    """These messages as they are to be sent: with a breakpoint where the last request ended, if it lies far back."""
    at = len(fragments) - 1
    while at > 0 and not is_models(fragments[at]):
        at -= 1
    added = fragments[at:]
    if at <= 0 or not _is_long(added) or _is_summed_up(added) or not _may_be_marked(fragments, at - 1):
        return fragments
    last = fragments[at - 1]
    return [*fragments[: at - 1], last[: -len(_END)] + _MARKER + _END, *fragments[at:]]


def _is_long(added: Sequence[bytes]) -> bool:
    # No block is without a type, so most turns are counted without being parsed.
    if sum(fragment.count(b'"type"') for fragment in added) <= MOST_BLOCKS:
        return False
    return sum(len(json.loads(fragment)["content"]) for fragment in added) > MOST_BLOCKS


def _is_summed_up(added: Sequence[bytes]) -> bool:
    # The API heeds nothing before its own summary: the last request has left nothing to find there.
    return any(fragment.find(_COMPACTION) >= 0 for fragment in added)


def _may_be_marked(fragments: Sequence[bytes], at: int) -> bool:
    # Rows may bring messages with breakpoints of their own.
    others = sum(fragment.count(b'"cache_control"') for fragment in fragments)
    is_free = is_users(fragments[at]) and fragments[at].endswith(_END)
    if not is_free or others > MOST_BREAKPOINTS - _OWN_BREAKPOINTS:
        return False
    return not others or "cache_control" not in json.loads(fragments[at])["content"][-1]
