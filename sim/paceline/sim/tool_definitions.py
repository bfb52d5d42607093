"""What the tools of a request must look like."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match

from paceline.sim.grammar import strict_refusals
from paceline.sim.rules import Refusal, Rule, refuse
from paceline.sim.schema import Fields, marker_refusals, wrong_type

_NAME = re.compile(r"^[a-zA-Z0-9_-]*$")
_MAX_NAME = 128
_UNIONS = ("oneOf", "allOf", "anyOf")
_CUSTOM = Fields(
    "name:string input_schema:object type?:string description?:string cache_control?:object strict?:boolean"
    " defer_loading?:boolean input_examples?:list allowed_callers?:list eager_input_streaming?:boolean"
)
# Tools that the API defines; their own options are not checked.
BUILT_IN = (
    "advisor_20260301",
    "bash_20250124",
    "browser_toolset_20260801",
    "code_execution_20250522",
    "code_execution_20250825",
    "code_execution_20260120",
    "code_execution_20260521",
    "computer_20250124",
    "computer_20251124",
    "computer_toolset_20260801",
    "mcp_toolset",
    "memory_20250818",
    "text_editor_20250124",
    "text_editor_20250429",
    "text_editor_20250728",
    "tool_search_tool_bm25",
    "tool_search_tool_bm25_20251119",
    "tool_search_tool_regex",
    "tool_search_tool_regex_20251119",
    "web_fetch_20250910",
    "web_fetch_20260209",
    "web_fetch_20260309",
    "web_fetch_20260318",
    "web_search_20250305",
    "web_search_20260209",
    "web_search_20260318",
)
_TAGS = ", ".join(f"'{name}'" for name in (*BUILT_IN, "custom"))


def tool_refusals(tools: Sequence[object] | None) -> Iterator[Refusal]:
    """What the tool definitions break."""
    names: list[object] = []
    for index, tool in enumerate(tools or ()):
        yield from _one(tool, f"tools.{index}")
        names.append(tool.get("name") if isinstance(tool, dict) else None)
    if tools:
        yield from strict_refusals([tool for tool in tools if isinstance(tool, dict)])
    named = [name for name in names if isinstance(name, str)]
    if len(set(named)) != len(named):
        yield refuse(Rule.TOOL_NAME_TWICE)
    if tools and all(isinstance(tool, dict) and tool.get("defer_loading") for tool in tools):
        yield refuse(Rule.ALL_DEFERRED)


def _one(tool: object, at: str) -> Iterator[Refusal]:
    if not isinstance(tool, dict):
        yield from wrong_type(tool, "object", at)
        return
    kind = tool.get("type") or "custom"
    if kind == "custom":
        yield from _custom_refusals(tool, f"{at}.custom")
    elif kind not in BUILT_IN:
        yield refuse(Rule.UNKNOWN_TAG, at, tag=kind, expected=_TAGS)


def _custom_refusals(tool: Mapping[str, Any], at: str) -> Iterator[Refusal]:
    yield from _CUSTOM.refusals(tool, at)
    yield from marker_refusals(tool, at)
    if len(tool["name"]) > _MAX_NAME:
        yield refuse(Rule.TOOL_NAME_LENGTH, f"{at}.name")
    if not tool["name"] or not _NAME.match(tool["name"]):
        yield refuse(Rule.TOOL_NAME_PATTERN, f"{at}.name")
    yield from _schema_refusals(tool["input_schema"], f"{at}.input_schema")
    yield from _example_refusals(tool, f"{at}.input_examples")


def _schema_refusals(schema: Mapping[str, Any], at: str) -> Iterator[Refusal]:
    if "type" not in schema:
        yield refuse(Rule.NO_SCHEMA_TYPE, f"{at}.type")
    elif schema["type"] != "object":
        yield refuse(Rule.WRONG_TYPE, f"{at}.type", expected="'object'")
    if any(union in schema for union in _UNIONS):
        yield refuse(Rule.TOP_LEVEL_UNION, at)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        yield refuse(Rule.BAD_SCHEMA, at)


def _example_refusals(tool: Mapping[str, Any], at: str) -> Iterator[Refusal]:
    validator = Draft202012Validator(tool["input_schema"])
    for index, example in enumerate(tool.get("input_examples") or ()):
        mistake = best_match(validator.iter_errors(example))
        if mistake is not None:
            yield refuse(Rule.BAD_EXAMPLE, f"{at}.{index}", reason=mistake.message)
