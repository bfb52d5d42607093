from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from paceline.core.ids import CallId, RunId
from paceline.tools import Tool, ToolContext, tool
from paceline.tools.schema import Accepted, Refused

CTX = ToolContext(run_id=RunId("r"), turn=1, call_id=CallId("c"))


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    """A place on a page."""

    title: str
    line: int = 1


@dataclass
class Span:
    start: int
    title: str = "title"


class Tree(BaseModel):
    children: list[Tree] = []


def schema_of(function: Callable[..., object]) -> dict[str, Any]:
    schema = dict(tool(function).spec.input_schema)
    Draft202012Validator.check_schema(schema)
    return schema


def test_no_parameters_give_an_empty_closed_object() -> None:
    def f() -> None:
        """Do it."""

    assert schema_of(f) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_the_context_is_no_part_of_the_schema_wherever_it_stands() -> None:
    def first(ctx: ToolContext, path: str) -> None:
        """Do it."""

    def last(path: str, *, context: ToolContext) -> None:
        """Do it."""

    assert list(schema_of(first)["properties"]) == list(schema_of(last)["properties"]) == ["path"]


def test_field_descriptions_and_bounds_are_kept() -> None:
    def f(path: Annotated[str, Field(description="Where", min_length=1)], n: int = Field(3, ge=1)) -> None:
        """Do it."""

    assert schema_of(f)["properties"] == {
        "path": {"type": "string", "description": "Where", "minLength": 1},
        "n": {"type": "integer", "default": 3, "minimum": 1},
    }


def test_titles_go_but_a_property_called_title_stays() -> None:
    def f(title: str, place: Place, span: Span) -> None:
        """Do it."""

    schema = schema_of(f)
    assert schema["properties"]["title"] == {"type": "string"}
    assert "title" not in schema
    assert schema["$defs"]["Place"] == {
        "description": "A place on a page.",
        "type": "object",
        "properties": {"title": {"type": "string"}, "line": {"type": "integer", "default": 1}},
        "required": ["title"],
    }
    assert schema["$defs"]["Span"]["properties"]["title"] == {"type": "string", "default": "title"}


def test_a_recursive_type_keeps_its_definition() -> None:
    def f(tree: Tree) -> None:
        """Do it."""

    schema = schema_of(f)
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


def test_no_signature_gives_a_top_level_union() -> None:
    def f(one: int | str | None, other: Literal["a", 1], colour: Colour = Colour.RED) -> None:
        """Do it."""

    schema = schema_of(f)
    assert schema["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf"} & set(schema)


def test_parameters_may_have_names_that_pydantic_keeps_for_itself() -> None:
    @tool
    def f(schema: int, model_config: int, _private: int, copy: int, field_0: int) -> int:
        """Do it."""
        return schema + model_config + _private + copy + field_0

    names = ["schema", "model_config", "_private", "copy", "field_0"]
    assert list(f.spec.input_schema["properties"]) == names
    assert called(f, dict.fromkeys(names, 1)) == 5


def test_a_default_that_json_cannot_hold_is_left_out_of_the_schema_and_still_given() -> None:
    marker = object()

    @tool
    def f(value: Any = marker) -> object:
        """Do it."""
        return value

    assert f.spec.input_schema["properties"] == {"value": {}}
    assert called(f, {}) is marker


def test_positional_only_parameters_and_defaults_are_given_in_their_places() -> None:
    @tool
    def f(a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> tuple[int, ...]:
        """Do it."""
        return a, b, c, d

    assert called(f, {"a": 1, "c": 5}) == (1, 2, 5, 4)


def test_a_mutable_default_is_not_shared_between_calls() -> None:
    @tool
    def f(names: list[str] = []) -> list[str]:  # noqa: B006  # what the test is about
        """Do it."""
        names.append("x")
        return names

    assert called(f, {}) == called(f, {}) == ["x"]


def test_arguments_arrive_as_the_types_of_the_hints() -> None:
    @tool
    def f(colour: Colour, place: Place, span: Span, tags: set[str]) -> tuple[object, ...]:
        """Do it."""
        return colour, place, span, tags

    arguments = {"colour": "red", "place": {"title": "t"}, "span": {"start": 1}, "tags": ["a", "a"]}
    assert called(f, arguments) == (Colour.RED, Place(title="t"), Span(start=1), {"a"})


@tool
def get_page(path: str, lines: int = 3, place: Place | None = None) -> None:
    """Read a page."""


def called(some_tool: Tool, raw: object) -> object:
    match some_tool.parameters.check(raw):
        case Accepted(arguments=arguments):
            return some_tool.call(arguments, CTX)
        case Refused(problems=problems):
            pytest.fail(f"refused: {problems}")


def problems(raw: object) -> list[str]:
    match get_page.parameters.check(raw):
        case Refused(problems=lines):
            return list(lines)
        case Accepted():
            pytest.fail("accepted")


def test_each_wrong_argument_is_named_with_what_was_expected_and_what_was_given() -> None:
    assert problems({"lines": "many", "place": {"title": 7}, "colour": True}) == [
        'path: required, but missing; expected {"type": "string"}',
        'lines: expected a valid integer, unable to parse string as an integer, given string "many"',
        "place.title: expected a valid string, given number 7",
        "colour: no such argument, given boolean true; the arguments are: path, lines, place",
    ]


def test_a_missing_inner_field_is_named_by_its_place() -> None:
    assert problems({"path": "p", "place": {}}) == ["place.title: required, but missing"]


@pytest.mark.parametrize(
    ("raw", "given"),
    [
        (None, "null"),
        ('{"path": "a"}', 'string "{\\"path\\": \\"a\\"}"'),
        ([1, 2], "array [1, 2]"),
        (2.5, "number 2.5"),
        (True, "boolean true"),
        (b"x", "bytes"),
    ],
)
def test_what_is_no_object_is_refused_as_such(raw: object, given: str) -> None:
    assert problems(raw) == [f"expected one object of arguments, given {given}"]


def test_long_and_many_wrong_arguments_are_shortened() -> None:
    (line,) = problems({"path": ["x" * 1000]})
    assert len(line) < 200
    lines = problems({"path": "p", **{f"extra_{n}": n for n in range(50)}})
    assert len(lines) == 21
    assert lines[-1] == "and 30 more"


def test_a_key_that_is_no_text_is_refused() -> None:
    assert problems({"path": "p", 1: 2})
