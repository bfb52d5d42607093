"""`paceline run` as a person starts it, killed with all that it had started, and started again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from integration.fleet import wait_until

from paceline.core.ids import RunId
from paceline.core.lifecycle import State
from paceline.producer.embedded import running_server
from paceline.producer.fleet import Fleet
from paceline.sim import Entry, Journal

ROWS = 60
EXAMPLE = Path(__file__).parents[2] / "examples" / "oncall"
VALKEY = Path(".paceline", "valkey")
JOURNAL = Path(".paceline", "logs", "simulator.jsonl")
OUTPUT = Path("results.jsonl")
SECONDS = 120.0
"""Far beyond what it takes, even on a machine that is busy otherwise."""


@pytest.fixture(autouse=True)
def _in_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "oncall"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".paceline", "__pycache__"))
    rows = (folder / "rows.jsonl").read_text().splitlines(keepends=True)
    (folder / "rows.jsonl").write_text("".join(rows[:ROWS]))
    monkeypatch.chdir(folder)


@contextmanager
def command() -> Iterator[subprocess.Popen[bytes]]:
    """The whole command: a server, two workers and the simulator are its children, and die with it."""
    program = str(Path(sys.executable).with_name("paceline"))
    arguments = ["run", "agent.yaml", "--input", "rows.jsonl", "--output", str(OUTPUT)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "ANTHROPIC_"))}
    with Path("said.txt").open("ab") as said:
        process = subprocess.Popen(
            [program, *arguments, "--workers", "2", "--simulate", "playbook.yaml"],
            env=environ,
            stdout=said,
            stderr=said,
        )
    try:
        yield process
    except BaseException as error:
        error.add_note(Path("said.txt").read_text())
        raise
    finally:
        process.kill()
        process.wait()


def requests() -> dict[str | None, list[Entry]]:
    """What the model was asked so far, by run."""
    return Journal.read(JOURNAL).by_run() if JOURNAL.exists() else {}


def answered() -> int:
    return sum(any(entry.stop_reason == "end_turn" for entry in of_run) for of_run in requests().values())


def finished() -> set[RunId]:
    """The runs that are over by the record of the command, which is running."""
    with Fleet(running_server(VALKEY)) as fleet:
        return {record.run.run_id for record in fleet.runs() if record.run.state is State.SUCCEEDED}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="children die with a killed parent on Linux alone")
def test_a_killed_command_goes_on_where_it_was_and_repeats_no_finished_row() -> None:
    with command() as first:
        wait_until(lambda: answered() >= 5, "some rows are answered", timeout_s=SECONDS)
        done = finished()
        first.kill()
    wait_until(lambda: running_server(VALKEY) is None, "the server is gone with its command")
    before = requests()
    assert 0 < len(done) < ROWS
    with command() as second:
        assert second.wait(SECONDS) == 0
    results = [json.loads(line) for line in OUTPUT.read_text().splitlines()]
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert [result["id"] for result in results] == [str(row["id"]) for row in rows]
    assert {result["status"] for result in results} == {"succeeded"}
    assert all(row["expected_rotation"] in result["answer"] for row, result in zip(rows, results, strict=True))
    asked, journal = requests(), Journal.read(JOURNAL)
    assert journal.rejected() == []
    assert {run for run in done if asked[run] != before[run]} == set()
    assert all(journal.grows_by_appending(result["run_id"]) for result in results)
    assert all(result["turns"] <= len(asked[result["run_id"]]) <= 2 * result["turns"] for result in results)
