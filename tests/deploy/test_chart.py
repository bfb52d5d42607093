"""The chart renders what a cluster takes, refuses values that it does not know, and fits what our workers do."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.command_lines import mistake_in, unknown_variables
from deploy.prepare import KUBERNETES_VERSIONS
from deploy.programs import CHART, ROOT, Helm, Manifest, Schemas

from paceline.core.broker_address import broker_address
from paceline.core.wire import Queue
from paceline.worker.process import LEAVING_SECONDS
from paceline.worker.transport import transport_options

VALUES = sorted((Path(__file__).parent / "values").glob("*.yaml"))
LEAST, AUTOSCALED, SECRETS, WATCHED = (
    Path(__file__).parent / "values" / f"{name}.yaml" for name in ("least", "autoscaled", "secrets", "watched")
)

OUTLIVES_SECONDS = LEAVING_SECONDS + 2
"""The most by which a worker outlives its grace, and a little."""

every_set = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [manifest for manifest in of_kind(manifests, kind) if manifest["metadata"]["name"] == name]
    return found


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Any]]:
    """Every pod's name and `spec`."""
    for manifest in manifests:
        match manifest["kind"]:
            case "Deployment":
                yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]
            case "Pod":
                yield manifest["metadata"]["name"], manifest["spec"]


def settings_of(manifests: list[Manifest]) -> dict[str, str]:
    return dict(named(manifests, "ConfigMap", "fleet-paceline")["data"])


# What a cluster takes


@every_set
def test_the_chart_is_without_fault(helm: Helm, values: Path) -> None:
    linted = helm.lint("--values", values)
    assert linted.returncode == 0, linted.stdout + linted.stderr


@every_set
def test_a_cluster_takes_every_object(helm: Helm, schemas: Schemas, values: Path) -> None:
    manifests = helm.manifests("--values", values)
    assert {"Deployment", "ConfigMap", "Pod"} <= {manifest["kind"] for manifest in manifests}
    assert {manifest["metadata"]["name"]: schemas.refusals(manifest) for manifest in manifests} == {
        manifest["metadata"]["name"]: [] for manifest in manifests
    }


@pytest.mark.parametrize(
    ("values", "kind", "path", "key"),
    [
        (LEAST, "Deployment", ("spec", "template", "spec"), "terminationGracePeriodSecond"),
        (LEAST, "PodDisruptionBudget", ("spec",), "maxUnavailble"),
        (AUTOSCALED, "ScaledObject", ("spec",), "coolDownPeriod"),
        (AUTOSCALED, "ScaledObject", ("spec", "advanced", "scalingModifiers"), "formular"),
        (AUTOSCALED, "TriggerAuthentication", ("spec",), "secretTargetRefs"),
        (WATCHED, "PodMonitor", ("spec",), "podMetricsEndpoint"),
        (WATCHED, "PrometheusRule", ("spec",), "group"),
        (WATCHED, "NetworkPolicy", ("spec",), "egres"),
    ],
)
def test_a_misspelt_key_is_found(
    helm: Helm, schemas: Schemas, values: Path, kind: str, path: tuple[str, ...], key: str
) -> None:
    planted: Any = copy.deepcopy(of_kind(helm.manifests("--values", values), kind)[0])
    at = planted
    for part in path:
        at = at[part]
    at[key] = 1
    assert schemas.refusals(planted)


# What values are refused


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--set", "turn.replicas=3"], "additional properties 'turn' not allowed"),
        (["--set", "settings.graceSecond=3"], "additional properties 'graceSecond' not allowed"),
        (["--set", "image.digest=sha256:short"], "does not match pattern"),
        (["--set", "redis.url=redis://user:secret@redis:6379/0"], "does not match pattern"),
        (["--set", "turns.autoscaling.minReplicas=0"], "minimum"),
        (["--set", "settings.durability=certain"], "value must be one of 'fast', 'fsync', 'replicated'"),
        (["--set-string", "turns.replicas=many"], "got string, want integer"),
        (["--set", "image.repository="], "image.repository is missing"),
        (["--set", "redis.url="], "redis.url or redis.existingSecret.name is missing"),
        (["--set", "tools.autoscaling.enabled=true"], "keda.redis.address is missing"),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else None,
)
def test_a_value_that_would_do_harm_is_refused_and_the_reason_told(helm: Helm, options: list[str], reason: str) -> None:
    rendered = helm.template("--values", LEAST, *options)
    assert rendered.returncode != 0
    assert reason in rendered.stderr


# What fits our workers


@every_set
def test_every_pod_is_given_commands_and_variables_that_we_have(helm: Helm, values: Path) -> None:
    manifests = helm.manifests("--values", values)
    assert unknown_variables(settings_of(manifests)) == []
    for name, pod in pods(manifests):
        (container,) = pod["containers"]
        assert mistake_in(container["args"]) is None, name
        assert unknown_variables({variable["name"]: "" for variable in container["env"]}) == [], name


def test_every_queue_is_served(helm: Helm) -> None:
    manifests = helm.manifests("--values", LEAST)
    turns, tools = (
        dict(pods(manifests))[f"fleet-paceline-{role}"]["containers"][0]["args"] for role in ("turns", "tools")
    )
    assert {*turns[turns.index("--queues") + 1].split(","), *([Queue.TOOLS] if "--tools-only" in tools else [])} == {
        *Queue
    }


