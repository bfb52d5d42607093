"""Whether traces are wanted: as the standard variables say, and not unless somebody names a receiver."""

from __future__ import annotations

from collections.abc import Mapping

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def is_on(environment: Mapping[str, str]) -> bool:
    """Whether these variables name somebody who takes traces, and do not switch them off."""
    is_off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    is_off = is_off or environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"
    return not is_off and any(environment.get(name, "").strip() for name in _ENDPOINTS)
