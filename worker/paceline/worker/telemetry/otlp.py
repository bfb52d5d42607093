"""Spans sent by OpenTelemetry's SDK over OTLP, as the standard OTEL_* variables say. Made after a fork."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from types import MappingProxyType

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    INVALID_SPAN_ID,
    INVALID_TRACE_ID,
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from paceline.core import trace_names as names
from paceline.core.ids import RunId, trace_id
from paceline.core.trace_span import Kind, Place, Span

from .outbox import LONGEST_WAIT_SECONDS, Outbox
from .switch import Wire

_KINDS: Mapping[Kind, SpanKind] = MappingProxyType(
    {Kind.INTERNAL: SpanKind.INTERNAL, Kind.CLIENT: SpanKind.CLIENT, Kind.CONSUMER: SpanKind.CONSUMER}
)
_NS_IN_MS = 1_000_000


class OtlpTracer:
    """Lives on the process's loop."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._outbox: Outbox[ReadableSpan] = Outbox(self._export)
        self._ids = _ChosenIds()
        # Nothing in the resource tells one process from another: the worker is named by each span.
        # So a span that two of them tell is the same, byte for byte, and backends take it for one.
        service = Resource({SERVICE_NAME: "paceline", SERVICE_VERSION: version("paceline")})
        resource = service.merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(id_generator=self._ids, resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(_IntoOutbox(self._outbox))
        self._tracer = self._provider.get_tracer("paceline")

    def samples(self, run_id: RunId) -> bool:
        """By the run's own trace, with whatever sampler OTEL_TRACES_SAMPLER names."""
        decided = self._provider.sampler.should_sample(None, int(trace_id(run_id), 16), names.INVOKE_AGENT)
        return decided.decision is Decision.RECORD_AND_SAMPLE

    def record(self, spans: Sequence[Span]) -> None:
        for span in spans:
            self._record(span)

    def _record(self, span: Span) -> None:
        self._ids.choose(span.place)
        parent = Place(trace=span.place.trace, span=span.parent) if span.parent else None
        recorded = self._tracer.start_span(
            span.name,
            context=_below(parent) if parent else Context(),
            kind=_KINDS[span.kind],
            attributes=span.attributes,
            links=[Link(_context(place)) for place in span.links],
            start_time=span.start_ms * _NS_IN_MS,
        )
        for moment in span.moments:
            recorded.add_event(moment.name, moment.attributes, timestamp=moment.at_ms * _NS_IN_MS)
        if span.error:
            recorded.set_attribute(names.ERROR, span.error)
            recorded.set_status(Status(StatusCode.ERROR))
        recorded.end(span.end_ms * _NS_IN_MS)

    async def flush(self) -> None:
        await self._outbox.flush()

    async def aclose(self) -> None:
        await self.flush()
        await asyncio.to_thread(self._shut_down)

    def _shut_down(self) -> None:
        self._provider.shutdown()
        self._exporter.shutdown()

    def _export(self, spans: Sequence[ReadableSpan]) -> bool:
        return self._exporter.export(spans) is SpanExportResult.SUCCESS


def otlp_exporter(wire: Wire = Wire.HTTP) -> SpanExporter:
    """The exporter that OTEL_EXPORTER_OTLP_* describe. It gives up sooner than by default: runs wait for it."""
    match wire:
        case Wire.HTTP:
            return OTLPSpanExporter(timeout=LONGEST_WAIT_SECONDS)
        case Wire.GRPC:
            # Not everybody has it: it brings 20 MB of C.
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter

            return GrpcSpanExporter(timeout=LONGEST_WAIT_SECONDS)


class _IntoOutbox(SpanProcessor):
    def __init__(self, outbox: Outbox[ReadableSpan]) -> None:
        self._outbox = outbox

    def on_end(self, span: ReadableSpan) -> None:
        self._outbox.add(span)


class _ChosenIds(IdGenerator):
    """Gives out the ids that were chosen for the next span. One loop records, one span after another."""

    def __init__(self) -> None:
        self._trace = INVALID_TRACE_ID
        self._span = INVALID_SPAN_ID

    def choose(self, place: Place) -> None:
        self._trace, self._span = int(place.trace, 16), int(place.span, 16)

    def generate_trace_id(self) -> int:
        return self._trace

    def generate_span_id(self) -> int:
        return self._span


def _context(place: Place) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(place.trace, 16), int(place.span, 16), is_remote=True, trace_flags=flags)


def _below(parent: Place) -> Context:
    return set_span_in_context(NonRecordingSpan(_context(parent)), Context())