@every_set
def test_a_pod_outlives_the_grace_of_its_worker_and_the_grace_a_model_call(helm: Helm, values: Path) -> None:
    manifests = helm.manifests("--values", values)
    settings = settings_of(manifests)
    grace_s = float(settings["PACELINE_GRACE_SECONDS"])
    asked_s = (yaml.safe_load(values.read_text()).get("settings") or {}).get("graceSeconds")
    assert grace_s == (asked_s or float(settings["PACELINE_MODEL_SECONDS"]))
    for role in ("turns", "tools"):
        pod = dict(pods(manifests))[f"fleet-paceline-{role}"]
        assert pod["terminationGracePeriodSeconds"] >= grace_s + OUTLIVES_SECONDS


def test_an_autoscaler_reads_what_waits_and_what_is_running(helm: Helm) -> None:
    manifests = helm.manifests("--values", AUTOSCALED)
    keys = broker_address("redis://redis.data:6379", prefix="paceline").transport_options["global_keyprefix"]
    expected = {
        "turns": {keys + Queue.TURNS, keys + Queue.STARTS, keys + transport_options(1, pool="threads")["unacked_key"]},
        "tools": {keys + Queue.TOOLS, keys + transport_options(1, pool="prefork")["unacked_key"]},
    }
    for role, read in expected.items():
        spec = named(manifests, "ScaledObject", f"fleet-paceline-{role}")["spec"]
        assert {trigger["metadata"]["listName"] for trigger in spec["triggers"]} == read
        assert sorted(trigger["name"] for trigger in spec["triggers"]) == sorted(
            spec["advanced"]["scalingModifiers"]["formula"].split(" + ")
        )
        deployment = named(manifests, "Deployment", spec["scaleTargetRef"]["name"])
        assert "replicas" not in deployment["spec"]
        arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        assert spec["advanced"]["scalingModifiers"]["target"] == arguments[arguments.index("--concurrency") + 1]


@every_set
def test_no_pod_may_do_more_than_it_must(helm: Helm, values: Path) -> None:
    for name, pod in pods(helm.manifests("--values", values)):
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert [container["securityContext"] for container in pod["containers"]] == [
            {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
        ], name
        assert pod["containers"][0]["resources"]["limits"]["memory"], name


def test_the_key_of_the_model_is_given_to_those_who_call_it_alone(helm: Helm) -> None:
    having = {
        name
        for name, pod in pods(helm.manifests("--values", SECRETS))
        if any(variable["name"] == "ANTHROPIC_API_KEY" for variable in pod["containers"][0]["env"])
    }
    assert having == {"fleet-paceline-turns", "fleet-paceline-doctor"}


def test_the_exporter_has_nothing_of_the_tools(helm: Helm) -> None:
    exporter = dict(pods(helm.manifests("--values", SECRETS)))["fleet-paceline-exporter"]["containers"][0]
    assert [variable["name"] for variable in exporter["env"]] == ["PACELINE_REDIS_URL"]
    assert exporter["envFrom"] == [{"configMapRef": {"name": "fleet-paceline"}}]


@every_set
def test_what_selects_pods_finds_some(helm: Helm, values: Path) -> None:
    manifests = helm.manifests("--values", values)
    labels = [manifest["spec"]["template"]["metadata"]["labels"] for manifest in of_kind(manifests, "Deployment")]
    for kind in ("PodDisruptionBudget", "PodMonitor", "NetworkPolicy"):
        for manifest in of_kind(manifests, kind):
            selector = manifest["spec"].get("selector") or manifest["spec"]["podSelector"]
            assert any(selector["matchLabels"].items() <= found.items() for found in labels), kind


def test_a_change_of_settings_restarts_the_pods(helm: Helm) -> None:
    def checksum(*options: str) -> str:
        manifests = helm.manifests("--values", LEAST, *options)
        template = named(manifests, "Deployment", "fleet-paceline-turns")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/settings"])

    assert checksum() == checksum("--set", "turns.replicas=9")
    assert checksum() != checksum("--set", "settings.claimSeconds=9")


def test_whoever_installs_it_is_told_what_is_missing_and_nothing_else(helm: Helm) -> None:
    least, watched, autoscaled = (helm.notes("--values", values) for values in (LEAST, WATCHED, AUTOSCALED))
    assert "WARNING: model.existingSecret.name is not set" in least
    assert "NOTE: prometheusRule.enabled is off" in least
    assert "prometheusRule" not in watched
    assert "2 to 50 workers for turns and 0 to 10 for tools" in autoscaled
    assert "WARNING" not in autoscaled


def test_the_rules_and_the_dashboards_come_with_the_chart(helm: Helm) -> None:
    manifests = helm.manifests("--values", WATCHED)
    rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
    assert named(manifests, "PrometheusRule", "fleet-paceline")["spec"] == rules
    dashboards = {path.name: path.read_text() for path in (CHART / "files" / "dashboards").glob("*.json")}
    assert dashboards
    assert named(manifests, "ConfigMap", "fleet-paceline-dashboards")["data"] == dashboards


def test_the_chart_is_of_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {chart["version"], chart["appVersion"]} == {version}


def test_the_chart_asks_for_a_cluster_that_it_was_checked_against() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={KUBERNETES_VERSIONS[0]}-0"
