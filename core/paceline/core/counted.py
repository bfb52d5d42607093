"""What is counted of what has happened: for each happening, what it adds to the ledger of metrics. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from . import metrics
from .ids import OTHER_AGENTS
from .ledger import CallRan, Entry, ModelCalled, PossiblyBilled
from .lifecycle import State
from .metrics import Counts, field, observed
from .models import context_window_tokens
from .run import ContextUsed, Run, Spent
from .usage import Usage


def added(*counts: Counts) -> Counts:
    """All of these together."""
    total: dict[str, int] = {}
    for each in counts:
        for name, by in each.items():
            total[name] = total.get(name, 0) + by
    return total


# Turns


def written(run: Run, model: str, entries: Sequence[Entry]) -> Counts:
    """What an attempt adds by these entries in its run's ledger; `model` is the one that was asked for."""
    return added(
        *(_of_entry(run.label, metrics.label(model), entry) for entry in entries),
        _crossings(run, context_used(run, model, entries)),
    )


def unanswered(run: Run, entries: Sequence[Entry]) -> Counts:
    """What an attempt adds that is over without an answer."""
    return added(*(_of_entry(run.label, "", entry) for entry in entries if isinstance(entry, PossiblyBilled)))


def _of_entry(label: str, model: str, entry: Entry) -> Counts:
    match entry:
        case ModelCalled():
            cost = {field(metrics.COST, label, model): entry.cost_nanousd} if entry.cost_nanousd else {}
            return {
                **_used(label, model, entry.usage),
                **cost,
                **observed(metrics.MODEL_SECONDS, model, "", stored=entry.took_ms),
            }
        case PossiblyBilled():
            return {field(metrics.POSSIBLY_BILLED_TWICE, label): 1}
        case _:
            return metrics.NOTHING


def _used(label: str, model: str, usage: Usage) -> Counts:
    used = (
        (metrics.INPUT_TOKENS, usage.all_input),
        (metrics.CACHE_READ_TOKENS, usage.cache_read),
        (metrics.CACHE_WRITE_TOKENS, usage.cache_write),
        (metrics.OUTPUT_TOKENS, usage.output),
    )
    return {field(metric, model, label): tokens for metric, tokens in used if tokens}


def model_failed(model: str, error_type: str, took_ms: int) -> Counts:
    """A model call that brought no answer."""
    return observed(metrics.MODEL_SECONDS, metrics.label(model), error_type, stored=took_ms)


def repeated(run: Run, *, warned: int = 0, aborted: int = 0) -> Counts:
    """Calls that came again and again."""
    times = {metrics.RepeatAction.WARNED: warned, metrics.RepeatAction.ABORTED: aborted}
    return {field(metrics.REPEAT_CALLS, run.label, action): count for action, count in times.items() if count}


def recovered(what: metrics.Recovery) -> Counts:
    """The sweeper mended something."""
    return {field(metrics.SWEEPER_RECOVERIES, what): 1}


# The context window


def context_used(run: Run, model: str, entries: Sequence[Entry]) -> ContextUsed | None:
    """The most of its window that a run has used, after an attempt with these entries; None where nothing is new."""
    sent = [entry.usage.all_input for entry in entries if isinstance(entry, ModelCalled)]
    if not sent:
        return None
    millionths = 1_000_000 * max(sent) // context_window_tokens(model)
    return ContextUsed(model=metrics.label(model), millionths=max(millionths, _so_far(run)))


def _crossings(run: Run, used: ContextUsed | None) -> Counts:
    """The thresholds that a run has passed for the first time."""
    if used is None or used.millionths == _so_far(run):
        return metrics.NOTHING
    return {
        field(metrics.CONTEXT_CROSSINGS, run.label, used.model, threshold): 1
        for threshold in metrics.CONTEXT_THRESHOLDS
        if _so_far(run) < 1_000_000 * float(threshold) <= used.millionths
    }


def _so_far(run: Run) -> int:
    return run.context_used.millionths if run.context_used else 0


# Calls


def call_ran(label: str, entry: CallRan) -> Counts:
    """A tool was run that the agent has; `label` as its run's."""
    tool = metrics.OTHER_TOOLS if label == OTHER_AGENTS else metrics.label(entry.tool)
    error_type = metrics.TOOL_ERROR if entry.is_error else ""
    return observed(metrics.TOOL_SECONDS, tool, error_type, stored=entry.took_ms)


# Ends


def ended(run: Run, *, outcome: State, reason: str, turns: int, ended_ms: int) -> Counts:
    """The end of a run, by its totals. The record's scripts count the same: they alone know each end."""
    label, spent = run.label, run.spent
    return {
        field(metrics.RUNS, label, reason): 1,
        **observed(metrics.RUN_TURNS, label, outcome, stored=turns),
        **observed(metrics.RUN_SECONDS, label, stored=ended_ms - run.submitted_ms),
        **observed(metrics.RUN_MODEL_CALLS, label, stored=turns),
        **observed(metrics.RUN_TOOL_CALLS, label, stored=spent.tool_calls),
        **_cost(label, spent),
        **_context(label, run.context_used),
    }


def _cost(label: str, spent: Spent) -> Counts:
    if spent.unpriced_calls:
        return metrics.NOTHING
    return observed(metrics.RUN_COST, label, stored=spent.cost_nanousd)


def _context(label: str, used: ContextUsed | None) -> Counts:
    if used is None:
        return metrics.NOTHING
    return observed(metrics.RUN_CONTEXT, label, used.model, stored=used.millionths)


def stands(run: Run, state: State, wait: str, by: int) -> Counts:
    """A run is counted in or out of where it stands; one that is over stands nowhere."""
    if state.is_terminal:
        return metrics.NOTHING
    held = {field(metrics.HOLDS, wait): by} if state is State.ON_HOLD else {}
    return {field(metrics.ACTIVE_RUNS, run.label, state): by, **held}


def waited(queue: str, due_ms: int, now_ms: int) -> Counts:
    """How long something was due before it was begun; `due_ms` 0: no message for it went out."""
    return observed(metrics.QUEUE_WAIT, queue, stored=max(0, now_ms - due_ms)) if due_ms else metrics.NOTHING
