"""How a batch ended, in words: rows by stop reason, what to do about each, totals."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from paceline.core.endings import ENDINGS, StopReason
from paceline.core.lifecycle import Status
from paceline.store.port import BatchCounts

from .fleet import BatchStatus
from .progress import cache_share, count_text, counted, dollars, percent, possibly_billed
from .result import cost_usd

WHAT_TO_DO: Mapping[StopReason, str] = MappingProxyType(
    {
        StopReason.FINAL_ANSWER: "",
        StopReason.FINISH_TOOL: "",
        StopReason.MAX_TURNS: "raise limits.turns and submit as a new batch; what they went into: paceline show RUN",
        StopReason.TOKEN_BUDGET: "raise limits.tokens or shorten tool results, and submit as a new batch",
        StopReason.TIME_BUDGET: "raise limits.seconds or make slow tools faster, and submit as a new batch",
        StopReason.DEADLINE: "raise limits.deadline or add workers, and submit as a new batch",
        StopReason.COST_BUDGET: "raise limits.usd or take a cheaper model, and submit as a new batch",
        StopReason.BATCH_BUDGET: "submit the same again with a higher --budget",
        StopReason.REPEAT_CALLS: "see which call: paceline show RUN; declare a tool that polls `repeatable`",
        StopReason.TOOL_ERRORS: "see what the tools said: paceline show RUN",
        StopReason.OUTPUT_TRUNCATED: "ask for a shorter answer",
        StopReason.INVALID_OUTPUT: "see what did not fit the finish schema: paceline show RUN",
        StopReason.CONTEXT_WINDOW: "give the model shorter tool results",
        StopReason.REFUSAL: "see what the model refused: paceline show RUN",
        StopReason.MODEL_ERROR: "see what the API said: paceline show RUN",
        StopReason.UNKNOWN_EFFECT: "find out what the tool did: paceline show RUN",
        StopReason.DENIED: "see what was denied, and why: paceline show RUN",
        StopReason.POISON: "it took workers down (memory?): see the workers' logs",
        StopReason.INTERNAL_ERROR: "a fault of paceline's own: please report it",
        StopReason.CANCELLED: "",
    }
)


_WORTH_A_RETRY = frozenset(
    {
        StopReason.BATCH_BUDGET,
        StopReason.TOOL_ERRORS,
        StopReason.MODEL_ERROR,
        StopReason.UNKNOWN_EFFECT,
        StopReason.DENIED,
        StopReason.POISON,
        StopReason.INTERNAL_ERROR,
    }
)
"""What may be mended outside of the run: then it goes on from its last good state."""


def todo_for_batch(reason: StopReason, batch: str) -> str:
    """What to do about the runs of a batch that ended so."""
    retry = f"; once that is mended: paceline retry {batch}" if reason in _WORTH_A_RETRY else ""
    return f"{WHAT_TO_DO[reason]}{retry}"


def todo_for_run(reason: StopReason, run_id: str) -> str:
    """What to do about this one run, which the reader has before him."""
    return WHAT_TO_DO[reason].replace("paceline show RUN", f"paceline show {run_id} --transcript")


def report_rows(status: BatchStatus) -> list[tuple[str, str, int, str]]:
    """Ended how, why, how many, what to do: the most frequent first, successes before all."""
    reasons = sorted(status.counts.reasons.items(), key=lambda item: -item[1])
    rows = [(ENDINGS[reason].status, reason, count) for reason, count in ((StopReason(r), n) for r, n in reasons)]
    rows.sort(key=lambda row: row[0] is not Status.SUCCEEDED)
    return [
        (ended.value, reason.value, count, todo_for_batch(reason, status.info.name)) for ended, reason, count in rows
    ]


def totals(status: BatchStatus) -> str:
    """Rows, turns, tokens, dollars and cache share in one line."""
    counts = status.counts
    usage = counts.spent.usage
    return ", ".join(
        (
            counted(counts.runs, "row"),
            counted(counts.turns, "turn"),
            counted(counts.spent.tool_calls, "tool call"),
            f"{count_text(usage.all_input)} tokens in ({percent(cache_share(usage))} from cache), "
            f"{count_text(usage.output)} out",
            dollars(cost_usd(counts.spent.cost_nanousd, counts.spent.unpriced_calls)) + possibly_billed(counts.spent),
        )
    )


def this_time(before: BatchCounts, after: BatchCounts) -> str:
    """Rows that ended, turns, tool calls and dollars between two moments of a batch."""
    was, now = before.spent, after.spent
    cost = cost_usd(now.cost_nanousd - was.cost_nanousd, now.unpriced_calls - was.unpriced_calls)
    return ", ".join(
        (
            f"{counted(_over(after) - _over(before), 'row')} ended",
            counted(after.turns - before.turns, "turn"),
            counted(now.tool_calls - was.tool_calls, "tool call"),
            dollars(cost),
        )
    )


def _over(counts: BatchCounts) -> int:
    return counts.runs - counts.active
