"""Prometheus and its promtool, where they are installed: what Debian's package `prometheus` brings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .ports import free_ports
from .waiting import wait_until


def _binary(name: str) -> str:
    """Where a program is. Without it the test is left out; but not in a CI that may install it (`make promtool`)."""
    if (found := shutil.which(name)) is not None:
        return found
    message = f"{name} is not on PATH: `make promtool` installs it where apt-get can"
    if os.environ.get("CI") and os.geteuid() == 0 and shutil.which("apt-get"):
        pytest.fail(message)
    pytest.skip(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promtool:
    """The real promtool."""

    binary: str

    def check(self, rules: Path) -> subprocess.CompletedProcess[str]:
        """`promtool check rules`: exit code 0 when the file can be loaded."""
        return self._run("check", "rules", str(rules))

    def check_config(self, config: Path) -> subprocess.CompletedProcess[str]:
        """`promtool check config`: exit code 0 when the server can start with it, rule files included."""
        return self._run("check", "config", str(config))

    def test(self, tests: Sequence[Path]) -> subprocess.CompletedProcess[str]:
        """`promtool test rules`: exit code 0 when every test of every file passes."""
        return self._run("test", "rules", *map(str, tests))

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.binary, *arguments], capture_output=True, text=True, check=False, timeout=100)


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    return Promtool(binary=_binary("promtool"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A running server."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query. Fails with the server's own words."""
        return self._ask("query", query=expression)["result"]  # type: ignore[no-any-return]

    def rules(self) -> list[dict[str, Any]]:
        """Every rule that is loaded, as the server tells of it."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _ask(self, what: str, **parameters: str) -> dict[str, Any]:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]  # type: ignore[no-any-return]
        except urllib.error.HTTPError as error:
            with error:
                pytest.fail(f"{parameters}: {error.read().decode()}")


@contextmanager
def serve_prometheus(folder: Path, config: Mapping[str, Any]) -> Iterator[Prometheus]:
    """A Prometheus on a free port of loopback that keeps all it has in `folder`."""
    (port,) = free_ports(1)
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    command = [
        _binary("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    server = Prometheus(url=f"http://127.0.0.1:{port}")
    try:
        wait_until(server.is_ready, "Prometheus is ready")
        yield server
    finally:
        process.terminate()
        process.wait(20)
