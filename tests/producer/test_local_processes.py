import os
import signal
import sys
from pathlib import Path

import pytest
from support.waiting import wait_until

from paceline.core.errors import InfrastructureError, UsageError
from paceline.producer.children import start_child, stop_children
from paceline.producer.local_simulator import local_simulator
from paceline.producer.local_workers import LocalWorkers

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]


def workers(tmp_path: Path, command: list[str], said: list[str], *, count: int = 2) -> LocalWorkers:
    return LocalWorkers(
        count=count,
        command=command,
        environment=os.environ,
        log_folder=tmp_path,
        say=said.append,
        grace_seconds=10,
    )


def test_workers_live_from_the_beginning_of_the_block_to_its_end(tmp_path: Path) -> None:
    with workers(tmp_path, SLEEPER, []) as running:
        assert [child.is_alive for child in running.children] == [True, True]
        wait_until(lambda: running.children[1].last_words() == "up", "worker-2 speaks")
    assert [child.process.returncode for child in running.children] == [-signal.SIGTERM] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["worker-1.log", "worker-2.log"]


def test_a_worker_that_dies_is_replaced_and_it_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    with workers(tmp_path, SLEEPER, said) as running:
        first, second = running.children
        first.process.kill()
        first.process.wait()
        running.replace_dead()
        assert running.children[1] is second
        assert running.children[0].is_alive
    assert said == [f"worker-1 (process {first.process.pid}) is gone (signal 9); a new one takes its place"]


def test_workers_that_die_as_soon_as_they_start_are_given_up_with_their_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no such tool'); raise SystemExit(3)"]
    with workers(tmp_path, command, [], count=1) as running:

        def replace_for_ever() -> None:
            while True:
                running.children[0].process.wait()
                running.replace_dead()

        with pytest.raises(InfrastructureError, match=r"(?s)worker-1 ended .* \(exit code 3\).*no such tool"):
            replace_for_ever()


def test_a_child_that_does_not_listen_is_killed_after_the_grace(tmp_path: Path) -> None:
    child = start_child("stubborn", STUBBORN, environment=os.environ, log=tmp_path / "log")
    wait_until(lambda: child.last_words() == "up", "the child is up")
    stop_children([child], grace_seconds=0.1)
    assert child.process.returncode == -signal.SIGKILL


def test_a_simulator_serves_from_the_beginning_of_the_block_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "playbook.yaml").write_text("rules: [{answer: {text: hi}}]\n")
    with local_simulator(tmp_path / "playbook.yaml", log_folder=tmp_path) as url:
        assert url.startswith("http://127.0.0.1:")


def test_a_playbook_that_is_wrong_is_reported_in_the_simulators_words(tmp_path: Path) -> None:
    (tmp_path / "playbook.yaml").write_text("rules: [{anser: {text: hi}}]\n")
    with (
        pytest.raises(UsageError, match=r"(?s)the simulator did not start with .*playbook.yaml: .*anser"),
        local_simulator(tmp_path / "playbook.yaml", log_folder=tmp_path),
    ):
        pass


def test_a_playbook_that_is_not_there_is_the_callers_to_mend(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="no such file"),
        local_simulator(tmp_path / "none.yaml", log_folder=tmp_path),
    ):
        pass
