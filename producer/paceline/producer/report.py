"""How a batch ended, in words: rows by stop reason, what to do about each, totals."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from paceline.core.endings import ENDINGS, StopReason
from paceline.core.lifecycle import Status

from .fleet import BatchStatus
from .progress import cache_share, count_text, dollars, percent
from .result import cost_usd

WHAT_TO_DO: Mapping[StopReason, str] = MappingProxyType(
    {
        StopReason.FINAL_ANSWER: "",
        StopReason.FINISH_TOOL: "",
        StopReason.MAX_TURNS: "raise limits.turns, or see what the turns went into: paceline show RUN",
        StopReason.TOKEN_BUDGET: "raise limits.tokens, or give the model shorter tool results",
        StopReason.TIME_BUDGET: "raise limits.seconds, or make slow tools faster",
        StopReason.DEADLINE: "raise limits.deadline, or add workers",
        StopReason.COST_BUDGET: "raise limits.usd, or take a cheaper model",
        StopReason.REPEAT_CALLS: "see which call: paceline show RUN; declare a tool that polls `repeatable`",
        StopReason.TOOL_ERRORS: "see what the tools said: paceline show RUN",
        StopReason.OUTPUT_TRUNCATED: "ask for a shorter answer",
        StopReason.INVALID_OUTPUT: "see what did not fit the finish schema: paceline show RUN",
        StopReason.CONTEXT_WINDOW: "give the model shorter tool results",
        StopReason.REFUSAL: "see what the model refused: paceline show RUN",
        StopReason.MODEL_ERROR: "see what the API said: paceline show RUN",
        StopReason.UNKNOWN_EFFECT: "find out what the tool did: paceline show RUN",
        StopReason.POISON: "it took workers down (memory?): see the workers' logs",
        StopReason.INTERNAL_ERROR: "a fault of paceline's own: please report it",
        StopReason.CANCELLED: "",
    }
)


def report_rows(status: BatchStatus) -> list[tuple[str, str, int, str]]:
    """Ended how, why, how many, what to do: the most frequent first, successes before all."""
    reasons = sorted(status.counts.reasons.items(), key=lambda item: -item[1])
    rows = [(ENDINGS[reason].status, reason, count) for reason, count in ((StopReason(r), n) for r, n in reasons)]
    rows.sort(key=lambda row: row[0] is not Status.SUCCEEDED)
    return [(ended.value, reason.value, count, WHAT_TO_DO[reason]) for ended, reason, count in rows]


def totals(status: BatchStatus) -> str:
    """Rows, turns, tokens, dollars and cache share in one line."""
    counts = status.counts
    usage = counts.spent.usage
    return ", ".join(
        (
            f"{counts.runs} rows",
            f"{counts.turns} turns",
            f"{counts.spent.tool_calls} tool calls",
            f"{count_text(usage.all_input)} tokens in ({percent(cache_share(usage))} from cache), "
            f"{count_text(usage.output)} out",
            dollars(cost_usd(counts.spent.cost_nanousd, counts.spent.unpriced_calls)),
        )
    )
