"""The `paceline` command: what it is called with, and how it ends.

Exit codes: 0 every row succeeded; 1 some did not; 2 usage or configuration; 3 infrastructure; 130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from types import FrameType
from typing import Annotated

import typer

from paceline.core.errors import PacelineError, UsageError

from .commands import advise, batches, dead, decisions, doctor, estimate, processes, run, runs

USAGE = 2
INFRASTRUCTURE = 3
INTERRUPTED = 130

_EPILOG = "Exit codes: 0 every row succeeded; 1 some did not; 2 usage; 3 infrastructure; 130 interrupted."


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"paceline {version('paceline')}")
        raise typer.Exit


def build() -> typer.Typer:
    """The command with all its subcommands."""
    app = typer.Typer(
        name="paceline",
        help="Run LLM agents over rows, as batch jobs that survive whatever dies.",
        epilog=_EPILOG,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for command in (
        run.run,
        run.submit,
        batches.wait,
        batches.results,
        batches.status,
        runs.runs,
        runs.show,
        runs.cancel,
        decisions.resolve,
        decisions.approve,
        decisions.deny,
        dead.retry,
        processes.worker,
        processes.exporter,
        processes.sim,
        doctor.doctor,
        estimate.estimate,
        advise.advise,
    ):
        app.command()(command)
    app.add_typer(dead.build(), name="dead")
    app.callback()(_options)
    return app


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """What the command takes before a subcommand."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code. PACELINE_DEBUG=1 shows the traceback of an error."""
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(run_command(sys.argv[1:] if arguments is None else arguments))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run_command(arguments: Sequence[str]) -> int:
    """Run the command; its exit code. What goes wrong is told on stderr, in a line or two."""
    try:
        return build()(list(arguments), prog_name="paceline", standalone_mode=False) or 0
    except typer.TyperException as error:
        if message := error.format_message():  # else the help was asked for, and is printed already
            print(f"error: {message} (see `{_command(error, arguments)} --help`)", file=sys.stderr)
        return USAGE
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("PACELINE_DEBUG"):
            raise
        return _tell(error)


def _command(error: typer.TyperException, arguments: Sequence[str]) -> str:
    # What a command itself refuses comes without a context.
    context = getattr(error, "ctx", None)
    return str(context.command_path) if context else " ".join(["paceline", *arguments[:1]])


def _tell(error: Exception) -> int:
    if isinstance(error, PacelineError):
        print(f"error: {error}", file=sys.stderr)
        return USAGE if isinstance(error, UsageError) else INFRASTRUCTURE
    print(
        f"error: unexpected {type(error).__name__}: {error}\nPACELINE_DEBUG=1 shows where; please report it",
        file=sys.stderr,
    )
    return INFRASTRUCTURE


if __name__ == "__main__":
    main()
