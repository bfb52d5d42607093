import json
import os
import subprocess
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from support.producing import AGENT
from support.runs import SPENT, Driven, model_called

from paceline.core.endings import Outcome, StopReason
from paceline.core.ids import BatchName, RunId, run_id
from paceline.core.lifecycle import State
from paceline.producer import screen as screens
from paceline.producer.cli import INTERRUPTED, USAGE, run_command
from paceline.producer.commands import batches
from paceline.producer.embedded import FOLDER, embedded_valkey
from paceline.producer.fleet import Batch, Fleet
from paceline.store.port import TurnWrite


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("PACELINE_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    Path("agent.yaml").write_text("name: oncall\nmodel: claude-sonnet-5-5\nprompt: Who owns {service}?\n")
    Path("rows.jsonl").write_text('{"id": "a", "service": "search"}\n{"id": "b", "service": "cart"}\n')


@pytest.fixture
def prefix(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A record of the test's own."""
    prefix = f"test-{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv("PACELINE_REDIS_URL", valkey_url)
    monkeypatch.setenv("PACELINE_PREFIX", prefix)
    return prefix


class Said:
    """What a command said, and how it ended."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        capsys.readouterr()
        self.code = run_command(arguments)
        self.out, self.err = capsys.readouterr()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def finish(batch: str, row: str, reason: StopReason = StopReason.FINAL_ANSWER) -> RunId:
    run = run_id(BatchName(batch), row)

    async def one_turn(fleet: Fleet) -> None:
        driven = Driven(fleet.store, run)
        await driven.begin()
        answer = "Ada" if reason is StopReason.FINAL_ANSWER else None
        outcome = Outcome(reason=reason, answer=answer, message="no answer after 1 turns")
        await fleet.store.finish(driven.held, TurnWrite(spent=SPENT, ledger=(model_called(),)), outcome)

    with Fleet() as fleet:
        fleet.loop.run(one_turn(fleet))
    return run


def submitted(capsys: pytest.CaptureFixture[str]) -> None:
    assert Said(capsys, "submit", "agent.yaml", "--input", "rows.jsonl", "--batch", "nightly").code == 0


@pytest.mark.usefixtures("prefix")
def test_submitting_prints_the_batch_and_again_adds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    first = Said(capsys, "submit", "agent.yaml", "--input", "rows.jsonl")
    again = Said(capsys, "submit", "agent.yaml", "--input", "rows.jsonl", "--json")
    assert first.out.startswith("oncall-")
    assert "2 rows submitted, 0 were there already" in first.err
    Path("one.jsonl").write_text('{"id": "c", "service": "mail"}\n')
    assert "1 row submitted, 0 were there already" in Said(capsys, "submit", "agent.yaml", "-i", "one.jsonl").err
    assert "0 rows submitted, 1 was there already" in Said(capsys, "submit", "agent.yaml", "-i", "one.jsonl").err
    assert again.json == {"batch": first.out.strip(), "created": 0, "existed": 2}


@pytest.mark.usefixtures("prefix")
def test_who_submits_is_told_what_is_done_otherwise_than_one_might_think(capsys: pytest.CaptureFixture[str]) -> None:
    agent = Path("agent.yaml").read_text()
    Path("long.yaml").write_text(f"{agent}\ncompact_at: 0.5\n")
    note = "past compact_at (0.5 of its window) the API clears old tool results itself"
    assert note in Said(capsys, "submit", "long.yaml", "--input", "rows.jsonl").err
    assert note in Said(capsys, "doctor", "long.yaml").out
    assert "note: " not in Said(capsys, "submit", "agent.yaml", "--input", "rows.jsonl").err


@pytest.mark.usefixtures("prefix")
def test_rows_are_submitted_while_the_broker_is_away_and_that_is_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_BROKER_URL", "redis://:secret@127.0.0.1:1/0")
    said = Said(capsys, "submit", "agent.yaml", "--input", "rows.jsonl")
    assert said.code == 0
    assert "2 rows submitted" in said.err
    assert said.err.count("warning: the broker at redis://") == 1
    assert "the workers find them by their sweep" in said.err
    assert "secret" not in said.err


@pytest.mark.usefixtures("prefix")
def test_a_server_that_could_lose_runs_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    said = Said(capsys, "submit", "agent.yaml", "--input", "rows.jsonl")
    assert "warning: the append-only file is off" in said.err


@pytest.mark.usefixtures("prefix")
def test_status_tells_what_is_gone_of_a_budget(capsys: pytest.CaptureFixture[str]) -> None:
    budgeted = ("submit", "agent.yaml", "--input", "rows.jsonl", "--batch", "nightly", "--budget")
    assert Said(capsys, *budgeted, "0.5").code == 0
    assert "budget $0.5000: $0.0000 spent\n" in Said(capsys, "status", "nightly").out
    assert Said(capsys, *budgeted, "12.5").code == 0
    [status] = Said(capsys, "status", "nightly", "--json").json
    assert status["budget"] == {"usd": 12.5, "spent_usd": 0.0, "reserved_usd": 0.0}
    assert Said(capsys, *budgeted, "-1").code == 2


@pytest.mark.usefixtures("prefix")
def test_a_batch_is_followed_from_the_queue_to_its_results(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(capsys)
    queued = Said(capsys, "status", "nightly")
    assert "queued" in queued.out
    assert "waiting: no worker is alive" in queued.out
    finish("nightly", "b")
    finish("nightly", "a")
    waited = Said(capsys, "wait", "nightly")
    assert (waited.code, waited.out) == (
        0,
        "ended       stop reason    rows   what to do\nsucceeded   final_answer      2\n\n"
        "2 rows, 2 turns, 0 tool calls, 246 tokens in (16% from cache), 80 out, $0.0000 "
        "(and up to $0.0002 and 1800 tokens possibly billed)\n",
    )
    results = Said(capsys, "results", "nightly").out.splitlines()
    assert [json.loads(line)["id"] for line in results] == ["a", "b"]
    to_file = Said(capsys, "results", "nightly", "-o", "out.jsonl", "--json")
    assert to_file.json == {"batch": "nightly", "output": "out.jsonl", "rows": 2}
    assert Path("out.jsonl").read_text().splitlines() == results
    again = Said(capsys, "results", "nightly", "-o", "out.jsonl")
    assert (again.code, "out.jsonl exists" in again.err) == (2, True)
    assert Said(capsys, "results", "nightly", "-o", "out.jsonl", "--force").code == 0


@pytest.mark.usefixtures("prefix")
def test_results_of_a_batch_that_is_not_over_come_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(capsys)
    finish("nightly", "a")
    said = Said(capsys, "results", "nightly")
    assert said.code == 0
    assert "warning: 1 of 2 rows are not over" in said.err
    assert len(said.out.splitlines()) == 2


@pytest.mark.usefixtures("prefix")
def test_waiting_says_with_its_code_that_a_row_did_not_succeed(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(capsys)
    finish("nightly", "a")
    finish("nightly", "b", StopReason.MAX_TURNS)
    said = Said(capsys, "wait", "nightly", "--json")
    assert said.code == 1
    assert said.json["stop_reasons"] == {"final_answer": 1, "max_turns": 1}


@pytest.mark.usefixtures("prefix")
def test_waiting_ends_when_the_time_is_up(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(capsys)
    said = Said(capsys, "wait", "nightly", "--timeout", "0.05")
    assert said.code == 1
    assert "2 runs are not over after 0.05 s" in said.err
    assert "waiting: no worker is alive" in said.err
    assert "`paceline status nightly` shows" in said.err


@pytest.mark.usefixtures("prefix")
def test_waiting_that_is_interrupted_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    submitted(capsys)
    monkeypatch.setattr(Batch, "wait", interrupted)
    said = Said(capsys, "wait", "nightly")
    assert said.code == INTERRUPTED
    assert "batch nightly goes on; `paceline wait nightly` waits for it again" in said.err


@pytest.mark.usefixtures("prefix")
def test_waiting_says_why_nothing_moves(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_STILL_SECONDS", 0.01)
    submitted(capsys)
    said = Said(capsys, "wait", "nightly", "--timeout", "0.3").err
    assert said.index("waiting: no worker is alive") < said.index("2 runs are not over")


@pytest.mark.usefixtures("prefix")
def test_batches_are_listed_with_what_they_wait_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no batch is on record" in Said(capsys, "status").out
    submitted(capsys)
    said = Said(capsys, "status")
    assert said.out.splitlines()[1].split() == ["nightly", "2", "2", "0", "0", "0", "0", "0", "$0.0000"]
    assert "nightly waits: no worker is alive" in said.out
    finish("nightly", "a", StopReason.FINISH_TOOL)
    assert Said(capsys, "status").out.splitlines()[1].split()[6:8] == ["1", "0"]
    (data,) = Said(capsys, "status", "--json").json
    assert data["waiting"] == ["no worker is alive: start some with `paceline worker`"]


@pytest.mark.usefixtures("prefix")
def test_runs_are_listed_and_chosen_by_state_and_stop_reason(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(capsys)
    finish("nightly", "b", StopReason.MAX_TURNS)
    assert len(Said(capsys, "runs").out.splitlines()) == 3
    by_reason = Said(capsys, "runs", "--stop-reason", "max_turns", "--json").json
    assert [(run["id"], run["answer"]) for run in by_reason] == [("b", None)]
    assert [run["id"] for run in Said(capsys, "runs", "--state", "queued", "--json").json] == ["a"]
    assert "there are more" in Said(capsys, "runs", "--limit", "1").err
    wrong = Said(capsys, "runs", "--state", "quued")
    assert wrong.code == 2
    assert "none of" in wrong.err


@pytest.mark.usefixtures("prefix")
def test_a_run_is_told_and_its_messages_only_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(capsys)
    run = finish("nightly", "a")
    quiet = Said(capsys, "show", run)
    assert quiet.out.startswith("Row 'a' of batch nightly by agent oncall succeeded")
    assert "Who owns" not in quiet.out
    assert "Who owns search?" in Said(capsys, "show", run, "--transcript").out
    assert Said(capsys, "show", run, "--json").json["result"]["stop_reason"] == "final_answer"
    assert "invoke_agent oncall" in Said(capsys, "show", run, "--trace").out
    (root,) = Said(capsys, "show", run, "--trace", "--json").json["traces"]
    assert root["attributes"]["paceline.run.id"] == run


@pytest.mark.usefixtures("prefix")
def test_a_run_or_a_batch_is_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(capsys)
    assert Said(capsys, "cancel", run_id(BatchName("nightly"), "a")).out == "1 cancelled\n"
    assert Said(capsys, "cancel", run_id(BatchName("nightly"), "a")).out == "1 was over already\n"
    assert Said(capsys, "cancel", "nightly", "--json").json == {"name": "nightly", "ended": 1, "cancelled": 1}
    assert Said(capsys, "cancel", "nightly").out == "2 were over already\n"
    unknown = Said(capsys, "cancel", "nihgtly")
    assert (unknown.code, unknown.err.startswith("error: no batch and no run 'nihgtly'")) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("submit", "none.yaml", "-i", "rows.jsonl"), "error: none.yaml: no such file"),
        (("submit", "agent.yaml", "-i", "none.jsonl"), "error: none.jsonl: no such file"),
        (("status", "none"), "error: no batch 'none' is on record"),
        (("show", "none"), "error: no run 'none' is on record"),
        (("run", "agent.yaml", "-i", "rows.jsonl"), "error: there is no key for the model"),
        (("submit", "agent.yaml"), "Missing option '--input'"),
        (("frobnicate",), "No such command 'frobnicate'"),
    ],
)
@pytest.mark.usefixtures("prefix")
def test_what_the_caller_can_mend_ends_with_2_and_a_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    said = Said(capsys, *arguments)
    assert said.code == 2
    assert why in " ".join(said.err.split())
    assert "Traceback" not in said.err


def test_the_command_says_which_version_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out == f"paceline {metadata.version('paceline')}\n"


def test_without_a_fleet_the_caller_is_told_what_to_set(capsys: pytest.CaptureFixture[str]) -> None:
    said = Said(capsys, "status")
    assert said.code == 2
    assert "set PACELINE_REDIS_URL" in said.err


@pytest.mark.parametrize("arguments", [(), ("dead",)])
def test_without_a_command_there_is_help_and_no_error(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    said = Said(capsys, *arguments)
    assert said.code == 2
    assert "Usage:" in said.out
    assert said.err == ""


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("submit", "agent.yaml"), "paceline submit --help"),
        (("dead", "list", "--limit", "x"), "paceline dead list --help"),
        (("runs", "--state", "quued"), "paceline runs --help"),
        (("frobnicate",), "paceline --help"),
    ],
)
def test_a_usage_error_names_the_help_of_its_own_command(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], where: str
) -> None:
    assert f"(see `{where}`)" in Said(capsys, *arguments).err


def test_what_nothing_serves_takes_no_rows_and_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with embedded_valkey(FOLDER) as url, Fleet(url) as fleet:
        fleet.submit(AGENT, [{"id": "a", "prompt": "x"}], batch="nightly")
        assert Said(capsys, "submit", "agent.yaml", "--input", "rows.jsonl").code == 0
    for command in (("submit", "agent.yaml", "--input", "rows.jsonl"), ("wait", "nightly")):
        said = Said(capsys, *command)
        assert said.code == 2
        assert "only `paceline run` serves the record in .paceline/" in said.err
        assert "set PACELINE_REDIS_URL" in said.err
    assert "no worker is alive: run the same `paceline run ...` again" in Said(capsys, "status", "nightly").out


@pytest.mark.parametrize(
    ("options", "pool", "queues", "slots"),
    [
        (["--tools-only"], "prefork", "paceline.tools", str(os.cpu_count())),
        (["--tools-only", "--concurrency", "3"], "prefork", "paceline.tools", "3"),
        ([], None, "paceline.tools,paceline.turns,paceline.starts", "64"),
    ],
)
@pytest.mark.usefixtures("prefix")
def test_a_worker_is_started_with_the_pool_that_suits_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    pool: str | None,
    queues: str,
    slots: str,
) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, command: became.append(command))
    monkeypatch.setenv("PACELINE_POOL", "")
    monkeypatch.setenv("PACELINE_TOOLS_PATH", "")
    monkeypatch.setenv("PACELINE_CONCURRENCY", "")
    assert Said(capsys, "worker", *options).code == 0
    (command,) = became
    assert command[command.index("--queues") + 1] == queues
    assert command[command.index("--concurrency") + 1] == os.environ["PACELINE_CONCURRENCY"] == slots
    assert (os.environ["PACELINE_POOL"] or None) == pool


@pytest.mark.parametrize(
    ("option", "given", "known"),
    [
        ("--queues", "paceline.turns,foo", "'foo': give one of paceline.tools"),
        ("--queues", "", "there is no ''"),
        ("--log-level", "loud", "'loud': give one of debug, info, warning, error"),
    ],
)
def test_what_a_worker_cannot_serve_or_say_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, option: str, given: str, known: str
) -> None:
    monkeypatch.setenv("PACELINE_REDIS_URL", "redis://127.0.0.1:1/0")
    said = Said(capsys, "worker", option, given)
    assert (said.code, known in said.err) == (USAGE, True), said.err


def test_a_worker_without_a_fleet_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no fleet to join" in Said(capsys, "worker").err


@pytest.mark.parametrize("command", [("status",), ("submit", "agent.yaml", "-i", "rows.jsonl"), ("wait", "x")])
def test_a_server_that_is_away_ends_with_3_and_names_the_address_without_its_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PACELINE_REDIS_URL", "redis://:secret@127.0.0.1:1/0")
    said = Said(capsys, *command)
    assert said.code == 3
    assert "Redis at redis://:***@127.0.0.1:1/0 cannot be reached" in said.err
    assert "secret" not in said.err


def test_an_address_that_is_none_names_every_form_there_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_REDIS_URL", "amqp://:secret@h")
    said = Said(capsys, "status")
    assert said.code == 2
    forms = ("redis://", "rediss://", "unix://", "sentinel://", "redis+cluster://", "rediss+cluster://")
    assert [form for form in forms if form not in said.err] == []
    assert "secret" not in said.err


def test_a_wrong_password_a_replica_and_eviction_are_told_apart_and_nothing_is_submitted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with embedded_valkey(tmp_path / "server") as url, Redis.from_url(url) as client:
        submit = ("submit", "agent.yaml", "--input", "rows.jsonl")
        monkeypatch.setenv("PACELINE_REDIS_URL", url.replace("redis://:", "redis://:x"))
        wrong = Said(capsys, *submit)
        monkeypatch.setenv("PACELINE_REDIS_URL", url)
        client.config_set("maxmemory-policy", "allkeys-lru")
        evicting = Said(capsys, *submit)
        client.config_set("maxmemory-policy", "noeviction")
        client.replicaof("127.0.0.1", "1")
        replica = Said(capsys, *submit)
        assert client.dbsize() == 0
    assert [said.code for said in (wrong, evicting, replica)] == [3, 3, 3]
    assert "refuses the login" in wrong.err
    assert "CONFIG SET maxmemory-policy noeviction" in evicting.err
    assert "point PACELINE_REDIS_URL at the primary" in replica.err


def test_what_a_run_left_in_the_folder_can_be_read_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    with embedded_valkey(FOLDER) as url, Fleet(url) as fleet:
        fleet.submit(AGENT, [{"id": "a", "prompt": "x"}], batch="nightly")
        assert Said(capsys, "status", "nightly").code == 0
    assert "batch nightly" in Said(capsys, "status", "nightly").out


@pytest.mark.usefixtures("prefix")
def test_the_doctor_finds_a_fit_set_up_fit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-very-secret")
    said = Said(capsys, "doctor", "agent.yaml", "--json")
    marks = {check["check"]: check["mark"] for check in said.json}
    assert said.code == 0
    assert {marks[name] for name in ("python", "packages", "key", "clock", "broker", "agent")} == {"ok"}
    assert marks["workers"] == "warn"
    assert "secret" not in said.out


def test_the_doctor_says_what_is_wrong_and_how_to_mend_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_REDIS_URL", "redis://127.0.0.1:1/0")
    said = Said(capsys, "doctor", "none.yaml")
    assert said.code == 1
    assert "fail  redis: Redis at redis://127.0.0.1:1/0 cannot be reached" in said.out
    assert "fail  agent: none.yaml: no such file" in said.out
    assert "warn  key: no key" in said.out
    monkeypatch.setenv("PACELINE_CLAIM_SECONDS", "soon")
    assert "fail  settings: PACELINE_CLAIM_SECONDS='soon'" in Said(capsys, "doctor").out


def test_the_doctor_calls_nothing_ok_whose_details_fail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Path("agent.yaml").write_text("name: a\nmodel: claude-sonnet-5-5\ntools: ['pc_nowhere:f']\n")
    with embedded_valkey(tmp_path / "server") as url, Redis.from_url(url) as client:
        monkeypatch.setenv("PACELINE_REDIS_URL", url)
        client.config_set("maxmemory-policy", "allkeys-lru")
        said = Said(capsys, "doctor", "agent.yaml")
    assert "fail  redis: Valkey" in said.out
    assert "ok    redis" not in said.out
    fix = said.out.split("fail  agent: ")[1].split("fix: ")[1]
    assert "beside the agent file" in fix
    assert "PACELINE_TOOLS_PATH" in fix


def test_the_doctor_knows_that_no_fleet_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    said = Said(capsys, "doctor")
    assert said.code == 0
    assert "`paceline run` will start an embedded Valkey" in said.out


def test_an_interrupt_ends_with_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(batches, "opened_fleet", interrupted)
    assert Said(capsys, "status").code == 130


def test_a_fault_of_ours_is_a_line_and_a_traceback_only_on_demand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(batches, "opened_fleet", broken)
    said = Said(capsys, "status")
    assert said.code == 3
    assert said.err.startswith("error: unexpected ZeroDivisionError: division by zero\nPACELINE_DEBUG=1 shows where")
    monkeypatch.setenv("PACELINE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run_command(["status"])


def test_the_help_needs_nothing_that_is_slow_to_import() -> None:
    code = (
        "import sys; from paceline.producer.cli import run_command; run_command(['--help']); "
        "print(sorted({'anthropic', 'celery', 'kombu', 'redis', 'pydantic', 'jsonschema'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_leaves_is_no_error() -> None:
    command = [sys.executable, "-m", "paceline.producer.cli", "doctor"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait()


@pytest.mark.usefixtures("prefix")
def test_progress_is_one_line_that_is_redrawn_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(capsys)
    with Fleet() as fleet, screens.LiveScreen() as screen:
        screen.show(fleet.batch("nightly").status())
        screen.say("a note [that is no markup]")
    assert "a note [that is no markup]" in capsys.readouterr().err


@pytest.mark.usefixtures("prefix")
def test_progress_is_a_line_now_and_then_where_it_is_piped(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(capsys)
    with Fleet() as fleet, screens.screen() as screen:
        status = fleet.batch("nightly").status()
        capsys.readouterr()
        screen.show(status)
        screen.show(status)
    assert capsys.readouterr().err == "0/2 rows, 0 running, 0 turns, 0 tokens, $0.0000, - cached\n"


def awaiting_decision(batch: str, row: str) -> RunId:
    run = run_id(BatchName(batch), row)
    with Fleet() as fleet:
        fleet.loop.run(Driven(fleet.store, run).bring_to(State.AWAITING_DECISION))
    return run


@pytest.mark.usefixtures("prefix")
def test_a_call_in_doubt_is_listed_shown_and_settled(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(capsys)
    run = awaiting_decision("nightly", "a")
    assert run in Said(capsys, "runs", "--state", "awaiting_decision").out
    assert f"paceline resolve {run} c1" in Said(capsys, "show", run).out
    Path("result.txt").write_text("charged")
    settled = Said(capsys, "resolve", run, "c1", "--result", "result.txt", "--json")
    assert (settled.code, settled.json["decision"]) == (0, "Ran")
    assert "it has its tools' results" in Said(capsys, "show", run).out


@pytest.mark.usefixtures("prefix")
def test_a_decision_must_be_one_and_only_one(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(capsys)
    run = awaiting_decision("nightly", "a")
    for given in ([], ["--ran", "--not-ran"]):
        said = Said(capsys, "resolve", run, "c1", *given)
        assert said.code == 2
        assert "say one of --ran, --not-ran and --result FILE" in said.err
    missing = Said(capsys, "resolve", run, "c1", "--result", "nowhere.txt")
    assert missing.code == 2
    assert "nowhere.txt" in missing.err
    assert Said(capsys, "resolve", run, "c1", "--not-ran").code == 0
    assert Said(capsys, "resolve", run, "c1", "--not-ran").code == 2


@pytest.mark.usefixtures("prefix")
def test_a_call_that_wants_an_approval_is_listed_shown_and_approved_or_denied(
    capsys: pytest.CaptureFixture[str],
) -> None:
    submitted(capsys)
    runs = [run_id(BatchName("nightly"), row) for row in "ab"]
    with Fleet() as fleet:
        for run in runs:
            fleet.loop.run(Driven(fleet.store, run).bring_to(State.AWAITING_APPROVAL))
    approved, denied = runs
    listed = Said(capsys, "runs", "--state", "awaiting_approval").out
    assert approved in listed
    assert denied in listed
    assert "2 await the approval of a call" in Said(capsys, "status", "nightly").out
    assert f"paceline approve {approved} c1" in Said(capsys, "show", approved).out
    assert Said(capsys, "show", approved, "--json").json["awaiting_approval"][0]["call_id"] == "c1"
    assert Said(capsys, "approve", approved, "c1", "--json").json["decision"] == "approved"
    assert "a person approved tool search: it may run (c1)" in Said(capsys, "show", approved).out
    assert Said(capsys, "deny", denied, "c1", "--reason", "too much").code == 0
    shown = Said(capsys, "show", denied).out
    assert "a person denied tool search: too much (c1)" in shown
    assert "it has its tools' results" in shown
    again = Said(capsys, "approve", denied, "c1")
    assert again.code == 2
    assert "wants no approval: its calls that do are: none" in again.err


@pytest.mark.usefixtures("prefix")
def test_runs_that_failed_are_listed_shown_and_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(capsys)
    failed, stopped = finish("nightly", "a", StopReason.MODEL_ERROR), finish("nightly", "b", StopReason.MAX_TURNS)
    listed = Said(capsys, "dead", "list", "--batch", "nightly")
    assert failed in listed.out
    assert stopped not in listed.out
    assert [row["run_id"] for row in Said(capsys, "dead", "list", "--json").json] == [failed]
    assert "failed (model_error)" in Said(capsys, "dead", "show", failed).out
    assert Said(capsys, "dead", "redrive", failed, "--json").json == {"name": failed, "redriven": 1, "spent": {}}
    assert Said(capsys, "dead", "redrive", failed).code == 2
    assert "somebody wanted the run to go on after its end" in Said(capsys, "show", failed).out
    assert Said(capsys, "retry", "nightly").out.splitlines() == [
        "no run can go on",
        "left as they are, for they would only end so again: 1 max_turns; raise the limit, submit a new batch",
    ]
    refused = Said(capsys, "retry", stopped)
    assert (refused.code, "would only end by max_turns again" in refused.err) == (2, True)


@pytest.mark.usefixtures("prefix")
def test_runs_that_can_go_on_say_when(capsys: pytest.CaptureFixture[str]) -> None:
    submitted(capsys)
    finish("nightly", "a", StopReason.MODEL_ERROR)
    assert Said(capsys, "retry", "nightly").out == "1 goes on within a few seconds, once a worker is alive\n"
