"""Whether traces are wanted, and how they are sent: as the standard variables say."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec

from paceline.core.errors import UsageError

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class Wire(StrEnum):
    """What OTLP is spoken over."""

    HTTP = "http/protobuf"
    GRPC = "grpc"


def is_on(environment: Mapping[str, str]) -> bool:
    """Whether these variables name somebody who takes traces, and do not switch them off."""
    is_off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    is_off = is_off or environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"
    return not is_off and any(environment.get(name, "").strip() for name in _ENDPOINTS)


def check(environment: Mapping[str, str]) -> None:
    """Raises UsageError where traces are wanted in a way in which they cannot be sent."""
    if is_on(environment):
        wire(environment)


def wire(environment: Mapping[str, str]) -> Wire:
    """How traces are sent. Raises UsageError for a protocol that is not spoken here, or not installed."""
    for name in _PROTOCOLS:
        wanted = environment.get(name, "").strip().lower()
        if wanted:
            return _known(name, wanted)
    return Wire.HTTP


def _known(name: str, wanted: str) -> Wire:
    if wanted not in {*Wire}:
        raise UsageError(f"{name}={wanted}: traces are sent by {' or '.join(Wire)}")
    if wanted == Wire.GRPC and find_spec("opentelemetry.exporter.otlp.proto.grpc") is None:
        raise UsageError(f"{name}=grpc needs a package that is not installed: pip install 'paceline[grpc]'")
    return Wire(wanted)
