"""What comes to a receiver, by OTLP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from support.otlp_receiver import OtlpGrpcReceiver, OtlpReceiver
from support.ports import free_ports

from paceline.core.errors import UsageError
from paceline.core.ids import RunId, trace_id
from paceline.core.trace_ids import root_span, turn_span
from paceline.core.trace_span import Kind, Moment, Place, Span
from paceline.worker.telemetry import switch
from paceline.worker.telemetry.otlp import OtlpTracer, otlp_exporter
from paceline.worker.telemetry.switch import Wire, check, is_on, wire

pytestmark = pytest.mark.anyio

RUN = RunId("batch-row")
TRACE = trace_id(RUN)
ROOT = Span(
    name="invoke_agent oncall",
    kind=Kind.INTERNAL,
    place=Place(trace=TRACE, span=root_span(RUN, 0)),
    parent=None,
    start_ms=1_800_000_000_000,
    end_ms=1_800_000_009_000,
    attributes={"paceline.turns": 2, "gen_ai.response.finish_reasons": ("stop",)},
)
TURN = Span(
    name="turn",
    kind=Kind.CONSUMER,
    place=Place(trace=TRACE, span=turn_span(RUN, 2)),
    parent=ROOT.place.span,
    start_ms=1_800_000_001_000,
    end_ms=1_800_000_002_000,
    attributes={},
    error="worker_lost",
    links=(Place(trace=TRACE, span=turn_span(RUN, 1)),),
    moments=(Moment(name="paceline.held", at_ms=1_800_000_002_000),),
)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        yield receiver


@asynccontextmanager
async def _a_tracer(wire: Wire = Wire.HTTP) -> AsyncIterator[OtlpTracer]:
    tracer = OtlpTracer(otlp_exporter(wire))
    try:
        yield tracer
    finally:
        await tracer.aclose()


@pytest.mark.parametrize(("kind", "wire"), [(OtlpReceiver, Wire.HTTP), (OtlpGrpcReceiver, Wire.GRPC)])
async def test_a_span_comes_as_it_was_told_with_the_ids_that_were_chosen(
    kind: type[OtlpReceiver] | type[OtlpGrpcReceiver], wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kind() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        await _told_to(receiver, wire)


async def _told_to(receiver: OtlpReceiver | OtlpGrpcReceiver, wire: Wire) -> None:
    async with _a_tracer(wire) as tracer:
        tracer.record([TURN, ROOT])
        await tracer.flush()
        turn, root = receiver.spans
    assert (root.trace, root.span, root.parent) == (TRACE, ROOT.place.span, "")
    assert (root.start_ns, root.end_ns, root.error) == (1_800_000_000_000_000_000, 1_800_000_009_000_000_000, False)
    assert root.attributes == ROOT.attributes
    assert (turn.trace, turn.span, turn.parent) == (TRACE, TURN.place.span, ROOT.place.span)
    assert (turn.kind, turn.error, turn.attributes["error.type"]) == ("consumer", True, "worker_lost")
    assert turn.links == ((TRACE, turn_span(RUN, 1)),)
    assert turn.events == ("paceline.held",)


async def test_what_was_told_last_is_sent_before_the_end(receiver: OtlpReceiver) -> None:
    async with _a_tracer() as tracer:
        tracer.record([ROOT])
    assert [span.name for span in receiver.spans] == [ROOT.name]


async def test_a_receiver_that_is_not_there_costs_a_few_seconds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_ports(1)[0]}")
    loop = asyncio.get_running_loop()
    async with _a_tracer() as tracer:
        tracer.record([TURN])
        began = loop.time()
        await tracer.flush()
        assert loop.time() - began < 3.5
        began = loop.time()
        for _ in range(100):
            tracer.record([TURN])
            await tracer.flush()
        assert loop.time() - began < 0.5


async def test_a_run_is_sampled_whole_as_the_variables_say(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    runs = [RunId(f"batch-{number}") for number in range(200)]
    async with _a_tracer() as one, _a_tracer() as another:
        sampled = [run for run in runs if one.samples(run)]
        assert sampled == [run for run in runs if another.samples(run)]
    assert 60 < len(sampled) < 140


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_traces_are_wanted_where_somebody_is_named_who_takes_them(environment: dict[str, str], wanted: bool) -> None:
    assert is_on(environment) is wanted


def test_traces_are_sent_as_the_variables_say() -> None:
    assert wire({}) is Wire.HTTP
    assert wire({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) is Wire.GRPC
    both = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    assert wire(both) is Wire.HTTP


def test_a_protocol_that_is_not_spoken_or_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UsageError, match="OTEL_EXPORTER_OTLP_PROTOCOL=http/json: traces are sent by http/protobuf or grpc"
    ):
        wire({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})
    monkeypatch.setattr(switch, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install 'paceline\[grpc\]'"):
        wire({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    with pytest.raises(UsageError):
        check({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"})
    check({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
