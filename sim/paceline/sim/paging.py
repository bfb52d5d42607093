"""Lists that come in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.sim.rules import Refusal, Rule, refuse

MOST = 1000
USUAL = 20


def page(rows: Sequence[Mapping[str, Any]], query: Mapping[str, str]) -> dict[str, Any] | Refusal:
    """The page of `rows` that a query asks for by `limit`, `after_id` and `before_id`."""
    limit = _limit(query.get("limit", str(USUAL)))
    if isinstance(limit, Refusal):
        return limit
    ids = [row["id"] for row in rows]
    if "before_id" in query:
        before = rows[: _index(ids, query["before_id"], 0)]
        return _written(before[-limit:], has_more=len(before) > limit)
    after = rows[_index(ids, query["after_id"], len(ids)) + 1 :] if "after_id" in query else rows
    return _written(after[:limit], has_more=len(after) > limit)


def _limit(written: str) -> int | Refusal:
    if not written.lstrip("-").isdigit():
        return refuse(Rule.WRONG_TYPE, "limit", expected="a valid integer")
    limit = int(written)
    if limit > MOST:
        return refuse(Rule.WRONG_TYPE, "limit", expected=f"less than or equal to {MOST}")
    return limit if limit >= 1 else refuse(Rule.WRONG_TYPE, "limit", expected="greater than or equal to 1")


def _index(ids: Sequence[str], wanted: str, unknown: int) -> int:
    return ids.index(wanted) if wanted in ids else unknown


def _written(rows: Sequence[Mapping[str, Any]], *, has_more: bool) -> dict[str, Any]:
    return {
        "data": list(rows),
        "has_more": has_more,
        "first_id": rows[0]["id"] if rows else None,
        "last_id": rows[-1]["id"] if rows else None,
    }
