"""Every metric of the fleet: its name, kind, labels, buckets and help. docs/metrics.md is the same table for people.

What is counted is kept in the record as whole numbers, field by field, written in the transaction of what it tells of:
`<metric>|<label values>` of a counter, and of a histogram `...|<upper bound>` for each bucket and `...|sum`. So nothing
is counted twice, however often a worker dies. Labels are few and bounded: never a run, a task, a worker or a host.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from .endings import StopReason
from .lifecycle import TERMINAL, State
from .usage import NANO_USD
from .wire import Queue


class Kind(StrEnum):
    """As Prometheus has them. A gauge is read when it is asked for; but for `COUNTED_GAUGES` it is in no ledger."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


class Recovery(StrEnum):
    """What the sweeper did about something that was lost."""

    TURN = "turn"
    """Took a turn from a worker that is gone."""
    CALL = "call"
    """Took a call from a worker that is gone."""
    DOUBT = "doubt"
    """Had somebody asked what a `once` call did whose worker is gone."""
    MESSAGE = "message"
    """Sent a message again."""
    END = "end"
    """Ended a run that nobody else would."""


class RepeatAction(StrEnum):
    """What was done about a call that came again and again."""

    WARNED = "warned"
    ABORTED = "aborted"


class HoldReason(StrEnum):
    """Why runs wait for a moment in time."""

    THROTTLED = "throttled"
    """The API has no room for the model, says it or a run that has just heard it."""
    RETRY = "retry"
    """A model call failed in passing."""
    UNREADY = "unready"
    """The worker that had it cannot call the model."""
    TOOLS = "tools"
    """The worker that had it cannot import its tools."""
    VERSION = "version"
    """The worker that had it cannot read its agent."""
    BUDGET = "budget"
    """Calls under way hold what is left of the batch's budget."""
    OTHER = "other"


ACTIVE_STATES = tuple(state for state in State if state not in TERMINAL)
OUTCOMES = tuple(state for state in State if state in TERMINAL)
CONTEXT_THRESHOLDS = ("0.5", "0.75", "0.9")
"""Of the model's window."""
TOOL_ERROR = "tool_error"
MODEL_ERRORS = ("transient", "throttled", "refused")
"""Kinds of `step.FailureKind` with which a model was asked and brought no answer."""
AGENTS_COUNTED = 200
"""Agents that have series of their own; what further ones do is counted together, as `ids.OTHER_AGENTS`."""
OTHER_TOOLS = "other"
"""Under this all tools of those are counted: they may be of any number too."""

