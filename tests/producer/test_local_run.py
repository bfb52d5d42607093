import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from paceline.core.errors import AgentFileError, RowError, UsageError
from paceline.core.lifecycle import State
from paceline.producer.commands.run import report_totals
from paceline.producer.embedded import FolderInUse, embedded_valkey, running_server
from paceline.producer.fleet import BatchStatus, Fleet
from paceline.producer.local_run import HOME, RunOptions, RunReport, run_locally, worker_environment
from paceline.producer.settings import ProducerSettings

PUPPET = str(Path(__file__).with_name("puppet_worker.py"))
TESTS = str(Path(__file__).parents[1])
KEY = {"ANTHROPIC_API_KEY": "test"}
OPTIONS = RunOptions(agent=Path("agent.yaml"), input="rows.jsonl", workers=1)


class Notes:
    """A screen that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.shown: list[BatchStatus] = []

    def __enter__(self) -> "Notes":
        return self

    def __exit__(self, *ended: object) -> None: ...

    def say(self, text: str) -> None:
        self.said.append(text)

    def show(self, status: BatchStatus) -> None:
        self.shown.append(status)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.yaml").write_text("name: oncall\nmodel: claude-sonnet-5-5\nprompt: Who owns {service}?\n")
    rows = [{"id": name, "service": name} for name in ("search", "cart", "bad")]
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def puppets(concurrency: int) -> Sequence[str]:
    return [sys.executable, PUPPET, "bad"]


def run(options: RunOptions = OPTIONS, *, notes: Notes | None = None) -> RunReport:
    environ = {**os.environ, **KEY, "PYTHONPATH": TESTS}
    environ.pop("PACELINE_REDIS_URL", None)
    return run_locally(options, environ, notes or Notes(), worker_command=puppets)


def results(path: Path) -> list[tuple[str, str]]:
    return [(row["id"], row["stop_reason"]) for row in map(json.loads, path.read_text().splitlines())]


def test_every_row_is_run_and_has_its_result_in_the_order_of_the_input() -> None:
    notes = Notes()
    report = run(notes=notes)
    assert results(report.output) == [("search", "final_answer"), ("cart", "final_answer"), ("bad", "max_turns")]
    assert report.status.counts.states[State.SUCCEEDED] == 2
    assert report.output.is_relative_to(HOME / "results")
    assert notes.shown[-1].is_done
    assert notes.said == [f"batch {report.status.info.name}: 3 rows"]


def test_the_same_command_again_repeats_nothing_and_writes_the_same_results() -> None:
    output = Path("out.jsonl")
    options = RunOptions(agent=Path("agent.yaml"), input="rows.jsonl", output=output, workers=1)
    run(options)
    before = output.read_bytes()
    with Path("rows.jsonl").open("a") as rows:
        rows.write('{"id": "more", "service": "more"}\n')
    notes = Notes()
    report = run(options, notes=notes)
    assert output.read_bytes().startswith(before)
    assert results(output)[-1] == ("more", "final_answer")
    assert report.status.counts.turns == 4
    assert notes.said[0].endswith("4 rows; 3 of them are on record already, 3 done")
    of_batch, of_command, _ = report_totals(report).splitlines()
    assert of_batch.startswith("the whole batch: 4 rows, 4 turns")
    assert of_command.startswith("this command: 1 row ended, 1 turn, ")


def test_a_file_of_another_making_is_not_written_over_unless_told_to() -> None:
    output = Path("out.jsonl")
    output.write_text("precious")
    options = RunOptions(agent=Path("agent.yaml"), input="rows.jsonl", output=output, workers=1)
    with pytest.raises(UsageError, match=r"out.jsonl exists, and is not of this batch \(oncall-.*--force"):
        run(options)
    assert output.read_text() == "precious"
    run(RunOptions(agent=Path("agent.yaml"), input="rows.jsonl", output=output, workers=1, force=True))
    assert len(results(output)) == 3


def test_results_that_could_not_be_written_are_refused_before_a_run_costs_anything() -> None:
    output = Path("rows.jsonl") / "results.jsonl"
    with pytest.raises(UsageError, match=r"results.jsonl: cannot be written: "):
        run(RunOptions(agent=Path("agent.yaml"), input="rows.jsonl", output=output, workers=1))
    with embedded_valkey(HOME / "valkey") as url, Fleet(url) as fleet:
        assert fleet.batches() == []


def test_without_a_key_nothing_is_started() -> None:
    with pytest.raises(UsageError, match="set ANTHROPIC_API_KEY, or add --simulate"):
        run_locally(OPTIONS, {}, Notes())
    assert not HOME.exists()


def test_a_wrong_agent_or_row_is_refused_before_anything_is_started() -> None:
    with pytest.raises(AgentFileError):
        run(RunOptions(agent=Path("none.yaml"), input="rows.jsonl"))
    Path("rows.jsonl").write_text('{"id": "a"}\n')
    with pytest.raises(RowError):
        run()
    assert not HOME.exists()


def test_a_second_run_in_the_folder_is_refused() -> None:
    with embedded_valkey(HOME / "valkey"), pytest.raises(FolderInUse):
        run()


def test_workers_are_told_where_everything_is() -> None:
    environ = {**KEY, "ANTHROPIC_AUTH_TOKEN": "t", "PACELINE_TOOLS_PATH": "/more"}
    settings = ProducerSettings.from_environment({**environ, "PACELINE_REDIS_URL": "redis://h:1/0"})
    told = worker_environment(OPTIONS, settings, environ, simulator="http://127.0.0.1:9")
    assert told["PACELINE_REDIS_URL"] == "redis://h:1/0"
    assert told["PACELINE_TOOLS_PATH"].split(os.pathsep)[-1] == "/more"
    assert str(Path.cwd()) in told["PACELINE_TOOLS_PATH"]
    assert (told["PACELINE_CLAIM_SECONDS"], told["PACELINE_SWEEP_SECONDS"]) == ("30", "1")
    assert (told["ANTHROPIC_BASE_URL"], told["ANTHROPIC_API_KEY"]) == ("http://127.0.0.1:9", "simulated")
    assert "ANTHROPIC_AUTH_TOKEN" not in told


def test_a_fleet_of_ones_own_keeps_its_timing() -> None:
    environ = {**KEY, "PACELINE_REDIS_URL": "redis://h:1/0"}
    told = worker_environment(OPTIONS, ProducerSettings.from_environment(environ), environ, simulator=None)
    assert "PACELINE_SWEEP_SECONDS" not in told
    assert told["ANTHROPIC_API_KEY"] == "test"


def test_settings_name_every_bad_value() -> None:
    environ = {"PACELINE_CLAIM_SECONDS": "soon", "PACELINE_RETENTION_SECONDS": "0"}
    with pytest.raises(UsageError, match=r"(?s)PACELINE_CLAIM_SECONDS='soon'.*PACELINE_RETENTION_SECONDS='0'"):
        ProducerSettings.from_environment(environ)


class Impatient(Notes):
    """A person who presses Ctrl-C at the first figures."""

    def show(self, status: BatchStatus) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_stops_everything_and_says_how_to_go_on() -> None:
    notes = Impatient()
    with pytest.raises(KeyboardInterrupt):
        run(notes=notes)
    assert "lives on, and the same command goes on where it stopped" in notes.said[-1]
    assert running_server(HOME / "valkey") is None
    assert len(results(run().output)) == 3
