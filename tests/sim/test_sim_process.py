"""The simulator as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.sim_wire import body, post

from paceline.sim import Answer, Journal, Simulator


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_announces_itself_answers_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    playbook, journal = tmp_path / "playbook.yaml", tmp_path / "journal.jsonl"
    playbook.write_text("rules: [{answer: {text: hi}}]")
    command = [sys.executable, "-m", "paceline.sim", "--playbook", str(playbook), "--journal", str(journal)]
    with subprocess.Popen([*command, "--delay-s", "0.05"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        assert post(url, body()).body["content"] == [{"type": "text", "text": "hi"}]
        process.send_signal(number)
        assert process.wait(10) == 0
    (entry,) = Journal.read(journal).entries
    assert entry.latency_s >= 0.05


def test_the_command_tells_what_is_wrong_with_its_playbook(tmp_path: Path) -> None:
    playbook = tmp_path / "playbook.yaml"
    playbook.write_text("rules: [{anwser: {text: hi}}]")
    command = [sys.executable, "-m", "paceline.sim", "--playbook", str(playbook)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert "rule 1: anwser: unknown field; did you mean `answer`?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_told_at_once() -> None:
    with Simulator(lambda request: Answer()) as first:
        port = int(first.url.rpartition(":")[2])
        with pytest.raises(OSError, match="address already in use"), Simulator(lambda request: Answer(), port=port):
            pass
