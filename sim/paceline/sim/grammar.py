"""Schemas that the API compiles to a grammar: an output format, and tools that are strict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from paceline.sim.rules import Refusal, Rule, refuse
from paceline.sim.schema import Fields

MAX_STRICT_TOOLS = 20
MAX_OPTIONAL = 24
MAX_UNIONS = 16
_FORMAT = Fields("type:string schema:object name?:string")
# Look-around, references back and named conditions: what no automaton can do.
_IRREGULAR = re.compile(r"\(\?(?:[=!]|<[=!]|P=|\()|\\[1-9]|\\[bB]")
_UNSUPPORTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        "string": ("minLength", "maxLength"),
        "array": ("maxItems", "uniqueItems"),
        "object": ("minProperties", "maxProperties", "patternProperties"),
    }
)


def format_refusals(output_format: Mapping[str, Any], at: str) -> Iterator[Refusal]:
    """What an output format breaks."""
    yield from _FORMAT.refusals(output_format, at)
    if output_format["type"] != "json_schema":
        yield refuse(Rule.WRONG_TYPE, f"{at}.type", expected="'json_schema'")
    yield from grammar_refusals([(output_format["schema"], f"{at}.schema")])


def strict_refusals(tools: Sequence[Mapping[str, Any]]) -> Iterator[Refusal]:
    """What the strict ones among sound tools break, each and together."""
    schemas = [
        (tool["input_schema"], f"tools.{index}.custom.input_schema")
        for index, tool in enumerate(tools)
        if tool.get("strict") and "input_schema" in tool
    ]
    if len(schemas) > MAX_STRICT_TOOLS:
        yield refuse(Rule.SCHEMA_TOO_COMPLEX)
    yield from grammar_refusals(schemas)


def grammar_refusals(schemas: Sequence[tuple[Mapping[str, Any], str]]) -> Iterator[Refusal]:
    """What schemas with their paths break that are compiled together."""
    parts = [part for schema, at in schemas for part in _parts(schema, at)]
    for part, at in parts:
        yield from _part_refusals(part, at)
    for schema, at in schemas:
        if _is_recursive(schema):
            yield refuse(Rule.RECURSIVE_SCHEMA, at)
    optional = sum(len(set(part.get("properties") or ()) - set(part.get("required") or ())) for part, _ in parts)
    unions = sum("anyOf" in part or isinstance(part.get("type"), list) for part, _ in parts)
    if optional > MAX_OPTIONAL or unions > MAX_UNIONS:
        yield refuse(Rule.SCHEMA_TOO_COMPLEX)


def _part_refusals(part: Mapping[str, Any], at: str) -> Iterator[Refusal]:
    kind = part.get("type")
    if kind == "object" and part.get("additionalProperties") is not False:
        yield refuse(Rule.OPEN_OBJECT, at)
    keywords = [word for word in _UNSUPPORTED.get(kind if isinstance(kind, str) else "", ()) if word in part]
    if keywords:
        yield refuse(Rule.KEYWORD_NOT_SUPPORTED, at, kind=kind, keywords=", ".join(keywords))
    pattern = part.get("pattern")
    if isinstance(pattern, str) and _IRREGULAR.search(pattern):
        yield refuse(Rule.REGEX_NOT_SUPPORTED, pattern=pattern)


def _parts(schema: object, at: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The schema and every schema inside it."""
    if not isinstance(schema, dict):
        return
    yield schema, at
    for name, value in schema.items():
        match name, value:
            case (("properties" | "$defs" | "definitions"), dict()):
                for key, inner in value.items():
                    yield from _parts(inner, f"{at}.{name}.{key}")
            case (("items" | "additionalProperties"), dict()):
                yield from _parts(value, f"{at}.{name}")
            case (("anyOf" | "allOf" | "oneOf" | "prefixItems"), list()):
                for index, inner in enumerate(value):
                    yield from _parts(inner, f"{at}.{name}.{index}")


def _is_recursive(schema: Mapping[str, Any]) -> bool:
    """Whether a definition, or the whole, leads back to itself."""
    definitions = {
        f"#/{part}/{name}": inner for part in ("$defs", "definitions") for name, inner in _named(schema, part)
    }
    leads_to = {name: _references(inner) for name, inner in {**definitions, "#": schema}.items()}
    # The whole holds its definitions, so what they refer to counts for it only by the whole itself.
    return any(_reaches(name, name, leads_to, set()) for name in definitions) or "#" in leads_to["#"]


def _named(schema: Mapping[str, Any], part: str) -> list[tuple[str, Any]]:
    inner = schema.get(part)
    return list(inner.items()) if isinstance(inner, dict) else []


def _references(schema: object) -> set[str]:
    return {part["$ref"] for part, _ in _parts(schema, "") if isinstance(part.get("$ref"), str)}


def _reaches(start: str, goal: str, leads_to: Mapping[str, set[str]], seen: set[str]) -> bool:
    for name in leads_to.get(start, set()) - seen:
        seen.add(name)
        if name == goal or _reaches(name, goal, leads_to, seen):
            return True
    return False
