"""`paceline run` and `paceline submit`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .opening import opened_fleet
from .options import (
    AgentArgument,
    BatchOption,
    BudgetOption,
    ConcurrencyOption,
    ForceOption,
    InputOption,
    JsonOption,
    OutputOption,
    TenantOption,
)
from .printing import print_json, print_table

if TYPE_CHECKING:
    from paceline.producer.fleet import BatchStatus
    from paceline.producer.local_run import RunReport

ROWS_WITHOUT_ANSWER = 1
"""The exit code when not every row succeeded."""
ENDS = ("ended", "stop reason", "rows", "what to do")


def run(
    agent: AgentArgument,
    input: InputOption,
    output: OutputOption = None,
    workers: Annotated[int, typer.Option(min=0, envvar="PACELINE_WORKERS", help="worker processes to start here")] = 2,
    simulate: Annotated[
        Path | None,
        typer.Option(
            envvar="PACELINE_SIMULATE", metavar="PLAYBOOK", help="answer from this playbook, not from the API"
        ),
    ] = None,
    batch: BatchOption = None,
    tenant: TenantOption = "default",
    budget: BudgetOption = None,
    concurrency: ConcurrencyOption = 64,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run an agent on every row, here, and write the results: the main job, whole.

    Without PACELINE_REDIS_URL an embedded Valkey is started and kept under .paceline/: the same command again goes on
    where it stopped.
    """
    from paceline.producer.local_run import RunOptions, run_locally
    from paceline.producer.screen import screen

    options = RunOptions(
        agent=agent,
        input=input,
        output=output,
        workers=workers,
        concurrency=concurrency,
        simulate=simulate,
        batch=batch,
        tenant=tenant,
        budget_usd=budget,
        force=force,
    )
    with screen() as on_screen:
        report = run_locally(options, os.environ, on_screen)
    _print_report(report, as_json)
    raise typer.Exit(exit_code(report.status))


def submit(
    agent: AgentArgument,
    input: InputOption,
    batch: BatchOption = None,
    tenant: TenantOption = "default",
    budget: BudgetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hand rows to a running fleet and print the batch's name. Again: adds what is missing, nothing else."""
    from paceline.producer.progress import counted

    with opened_fleet(must_be_served=True) as fleet:
        for problem in fleet.check():
            typer.echo(f"warning: {problem}", err=True)
        file = fleet.load_agent(agent)
        for note in file.notes:
            typer.echo(f"note: {note}", err=True)
        submitted = fleet.submit(file, input, batch=batch, tenant=tenant, budget_usd=budget)
    submission = submitted.submission
    added = (submission.created, submission.existed) if submission else (0, 0)
    if submission and submission.unannounced:
        typer.echo(f"warning: {submission.unannounced}", err=True)
    if as_json:
        print_json({"batch": submitted.name, "created": added[0], "existed": added[1]})
    else:
        typer.echo(submitted.name)
        there = f"{added[1]} {'was' if added[1] == 1 else 'were'} there already"
        typer.echo(f"{counted(added[0], 'row')} submitted, {there}", err=True)


def exit_code(status: BatchStatus) -> int:
    """0 if every row succeeded, else 1."""
    from paceline.core.lifecycle import State

    return 0 if status.counts.states[State.SUCCEEDED] == status.counts.runs else ROWS_WITHOUT_ANSWER


def _print_report(report: RunReport, as_json: bool) -> None:
    from paceline.producer.progress import status_json
    from paceline.producer.report import report_rows

    if as_json:
        at = {"elapsed_seconds": round(report.elapsed_seconds, 3), "output": str(report.output)}
        print_json(status_json(report.status) | at)
        return
    typer.echo("")
    print_table(ENDS, report_rows(report.status))
    typer.echo("")
    typer.echo(report_totals(report))


def print_ends(status: BatchStatus) -> None:
    """How the rows of a batch ended, what to do about it, and the totals."""
    from paceline.producer.report import report_rows, totals

    print_table(ENDS, report_rows(status))
    typer.echo("")
    typer.echo(totals(status))


def report_totals(report: RunReport) -> str:
    """The totals, of this command too where it went on with a batch, and where the results are."""
    from paceline.producer.progress import duration
    from paceline.producer.report import this_time, totals

    took = duration(report.elapsed_seconds)
    of_batch = totals(report.status)
    if report.before and (report.before.turns or report.before.runs > report.before.active):
        told = f"the whole batch: {of_batch}\nthis command: {this_time(report.before, report.status.counts)}, {took}"
    else:
        told = f"{of_batch}, {took}"
    return f"{told}\nresults: {report.output}"
