"""What the Grafana dashboards show. `python helm/dashboards.py` writes them to the chart, as JSON.

Gauges are taken by `max` for each series before they are summed, and counters by `rate` or `increase`, so that an
exporter that moves to another address is not counted twice. A threshold is that of the alert on the same number
(`files/rules.yaml`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grafana import Dashboard, Row, Threshold, Variable, bars, heatmap, lines, rendered, stat

FOLDER = Path(__file__).parent / "paceline" / "files" / "dashboards"

# PromQL

OF_FLEET = 'job=~"$job"'
OF_AGENT = 'job=~"$job",agent=~"$agent"'
OF_GEN_AI_AGENT = 'job=~"$job",gen_ai_agent_name=~"$agent"'
OF_TOOL = 'job=~"$job",gen_ai_tool_name=~"$tool"'
BEGUN = 'queue!="paceline.starts"'


def sum_by(labels: Sequence[str], series: str) -> str:
    """A sum for each combination of labels; without labels, one."""
    return f"sum by ({', '.join(labels)}) ({series})" if labels else f"sum({series})"


def per_minute(counter: str, where: str, *by: str) -> str:
    """How often a minute something happens, by labels."""
    return "60 * " + sum_by(by, f"rate({counter}{{{where}}}[$__rate_interval])")


def rate_share(part: str, part_where: str, whole: str, whole_where: str, *by: str) -> str:
    """Which share of what happens is `part`, by labels."""
    rates = (
        f"rate({counter}{{{where}}}[$__rate_interval])" for counter, where in ((part, part_where), (whole, whole_where))
    )
    return " / ".join(sum_by(by, rate) for rate in rates)


def an_hour(counter: str, where: str, *by: str) -> str:
    """How much an hour something grows at its present rate, by labels."""
    return "3600 * " + sum_by(by, f"rate({counter}{{{where}}}[$__rate_interval])")


def in_range(counter: str, where: str, *by: str) -> str:
    """How often something happened in the time shown."""
    return sum_by(by, f"increase({counter}{{{where}}}[$__range])")


def quantile(share: float, histogram: str, where: str, *by: str, over: str = "$__rate_interval") -> str:
    """The value that a share of observations stay below, by labels."""
    observed = sum_by((*by, "le"), f"rate({histogram}_bucket{{{where}}}[{over}])")
    return f"histogram_quantile({share:g}, {observed})"


def average(histogram: str, where: str) -> str:
    """The mean of what was observed."""
    sum_, count = (f"sum(rate({histogram}_{part}{{{where}}}[$__rate_interval]))" for part in ("sum", "count"))
    return f"{sum_} / {count}"


def buckets(histogram: str, where: str) -> str:
    """What a heatmap shows: observations by bucket."""
    return f"sum by (le) (increase({histogram}_bucket{{{where}}}[$__rate_interval]))"


def active_runs(where: str, *by: str) -> str:
    """Runs that are not over, by labels."""
    return sum_by(by, f"max by (job, agent, state) (agent_active_runs{{{where}}})")


def of_queues(gauge: str, where: str = OF_FLEET) -> str:
    """A gauge of each queue."""
    return f"max by (queue) ({gauge}{{{where}}})"


JOB = Variable(name="job", label="Fleet", series="agent_exporter_last_success_timestamp_seconds", of="job")
AGENT = Variable(name="agent", label="Agent", series=f"agent_active_runs{{{OF_FLEET}}}", of="agent")
TOOL = Variable(
    name="tool",
    label="Tool",
    series=f"gen_ai_execute_tool_duration_seconds_count{{{OF_FLEET}}}",
    of="gen_ai_tool_name",
)


# What is shown

FLEET = Dashboard(
    name="fleet",
    title="Paceline / Fleet",
    description="Is the fleet alive, does it keep up, what was repaired.",
    variables=(JOB,),
    rows=(
        Row(
            title="Now",
            panels=(
                stat(
                    "Workers",
                    "Worker processes that show that they live.",
                    f"sum(max by (job) (agent_workers{{{OF_FLEET}}}))",
                    threshold=Threshold(red=1, falls=True),
                ),
                stat(
                    "Runs under way",
                    "Runs that have begun and are not over.",
                    active_runs(f'{OF_FLEET},state!="queued"'),
                ),
                stat("Runs queued", "Runs that wait for their first turn.", active_runs(f'{OF_FLEET},state="queued"')),
                stat(
                    "Oldest begun",
                    "Age of the oldest message of a run that has begun. Begun work is served first: this is to be low.",
                    f"max(agent_queue_oldest_message_age_seconds{{{OF_FLEET},{BEGUN}}})",
                    unit="s",
                    threshold=Threshold(yellow=60, red=120),
                ),
                stat("On hold", "Runs that wait for a moment in time.", active_runs(f'{OF_FLEET},state="on_hold"')),
                stat(
                    "Await a person",
                    "Runs that wait until somebody says what became of a call, or whether it may run.",
                    active_runs(f'{OF_FLEET},state=~"awaiting_approval|awaiting_decision"'),
                    threshold=Threshold(red=1),
                ),
                stat(
                    "Dead letters",
                    "Runs that failed and can be redriven (`paceline dead list`).",
                    f"sum(max by (job) (agent_dead_letters{{{OF_FLEET}}}))",
                    threshold=Threshold(red=1),
                ),
                stat(
                    "Record read",
                    "How long ago the exporter read the record. All else here is as old as that.",
                    f"time() - min(max by (job) (agent_exporter_last_success_timestamp_seconds{{{OF_FLEET}}}))",
                    unit="s",
                    threshold=Threshold(yellow=30, red=60),
                ),
            ),
        ),
        Row(
            title="Throughput",
            panels=(
                lines(
                    "Model calls a minute",
                    "Calls that were answered, by model. A turn is one of them.",
                    "short",
                    {
                        "{{gen_ai_request_model}}": per_minute(
                            "gen_ai_client_inference_duration_seconds_count",
                            f'{OF_FLEET},error_type=""',
                            "gen_ai_request_model",
                        )
                    },
                    width=8,
                ),
                lines(
                    "Tool calls a minute",
                    "Calls that have a result, errors included.",
                    "short",
                    {"tool calls": per_minute("gen_ai_execute_tool_duration_seconds_count", OF_FLEET)},
                    width=8,
                ),
                lines(
                    "Runs ended a minute",
                    "By outcome.",
                    "short",
                    {"{{outcome}}": per_minute("agent_run_turns_count", OF_FLEET, "outcome")},
                    width=8,
                    stacked=True,
                ),
            ),
        ),
        Row(
            title="Queues",
            panels=(
                lines(
                    "Messages that wait",
                    "By queue. `paceline.starts` is the backlog of new runs; the others should be near zero.",
                    "short",
                    {"{{queue}}": of_queues("agent_queue_depth")},
                ),
                lines(
                    "Age of the oldest message",
                    "By queue. The line is the alert's, for queues of begun runs.",
                    "s",
                    {"{{queue}}": of_queues("agent_queue_oldest_message_age_seconds")},
                    threshold=Threshold(red=120),
                ),
                lines(
                    "Wait for a worker, 95th percentile",
                    "From when a turn or a call was due to when a worker began it.",
                    "s",
                    {"{{queue}}": quantile(0.95, "agent_queue_wait_seconds", OF_FLEET, "queue")},
                ),
                lines(
                    "Messages in hand",
                    "What workers have and have not finished, by queue.",
                    "short",
                    {"{{queue}}": of_queues("agent_queue_inflight")},
                ),
            ),
        ),
        Row(
            title="Runs",
            panels=(
                lines(
                    "Runs by state",
                    "Those that are not over.",
                    "short",
                    {"{{state}}": active_runs(OF_FLEET, "state")},
                    stacked=True,
                ),
                lines(
                    "Runs on hold by reason",
                    "throttled: the API has no room; retry: a call failed in passing; the others: a worker cannot.",
                    "short",
                    {"{{reason}}": f"sum by (reason) (max by (job, reason) (agent_holds{{{OF_FLEET}}}))"},
                    stacked=True,
                ),
            ),
        ),
        Row(
            title="The model",
            panels=(
                lines(
                    "Model call",
                    "How long a call that was answered took.",
                    "s",
                    {
                        f"{{{{gen_ai_request_model}}}} p{share * 100:g}": quantile(
                            share,
                            "gen_ai_client_inference_duration_seconds",
                            f'{OF_FLEET},error_type=""',
                            "gen_ai_request_model",
                        )
                        for share in (0.5, 0.95)
                    },
                ),
                lines(
                    "Failed model calls a minute",
                    "throttled (429, 529) holds the runs of that model, transient is tried again, refused ends a run.",
                    "short",
                    {
                        "{{gen_ai_request_model}} {{error_type}}": per_minute(
                            "gen_ai_client_inference_duration_seconds_count",
                            f'{OF_FLEET},error_type!=""',
                            "gen_ai_request_model",
                            "error_type",
                        )
                    },
                ),
            ),
        ),
        Row(
            title="Repairs",
            panels=(
                lines(
                    "Recoveries a minute",
                    "turn, call, doubt: a worker died; message: one was lost, or the broker was away.",
                    "short",
                    {"{{recovery}}": per_minute("agent_sweeper_recoveries_total", OF_FLEET, "recovery")},
                    width=8,
                    stacked=True,
                ),
                lines(
                    "Possibly billed twice",
                    "Model calls that brought no answer and may have been billed, in the time shown.",
                    "short",
                    {"{{agent}}": in_range("agent_possibly_billed_twice_total", OF_FLEET, "agent")},
                    width=8,
                ),
                lines(
                    "Alerts",
                    "Alerts of paceline that are pending or firing; docs/operations.md has a section for each.",
                    "short",
                    {
                        "{{alertname}} {{alertstate}}": (
                            'count by (alertname, alertstate) (ALERTS{alertname=~"Paceline.*"})'
                        )
                    },
                    width=8,
                    stacked=True,
                ),
            ),
        ),
    ),
)

ENDED = in_range("agent_runs_total", OF_AGENT)
SUCCEEDED = in_range("agent_run_turns_count", f'{OF_AGENT},outcome="succeeded"')

BATCH = Dashboard(
    name="batch",
    title="Paceline / Batches",
    description=(
        "How far the batches of an agent are, what they cost and how they end. No series bears the name of a batch, as "
        "names are without bound: choose the agent and the time. `paceline status BATCH` tells of one batch alone."
    ),
    variables=(JOB, AGENT),
    rows=(
        Row(
            title="Progress",
            panels=(
                stat("Runs to do", "Runs that are not over.", active_runs(OF_AGENT)),
                stat("Runs ended", "In the time shown.", ENDED),
                stat(
                    "Succeeded",
                    "Share of the runs that ended in the time shown.",
                    f"{SUCCEEDED} / {ENDED}",
                    unit="percentunit",
                    threshold=Threshold(yellow=0.98, red=0.9, falls=True),
                ),
                stat(
                    "Time left",
                    "Runs to do, at the rate of the last 15 minutes.",
                    f"{active_runs(OF_AGENT)} / (sum(rate(agent_runs_total{{{OF_AGENT}}}[15m])) > 0)",
                    unit="s",
                ),
                stat("Spent", "In the time shown.", in_range("agent_cost_usd_total", OF_AGENT), unit="currencyUSD"),
                stat(
                    "A success costs",
                    "What was spent in the time shown, on all runs, for each run that succeeded.",
                    f"{in_range('agent_cost_usd_total', OF_AGENT)} / {SUCCEEDED}",
                    unit="currencyUSD",
                ),
                stat(
                    "Half are done in",
                    "Median time from a run's submission to its end, waiting included.",
                    quantile(0.5, "agent_run_duration_seconds", OF_AGENT, over="$__range"),
                    unit="s",
                ),
                stat(
                    "Dead letters",
                    "Runs of all agents that failed and can be redriven.",
                    f"sum(max by (job) (agent_dead_letters{{{OF_FLEET}}}))",
                    threshold=Threshold(red=1),
                ),
            ),
        ),
        Row(
            title="Over time",
            panels=(
                lines("Runs to do", "By state.", "short", {"{{state}}": active_runs(OF_AGENT, "state")}, stacked=True),
                lines(
                    "Runs ended a minute",
                    "By outcome.",
                    "short",
                    {"{{outcome}}": per_minute("agent_run_turns_count", OF_AGENT, "outcome")},
                    stacked=True,
                ),
                lines(
                    "Spent an hour",
                    "By agent, at the present rate.",
                    "currencyUSD",
                    {"{{agent}}": an_hour("agent_cost_usd_total", OF_AGENT, "agent")},
                ),
                lines(
                    "From submission to end",
                    "Of runs that ended, waiting included.",
                    "s",
                    {
                        f"p{share * 100:g}": quantile(share, "agent_run_duration_seconds", OF_AGENT)
                        for share in (0.5, 0.95)
                    },
                ),
            ),
        ),
        Row(
            title="Endings",
            panels=(
                bars(
                    "Why runs ended",
                    "In the time shown; docs/loop.md says what each reason means and what to do about it.",
                    "short",
                    {"{{stop_reason}}": f"sort_desc({in_range('agent_runs_total', OF_AGENT, 'stop_reason')} > 0)"},
                ),
                bars(
                    "Spent by agent and model",
                    "In the time shown.",
                    "currencyUSD",
                    {
                        "{{agent}} {{model}}": (
                            f"sort_desc({in_range('agent_cost_usd_total', OF_AGENT, 'agent', 'model')} > 0)"
                        )
                    },
                ),
            ),
        ),
    ),
)

INPUT = "gen_ai_client_inference_usage_input_tokens_total"
CACHE_READ = "gen_ai_client_inference_usage_cache_read_input_tokens_total"
CACHE_WRITE = "gen_ai_client_inference_usage_cache_write_input_tokens_total"
OUTPUT = "gen_ai_client_inference_usage_output_tokens_total"


def share_of_input(counter: str) -> str:
    """Which share of the input tokens is counted there, by model."""
    return rate_share(counter, OF_GEN_AI_AGENT, INPUT, OF_GEN_AI_AGENT, "gen_ai_request_model")


AGENTS = Dashboard(
    name="agent",
    title="Paceline / Agent",
    description="What an agent's runs take: turns, endings, dollars, cache, context.",
    variables=(JOB, AGENT),
    rows=(
        Row(
            title="Turns",
            panels=(
                heatmap(
                    "Turns of a run",
                    "Runs that ended, by the turns that they took.",
                    "short",
                    buckets("agent_run_turns", OF_AGENT),
                ),
                lines(
                    "Turns of a successful run, last hour",
                    "By agent, against the 7 days before: their hours with 20 successful runs or more.",
                    "short",
                    {
                        "{{agent}} p50": quantile(
                            0.5, "agent_run_turns", f'{OF_AGENT},outcome="succeeded"', "agent", over="1h"
                        ),
                        "{{agent}} p95": quantile(
                            0.95, "agent_run_turns", f'{OF_AGENT},outcome="succeeded"', "agent", over="1h"
                        ),
                        "{{agent}} p50, 7 days before": f"agent:run_turns:p50_7d_before{{{OF_AGENT}}}",
                        "{{agent}} p95, 7 days before": f"agent:run_turns:p95_7d_before{{{OF_AGENT}}}",
                    },
                ),
            ),
        ),
        Row(
            title="Endings",
            panels=(
                lines(
                    "Runs ended a minute by reason",
                    "docs/loop.md says what each reason means and what to do about it.",
                    "short",
                    {"{{stop_reason}}": f"{per_minute('agent_runs_total', OF_AGENT, 'stop_reason')} > 0"},
                    stacked=True,
                ),
                lines(
                    "Runs stopped for repeating a call, last hour",
                    "Share of the runs that ended, by agent. The line is the alert's.",
                    "percentunit",
                    {"{{agent}}": f"agent:runs_repeat_calls:ratio1h{{{OF_AGENT}}}"},
                    threshold=Threshold(red=0.02),
                    width=6,
                ),
                lines(
                    "Repeated calls a minute",
                    "warned: the model was told that it has asked before; aborted: its run was stopped.",
                    "short",
                    {"{{action}}": per_minute("agent_repeat_call_total", OF_AGENT, "action")},
                    width=6,
                ),
            ),
        ),
        Row(
            title="Cost",
            panels=(
                lines(
                    "Cost of a run, last 6 hours",
                    "Against limits.usd. Runs with a call of unknown price are left out.",
                    "currencyUSD",
                    {
                        **{
                            f"{{{{agent}}}} p{share * 100:g}": quantile(
                                share, "agent_run_cost_usd", OF_AGENT, "agent", over="6h"
                            )
                            for share in (0.5, 0.99)
                        },
                        "{{agent}} budget": f"max by (agent) (agent_run_cost_budget_usd{{{OF_AGENT}}})",
                    },
                ),
                lines(
                    "Spent an hour",
                    "By model, at the present rate.",
                    "currencyUSD",
                    {"{{model}}": an_hour("agent_cost_usd_total", OF_AGENT, "model")},
                ),
            ),
        ),
        Row(
            title="Cache",
            panels=(
                lines(
                    "Share of input from the cache",
                    "What is read costs a tenth, what is written a quarter more. The line is the alert's.",
                    "percentunit",
                    {
                        "{{gen_ai_request_model}} read": share_of_input(CACHE_READ),
                        "{{gen_ai_request_model}} written": share_of_input(CACHE_WRITE),
                    },
                    threshold=Threshold(red=0.7, falls=True),
                ),
                lines(
                    "Tokens a minute",
                    "Input includes what was read from and written to the cache.",
                    "short",
                    {
                        "input": per_minute(INPUT, OF_GEN_AI_AGENT),
                        "read from the cache": per_minute(CACHE_READ, OF_GEN_AI_AGENT),
                        "written to the cache": per_minute(CACHE_WRITE, OF_GEN_AI_AGENT),
                        "output": per_minute(OUTPUT, OF_GEN_AI_AGENT),
                    },
                ),
            ),
        ),
        Row(
            title="Context",
            panels=(
                heatmap(
                    "Context window used",
                    "Runs that ended, by the most of the window that they used.",
                    "percentunit",
                    buckets("agent_run_context_used_ratio", OF_AGENT),
                ),
                lines(
                    "Context window used, 95th percentile of the last hour",
                    "By agent. The line is the alert's.",
                    "percentunit",
                    {"{{agent}}": f"agent:run_context_used_ratio:p95_1h{{{OF_AGENT}}}"},
                    threshold=Threshold(red=0.6),
                    width=6,
                ),
                lines(
                    "Runs that passed a share of the window, a minute",
                    "Each run once for each share.",
                    "short",
                    {"{{threshold}}": per_minute("agent_run_context_crossings_total", OF_AGENT, "threshold")},
                    width=6,
                ),
            ),
        ),
        Row(
            title="Calls",
            panels=(
                heatmap(
                    "Tool calls of a run",
                    "Runs that ended, by their tool calls that have a result.",
                    "short",
                    buckets("gen_ai_invoke_agent_tool_calls", OF_GEN_AI_AGENT),
                ),
                lines(
                    "Calls of a run",
                    "Average of runs that ended.",
                    "short",
                    {
                        "model calls": average("gen_ai_invoke_agent_inference_calls", OF_GEN_AI_AGENT),
                        "tool calls": average("gen_ai_invoke_agent_tool_calls", OF_GEN_AI_AGENT),
                    },
                ),
            ),
        ),
    ),
)

TOOL_SECONDS = "gen_ai_execute_tool_duration_seconds"
TOOL_CALLS = f"{TOOL_SECONDS}_count"
TOOL_ERRORS = f'{OF_TOOL},error_type!=""'

TOOLS = Dashboard(
    name="tools",
    title="Paceline / Tools",
    description="What tools are called, how long they take and how often they fail.",
    variables=(JOB, TOOL),
    rows=(
        Row(
            title="Now",
            panels=(
                stat("Tool calls", "In the time shown.", in_range(TOOL_CALLS, OF_TOOL)),
                stat(
                    "Errors",
                    "Share of the calls in the time shown that were errors: the model was told so, and went on.",
                    f"{in_range(TOOL_CALLS, TOOL_ERRORS)} / {in_range(TOOL_CALLS, OF_TOOL)}",
                    unit="percentunit",
                    threshold=Threshold(yellow=0.05, red=0.2),
                ),
                stat("Runs in tools", "Runs that wait for their calls.", active_runs(f'{OF_FLEET},state="in_tools"')),
                stat(
                    "Calls that wait",
                    "Messages of paceline.tools that no worker has yet.",
                    f'sum(max by (job) (agent_queue_depth{{{OF_FLEET},queue="paceline.tools"}}))',
                ),
            ),
        ),
        Row(
            title="Calls",
            panels=(
                lines(
                    "Calls a minute",
                    "By tool, errors included.",
                    "short",
                    {"{{gen_ai_tool_name}}": per_minute(TOOL_CALLS, OF_TOOL, "gen_ai_tool_name")},
                    stacked=True,
                ),
                lines(
                    "Share of errors",
                    "By tool. An error is a result: the model is told, and goes on.",
                    "percentunit",
                    {
                        "{{gen_ai_tool_name}}": rate_share(
                            TOOL_CALLS, TOOL_ERRORS, TOOL_CALLS, OF_TOOL, "gen_ai_tool_name"
                        )
                    },
                    threshold=Threshold(red=0.2),
                ),
            ),
        ),
        Row(
            title="Time",
            panels=(
                lines(
                    "Time of a call, median",
                    "By tool, errors included.",
                    "s",
                    {"{{gen_ai_tool_name}}": quantile(0.5, TOOL_SECONDS, OF_TOOL, "gen_ai_tool_name")},
                ),
                lines(
                    "Time of a call, 95th percentile",
                    "By tool, errors included.",
                    "s",
                    {"{{gen_ai_tool_name}}": quantile(0.95, TOOL_SECONDS, OF_TOOL, "gen_ai_tool_name")},
                ),
                heatmap(
                    "Time of all calls",
                    "Calls of the chosen tools, by how long they took.",
                    "s",
                    buckets(TOOL_SECONDS, OF_TOOL),
                ),
                lines(
                    "Calls running at once",
                    "Average, by tool: time spent in calls for each second of the clock.",
                    "short",
                    {
                        "{{gen_ai_tool_name}}": (
                            f"sum by (gen_ai_tool_name) (rate({TOOL_SECONDS}_sum{{{OF_TOOL}}}[$__rate_interval]))"
                        )
                    },
                ),
            ),
        ),
        Row(
            title="In the time shown",
            panels=(
                bars(
                    "Calls by tool",
                    "Errors included.",
                    "short",
                    {"{{gen_ai_tool_name}}": f"sort_desc({in_range(TOOL_CALLS, OF_TOOL, 'gen_ai_tool_name')})"},
                ),
                bars(
                    "Errors by tool and kind",
                    "Each kind with its tool.",
                    "short",
                    {
                        "{{gen_ai_tool_name}} {{error_type}}": (
                            f"sort_desc({in_range(TOOL_CALLS, TOOL_ERRORS, 'gen_ai_tool_name', 'error_type')})"
                        )
                    },
                ),
            ),
        ),
    ),
)

DASHBOARDS = (FLEET, BATCH, AGENTS, TOOLS)


def main() -> None:
    """Write each dashboard to its file."""
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(rendered(dashboard))


if __name__ == "__main__":
    main()
