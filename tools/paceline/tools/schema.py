"""A function's parameters: their JSON schema for the model, and the check of what the model sends."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from .context import ToolContext
from .errors import ToolDefinitionError
from .quoting import quoted

_MAX_PROBLEMS = 20
_VERBATIM = frozenset({"const", "default", "enum", "examples"})
_NAMED_SCHEMAS = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Arguments that fit, as Python values by parameter name, defaults included."""

    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """One line for each argument that does not fit: which, what was expected, what was given."""

    problems: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a function takes from the model, and which of its parameters takes the context."""

    signature: inspect.Signature
    model: type[BaseModel]
    fields: Mapping[str, str]
    """Parameter name by field name. Fields have names of their own: a parameter may be called `schema` or `_x`."""
    context: str | None

    def schema(self) -> dict[str, Any]:
        """JSON schema, draft 2020-12: an object that allows nothing else, without titles."""
        schema: dict[str, Any] = _untitled(self.model.model_json_schema(schema_generator=_Schema))
        schema.pop("description", None)
        return {"type": "object", "properties": {}} | schema

    def check(self, raw: object) -> Accepted | Refused:
        """Hold what the model sent against the schema. Lets through whatever a validator of the tool's own raises."""
        if not isinstance(raw, Mapping):
            return Refused(problems=[f"expected one object of arguments, given {quoted(raw)}"])
        try:
            checked = self.model.model_validate(dict(raw))
        except ValidationError as error:
            return Refused(problems=self._problems(error.errors(include_url=False)))
        return Accepted(arguments={name: getattr(checked, field) for field, name in self.fields.items()})

    def bind(self, arguments: Mapping[str, object], ctx: ToolContext) -> inspect.BoundArguments:
        """Accepted arguments, and the context, as the function takes them."""
        given = {**arguments, self.context: ctx} if self.context else arguments
        in_order = {name: given[name] for name in self.signature.parameters}
        return inspect.BoundArguments(self.signature, in_order)

    def _problems(self, errors: Sequence[ErrorDetails]) -> list[str]:
        lines = [self._problem(error) for error in errors[:_MAX_PROBLEMS]]
        return lines if len(errors) <= _MAX_PROBLEMS else [*lines, f"and {len(errors) - _MAX_PROBLEMS} more"]

    def _problem(self, error: ErrorDetails) -> str:
        where = ".".join(str(part) for part in error["loc"]) or "arguments"
        match error["type"]:
            case "missing":
                return f"{where}: required, but missing{self._expected(error['loc'])}"
            case "extra_forbidden":
                known = ", ".join(self.fields.values()) or "none"
                return f"{where}: no such argument, given {quoted(error['input'])}; the arguments are: {known}"
            case _:
                return f"{where}: {error['msg'].replace('Input should be', 'expected')}, given {quoted(error['input'])}"

    def _expected(self, loc: tuple[int | str, ...]) -> str:
        wanted = self.schema()["properties"].get(loc[0]) if len(loc) == 1 else None
        return f"; expected {json.dumps(wanted, ensure_ascii=False)[:200]}" if wanted else ""


def parameters_of(function: Callable[..., object]) -> Parameters:
    """Read a function's parameters. Raises ToolDefinitionError that names the function, the parameter and the fix."""
    signature = inspect.signature(function)
    hints = _hints(function, signature)
    context = _context_of(function, hints)
    fields = {f"field_{index}": name for index, name in enumerate(hints) if name != context}
    definitions = {field: _field(hints[name], signature.parameters[name]) for field, name in fields.items()}
    model = _model(function, definitions, fields)
    return Parameters(signature=signature, model=model, fields=fields, context=context)


class _Schema(GenerateJsonSchema):
    # A default that JSON cannot hold is left out of the schema: the function still has it.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # pydantic's own name


def _hints(function: Callable[..., object], signature: inspect.Signature) -> dict[str, Any]:
    for parameter in signature.parameters.values():
        _refuse_unusable(function, parameter)
    annotations = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    try:
        # Not of the function itself: its return type is nobody's business here, and may not resolve.
        return get_type_hints(
            SimpleNamespace(__annotations__=annotations),
            globalns=getattr(inspect.unwrap(function), "__globals__", {}),
            include_extras=True,
        )
    except Exception as error:
        raise ToolDefinitionError(
            f"{_named(function)}: a type hint cannot be resolved ({error}): use types that are defined, and imported "
            "at run time, before the function"
        ) from error


def _refuse_unusable(function: Callable[..., object], parameter: inspect.Parameter) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ToolDefinitionError(
            f"{_named(function)}: parameter {parameter} cannot be described to a model: name each parameter, or take "
            "one `list[...]` or `dict[str, ...]`"
        )
    if parameter.annotation is parameter.empty:
        raise ToolDefinitionError(
            f"{_named(function)}: parameter {parameter.name!r} has no type hint: write `{parameter.name}: str`, say"
        )


def _context_of(function: Callable[..., object], hints: Mapping[str, Any]) -> str | None:
    names = [name for name, hint in hints.items() if hint is ToolContext]
    if len(names) > 1:
        raise ToolDefinitionError(
            f"{_named(function)}: parameters {' and '.join(names)} are both a ToolContext: keep one"
        )
    return names[0] if names else None


def _field(hint: Any, parameter: inspect.Parameter) -> tuple[Any, Any]:
    name = parameter.name
    default = ... if parameter.default is parameter.empty else parameter.default
    return Annotated[hint, Field(alias=name, validation_alias=name, serialization_alias=name)], default


def _model(
    function: Callable[..., object], definitions: Mapping[str, tuple[Any, Any]], fields: Mapping[str, str]
) -> type[BaseModel]:
    try:
        return _built(function, definitions)
    except Exception as error:
        culprit = next((name for field, name in fields.items() if not _builds(function, definitions[field])), None)
        which = f"parameter {culprit!r}" if culprit else "its parameters"
        raise ToolDefinitionError(
            f"{_named(function)}: {which} cannot be described in JSON ({_first_line(error)}): use str, int, float, "
            "bool, list, dict, Literal, an Enum, a dataclass or a pydantic model"
        ) from error


def _built(function: Callable[..., object], definitions: Mapping[str, tuple[Any, Any]]) -> type[BaseModel]:
    model: type[BaseModel] = create_model(  # type: ignore[call-overload]  # fields by name are not typed there
        function.__name__,
        __config__=ConfigDict(extra="forbid", protected_namespaces=()),
        __module__=function.__module__,
        **definitions,
    )
    model.model_json_schema(schema_generator=_Schema)
    return model


def _builds(function: Callable[..., object], definition: tuple[Any, Any]) -> bool:
    try:
        _built(function, {"field": definition})
    except Exception:
        return False
    return True


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def _named(function: Callable[..., object]) -> str:
    return f"tool {function.__module__}:{function.__qualname__}"


def _untitled(schema: Any) -> Any:
    match schema:
        case dict():
            return {
                key: _untitled_member(key, member)
                for key, member in schema.items()
                if not (key == "title" and isinstance(member, str))
            }
        case list():
            return [_untitled(member) for member in schema]
        case _:
            return schema


def _untitled_member(key: str, member: Any) -> Any:
    if key in _VERBATIM:
        return member
    if key in _NAMED_SCHEMAS and isinstance(member, dict):
        return {name: _untitled(named) for name, named in member.items()}
    return _untitled(member)