_MILLI, _MILLIONTHS = 1_000, 1_000_000
_CALL_SECONDS = tuple(0.01 * 2**doubling for doubling in range(17))
"""The GenAI conventions' bounds, 0.01 to 81.92, and three more: a call may take ten minutes."""
_FEW = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200)
"""Dense where runs are short: a quantile is interpolated inside a bucket."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One row of the table. A stored number is `per_unit` times what is shown, so that it is whole."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    per_unit: int = 1

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """The upper bounds of the buckets as stored numbers."""
        return tuple(round(bound * self.per_unit) for bound in self.buckets)


def _counter(name: str, help: str, *labels: str, per_unit: int = 1) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, help=help, labels=labels, per_unit=per_unit)


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, help=help, labels=labels)


def _histogram(name: str, help: str, *labels: str, buckets: Sequence[float], per_unit: int = 1) -> Metric:
    return Metric(name=name, kind=Kind.HISTOGRAM, help=help, labels=labels, buckets=tuple(buckets), per_unit=per_unit)


# Runs, counted as they end

RUNS = _counter("agent_runs_total", "Runs that ended, by why.", "agent", "stop_reason")
RUN_TURNS = _histogram("agent_run_turns", "Turns of a run: answered model calls.", "agent", "outcome", buckets=_FEW)
RUN_SECONDS = _histogram(
    "agent_run_duration_seconds",
    "From a run's submission to its end, waiting included.",
    "agent",
    buckets=(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400),
    per_unit=_MILLI,
)
RUN_COST = _histogram(
    "agent_run_cost_usd",
    "What a run cost, in dollars; runs with a call of unknown price are left out.",
    "agent",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50),
    per_unit=NANO_USD,
)
RUN_CONTEXT = _histogram(
    "agent_run_context_used_ratio",
    "The most of the model's context window that a run has used.",
    "agent",
    "model",
    buckets=(0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1),
    per_unit=_MILLIONTHS,
)
RUN_MODEL_CALLS = _histogram(
    "gen_ai_invoke_agent_inference_calls", "Model calls of a run that were answered.", "gen_ai_agent_name", buckets=_FEW
)
RUN_TOOL_CALLS = _histogram(
    "gen_ai_invoke_agent_tool_calls",
    "Tool calls of a run that have a result.",
    "gen_ai_agent_name",
    buckets=(0, 1, 2, 3, 5, 8, 10, 15, 20, 30, 50, 75, 100, 150, 200, 500),
)

# Turns, counted as they are written

COST = _counter(
    "agent_cost_usd_total", "Dollars spent on model calls whose price is known.", "agent", "model", per_unit=NANO_USD
)
CONTEXT_CROSSINGS = _counter(
    "agent_run_context_crossings_total",
    "Runs that passed this share of the model's context window, each once.",
    "agent",
    "model",
    "threshold",
)
_TOKEN_LABELS = ("gen_ai_request_model", "gen_ai_agent_name")
INPUT_TOKENS = _counter(
    "gen_ai_client_inference_usage_input_tokens_total",
    "Tokens that went in, those read from and written to the cache included.",
    *_TOKEN_LABELS,
)
CACHE_READ_TOKENS = _counter(
    "gen_ai_client_inference_usage_cache_read_input_tokens_total", "Input tokens read from the cache.", *_TOKEN_LABELS
)
CACHE_WRITE_TOKENS = _counter(
    "gen_ai_client_inference_usage_cache_write_input_tokens_total", "Input tokens written to the cache.", *_TOKEN_LABELS
)
OUTPUT_TOKENS = _counter("gen_ai_client_inference_usage_output_tokens_total", "Tokens that came out.", *_TOKEN_LABELS)
MODEL_SECONDS = _histogram(
    "gen_ai_client_inference_duration_seconds",
    "How long a model call took; error_type is empty where it was answered.",
    "gen_ai_request_model",
    "error_type",
    buckets=_CALL_SECONDS,
    per_unit=_MILLI,
)
TOOL_SECONDS = _histogram(
    "gen_ai_execute_tool_duration_seconds",
    "How long a tool call took; error_type is empty where it was no error.",
    "gen_ai_tool_name",
    "error_type",
    buckets=_CALL_SECONDS,
    per_unit=_MILLI,
)
REPEAT_CALLS = _counter(
    "agent_repeat_call_total", "Calls that came again and again, by what was done about it.", "agent", "action"
)
POSSIBLY_BILLED_TWICE = _counter(
    "agent_possibly_billed_twice_total",
    "Model calls that brought no answer and may have been billed: most are made again.",
    "agent",
)
SWEEPER_RECOVERIES = _counter("agent_sweeper_recoveries_total", "What sweepers mended, by what was lost.", "recovery")
QUEUE_WAIT = _histogram(
    "agent_queue_wait_seconds",
    "From when a turn or a call was due to when a worker began it.",
    "queue",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600),
    per_unit=_MILLI,
)

# Gauges

ACTIVE_RUNS = _gauge("agent_active_runs", "Runs that are not over, by where they stand.", "agent", "state")
HOLDS = _gauge("agent_holds", "Runs on hold, by why they wait.", "reason")
COST_BUDGET = _gauge("agent_run_cost_budget_usd", "limits.usd of the agent as it was last submitted.", "agent")
QUEUE_DEPTH = _gauge("agent_queue_depth", "Messages that wait for a worker.", "queue")
QUEUE_INFLIGHT = _gauge("agent_queue_inflight", "Messages that a worker has and has not acknowledged.", "queue")
QUEUE_OLDEST = _gauge("agent_queue_oldest_message_age_seconds", "Age of the oldest message that waits.", "queue")
DEAD_LETTERS = _gauge("agent_dead_letters", "Runs that failed and can be redriven.")
WORKERS = _gauge("agent_workers", "Worker processes that live.")
LAST_SUCCESS = _gauge(
    "agent_exporter_last_success_timestamp_seconds", "When the exporter last read the record, seconds since the epoch."
)

METRICS: tuple[Metric, ...] = (
    RUNS,
    RUN_TURNS,
    RUN_SECONDS,
    RUN_COST,
    RUN_CONTEXT,
    RUN_MODEL_CALLS,
    RUN_TOOL_CALLS,
    COST,
    CONTEXT_CROSSINGS,
    INPUT_TOKENS,
    CACHE_READ_TOKENS,
    CACHE_WRITE_TOKENS,
    OUTPUT_TOKENS,
    MODEL_SECONDS,
    TOOL_SECONDS,
    REPEAT_CALLS,
    POSSIBLY_BILLED_TWICE,
    SWEEPER_RECOVERIES,
    QUEUE_WAIT,
    ACTIVE_RUNS,
    HOLDS,
    COST_BUDGET,
    QUEUE_DEPTH,
    QUEUE_INFLIGHT,
    QUEUE_OLDEST,
    DEAD_LETTERS,
    WORKERS,
    LAST_SUCCESS,
)
OBSERVED_AT_END = (RUN_TURNS, RUN_SECONDS, RUN_COST, RUN_CONTEXT, RUN_MODEL_CALLS, RUN_TOOL_CALLS)
OBSERVED_IN_SCRIPTS = (*OBSERVED_AT_END, QUEUE_WAIT)
"""What only the record knows when it is to be counted: its scripts are given these buckets."""
COUNTED_GAUGES = (ACTIVE_RUNS, HOLDS)
"""Kept in the ledger as the counters are: what goes in is counted up, what leaves is counted down."""

VALUES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "stop_reason": tuple(StopReason),
        "outcome": OUTCOMES,
        "state": ACTIVE_STATES,
        "threshold": CONTEXT_THRESHOLDS,
        "queue": tuple(Queue),
        "action": tuple(RepeatAction),
        "recovery": tuple(Recovery),
        "reason": tuple(HoldReason),
    }
)
"""The values of labels that are known beforehand: each has its series from the beginning, at 0."""

# The ledger's fields

Counts = Mapping[str, int]
"""What is to be added to the ledger, by field."""
NOTHING: Counts = MappingProxyType({})
SUM = "sum"
INFINITE = "inf"
_SEPARATOR = "|"
_LONGEST_LABEL = 100


def label(name: str) -> str:
    """A name as a label value: what separates fields is no part of it, and it is not without end."""
    return name.replace(_SEPARATOR, "/")[:_LONGEST_LABEL]


def field(metric: Metric, *labels: str) -> str:
    """The field of a counter, or the beginning of those of a histogram, with these label values."""
    return _SEPARATOR.join((metric.name, *labels))


def observed(metric: Metric, *labels: str, stored: int) -> dict[str, int]:
    """What one observation adds to a histogram. `stored` is in whole numbers, `per_unit` times the unit."""
    series = field(metric, *labels)
    return {f"{series}|{bucket_of(metric, stored)}": 1, f"{series}|{SUM}": stored}


def bucket_of(metric: Metric, stored: int) -> str:
    """The name of the bucket that a stored number falls into: its upper bound, as stored, or `inf`."""
    at = bisect_left(metric.bounds, stored)
    return str(metric.bounds[at]) if at < len(metric.bounds) else INFINITE


def bucket_index(metric: Metric, name: str) -> int:
    """The place among the metric's buckets of what `bucket_of` named; the last one, after all bounds, is for the rest.

    A version with other buckets may have written it: it goes to the first that certainly holds it.
    """
    return len(metric.bounds) if name == INFINITE else bisect_left(metric.bounds, int(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A field of the ledger, taken apart. `part` is a bucket or the sum of a histogram; empty: the metric has none."""

    metric: Metric
    labels: tuple[str, ...]
    part: str = ""


def read_field(name: str) -> Counted | None:
    """What a field counts; None for what is not known here: a newer version wrote it."""
    own, *labels = name.split(_SEPARATOR)
    metric = _BY_NAME.get(own)
    if metric is None:
        return None
    part = labels.pop() if metric.kind is Kind.HISTOGRAM and labels else ""
    return Counted(metric=metric, labels=tuple(labels), part=part) if len(labels) == len(metric.labels) else None


_BY_NAME: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in METRICS})
