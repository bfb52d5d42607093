"""Inputs of tool calls that violate the tool's schema, each in one way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from paceline.sim.call import Call
from paceline.sim.request import Request

VIOLATIONS = (
    "input_missing_field",
    "input_wrong_type",
    "input_extra_field",
    "input_string_for_list",
    "input_huge_string",
    "input_nul",
    "input_lone_surrogate",
)
HUGE_CHARS = 300_000
_SAMPLES: Mapping[str, Any] = MappingProxyType(
    {"string": "some words", "integer": 3, "number": 1.5, "boolean": True, "array": [], "object": {}}
)
_WRONG: Mapping[str, Any] = MappingProxyType({"string": 7, "array": 7})
_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "input_huge_string": "x" * HUGE_CHARS,
        "input_nul": "before\x00after",
        "input_lone_surrogate": "before\ud800after",
    }
)


def violating(name: str, call: Call, request: Request) -> Call:
    """The call with an input that breaks its schema as `name` says; `cut` leaves a part of it."""
    schema = _schema(call.tool, request)
    fitting = {**_required(schema), **call.input}
    return replace(call, input=_broken(name, fitting, schema))


def _broken(name: str, fitting: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    match name:
        case "input_missing_field":
            gone = next(iter(schema.get("required") or fitting), None)
            return {key: value for key, value in fitting.items() if key != gone}
        case "input_wrong_type":
            field = _field(fitting, schema, None)
            return {**fitting, field: _WRONG.get(_type(field, schema), "seven")}
        case "input_extra_field":
            return {**fitting, "unasked": True}
        case "input_string_for_list":
            return {**fitting, _field(fitting, schema, "array"): "one, two"}
        case "cut":
            field = _field(fitting, schema, "string")
            written = str(fitting.get(field) or "some words")
            return {field: written[: len(written) // 2 + 1]}
        case _:
            return {**fitting, _field(fitting, schema, "string"): _TEXTS[name]}


def _schema(tool: str, request: Request) -> Mapping[str, Any]:
    for each in request.fields.get("tools") or ():
        if each.get("name") == tool:
            return dict(each.get("input_schema") or {})
    return {}


def _required(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _SAMPLES.get(_type(name, schema), "some words") for name in schema.get("required") or ()}


def _type(field: str, schema: Mapping[str, Any]) -> str:
    kind = (schema.get("properties") or {}).get(field, {}).get("type")
    return kind if isinstance(kind, str) else "string"


def _field(fitting: Mapping[str, Any], schema: Mapping[str, Any], kind: str | None) -> str:
    """A field of that type, else any, else one of its own making."""
    names = [*fitting, *(schema.get("properties") or ())]
    fitting_names = [name for name in names if kind is None or _type(name, schema) == kind]
    return next(iter(fitting_names or names), "field")
