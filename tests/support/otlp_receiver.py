"""Somebody who takes traces over OTLP, in this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2

Received = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedSpan:
    """A span as it came. `parent` is empty for a root; `error` says whether its status is ERROR."""

    name: str
    kind: str
    trace: str
    span: str
    parent: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Received]
    error: bool
    links: tuple[tuple[str, str], ...]
    events: tuple[str, ...]


class Inbox:
    """What came."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.raw: list[bytes] = []

    def take(self, request: ExportTraceServiceRequest) -> None:
        self.raw.append(request.SerializeToString())
        self.spans += [
            _received(span)
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]


class OtlpReceiver(Inbox):
    """Takes OTLP/HTTP on a free port of loopback from `with` to its end. While `status` is not 200 it takes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 200
        self.requests = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        """The value of OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> OtlpReceiver:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.requests += 1
                if receiver.status == 200:
                    receiver.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(receiver.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: pytest shows what went wrong."""

        return Handler


class OtlpGrpcReceiver(Inbox):
    """Takes OTLP/gRPC on a free port of loopback from `with` to its end."""

    def __init__(self) -> None:
        super().__init__()
        self._server = grpc.server(ThreadPoolExecutor(max_workers=2))
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        handler = grpc.unary_unary_rpc_method_handler(
            self._export,
            request_deserializer=ExportTraceServiceRequest.FromString,
            response_serializer=ExportTraceServiceResponse.SerializeToString,
        )
        service = grpc.method_handlers_generic_handler(_TRACE_SERVICE, {"Export": handler})
        self._server.add_generic_rpc_handlers((service,))

    @property
    def url(self) -> str:
        """The value of OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> OtlpGrpcReceiver:
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.stop(None).wait()

    def _export(self, request: ExportTraceServiceRequest, context: object) -> ExportTraceServiceResponse:
        self.take(request)
        return ExportTraceServiceResponse()


_TRACE_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


def _received(span: trace_pb2.Span) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        trace=span.trace_id.hex(),
        span=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes={pair.key: _value(pair.value) for pair in span.attributes},
        error=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        events=tuple(event.name for event in span.events),
    )


def _value(value: AnyValue) -> Received:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "bool_value":
            return value.bool_value
        case _:
            return tuple(item.string_value for item in value.array_value.values)
