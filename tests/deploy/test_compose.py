"""The Compose file says what Compose takes and our command understands; its demo is played with real processes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from deploy.command_lines import mistake_in, unknown_variables
from deploy.demo import ROWS, Demo, Service
from deploy.programs import ROOT, Compose
from support.waiting import wait_until

from paceline.core.wire import Queue
from paceline.worker.process import LEAVING_SECONDS

PROFILES = ("fleet", "demo", "observability", "cli")
FILE = ROOT / "docker-compose.yml"


@pytest.fixture(scope="module")
def services(compose: Compose, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Service]:
    return read_services(compose, tmp_path_factory.mktemp("compose"))


def read_services(compose: Compose, folder: Path) -> dict[str, Service]:
    """All services of all profiles, as Compose reads them in this folder."""
    read = compose.config(*PROFILES, file=with_fleet_env(folder))
    assert read.returncode == 0, read.stderr
    return dict(json.loads(read.stdout)["services"])


def with_fleet_env(folder: Path) -> Path:
    """The file in a folder where `fleet.env` was made of its example."""
    (folder / "fleet.env").write_text((ROOT / "compose" / "fleet.env.example").read_text())
    copied = folder / "docker-compose.yml"
    copied.write_text(FILE.read_text())
    return copied


def ours(services: Mapping[str, Service]) -> dict[str, Service]:
    return {name: service for name, service in services.items() if "build" in service}


@pytest.mark.parametrize("profile", ["demo", "observability"])
def test_a_profile_needs_no_variable(compose: Compose, profile: str) -> None:
    read = compose.config(profile)
    assert (read.returncode, read.stderr) == (0, "")


def test_a_fleet_without_its_variables_is_not_started(compose: Compose, tmp_path: Path) -> None:
    copied = with_fleet_env(tmp_path)
    assert compose.config("fleet", file=copied).returncode == 0
    (tmp_path / "fleet.env").unlink()
    read = compose.config("fleet", file=copied)
    assert read.returncode != 0
    assert "fleet.env not found" in read.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("stop_grace_period: 80s", "stop_grace_periode: 80s"),
        ("condition: service_healthy", "condition: service_wholesome"),
        ("sim: {condition", "simulator: {condition"),
        ("<<: *paceline", "<<: *pacelin"),
    ],
)
def test_a_mistake_is_found(compose: Compose, tmp_path: Path, right: str, wrong: str) -> None:
    planted = with_fleet_env(tmp_path)
    assert right in planted.read_text()
    planted.write_text(planted.read_text().replace(right, wrong, 1))
    assert compose.config(*PROFILES, file=planted).returncode != 0


def test_every_service_of_ours_is_given_a_command_and_variables_that_we_have(services: Mapping[str, Service]) -> None:
    for name, service in ours(services).items():
        assert mistake_in(service["command"]) is None, name
        assert unknown_variables(service.get("environment", {})) == [], name


def test_each_fleet_serves_every_queue(services: Mapping[str, Service]) -> None:
    for turns, tools in (("turns", "tools"), ("demo-turns", "demo-tools")):
        command = services[turns]["command"]
        served = set(command[command.index("--queues") + 1].split(","))
        assert "--tools-only" in services[tools]["command"]
        assert served | {Queue.TOOLS} == {*Queue}


def test_nothing_listens_but_on_this_machine(services: Mapping[str, Service]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert {port["host_ip"] for port in published} == {"127.0.0.1"}


def test_no_service_of_ours_may_do_more_than_it_must(services: Mapping[str, Service]) -> None:
    for name, service in ours(services).items():
        assert service["read_only"], name
        assert service["tmpfs"] == ["/tmp"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["init"], name
        assert all(mount["read_only"] for mount in service.get("volumes", [])), name


def test_a_worker_is_given_longer_to_stop_than_its_grace(services: Mapping[str, Service]) -> None:
    for name in ("turns", "tools", "demo-turns", "demo-tools"):
        grace_s = float(services[name]["environment"]["PACELINE_GRACE_SECONDS"])
        minutes, seconds = re.fullmatch(r"(?:(\d+)m)?(\d+)s", services[name]["stop_grace_period"]).groups()  # type: ignore[union-attr]
        assert int(minutes or 0) * 60 + int(seconds) >= grace_s + LEAVING_SECONDS + 2


def test_the_server_keeps_what_it_is_given(services: Mapping[str, Service]) -> None:
    command = services["valkey"]["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"


def linked_root(folder: Path) -> Path:
    """A folder that has what is here, but for what is written there; never a user's own `fleet.env`."""
    for path in ROOT.iterdir():
        if path.name not in ("docker-compose.yml", "fleet.env"):
            (folder / path.name).symlink_to(path)
    return folder


def test_what_is_mounted_or_watched_is_there(compose: Compose, tmp_path: Path) -> None:
    services = read_services(compose, linked_root(tmp_path)).values()
    mounts = [mount for service in services for mount in service.get("volumes", []) if mount["type"] == "bind"]
    watches = [watch for service in services for watch in service.get("develop", {}).get("watch", [])]
    assert mounts
    assert watches
    paths = [Path(path) for path in (*(watch["path"] for watch in watches), *(mount["source"] for mount in mounts))]
    assert [str(path) for path in paths if not path.exists()] == []


def test_every_image_is_of_a_version(services: Mapping[str, Service]) -> None:
    assert [service["image"] for service in services.values() if not re.search(r":.*[\da-z]", service["image"])] == []
    assert [service["image"] for service in services.values() if service["image"].endswith(":latest")] == []


# The demo, with processes in place of containers


def test_the_demo_ends_with_an_answer_for_every_row(services: dict[str, Service], tmp_path: Path) -> None:
    with Demo(tmp_path, services) as demo:
        before = [name for name in services["demo"]["depends_on"] if name != "valkey"]
        assert before == ["demo-tools", "demo-turns", "sim"]
        for name in before:
            demo.start(name)
        for name in before:
            wait_until(lambda name=name: demo.is_well(name), f"{name} is well", timeout_s=60)  # type: ignore[misc]
        ended = demo.start("demo")
        assert ended.process.wait(60) == 0, ended.last_words(lines=20)
        assert re.search(rf"succeeded +final_answer +{ROWS}\b", ended.last_words(lines=20))
