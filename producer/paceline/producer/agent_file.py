"""The agent file: YAML in, an `Agent` out, or one error that lists all that is wrong with the file, line by line."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from paceline.core.agent import Agent, Limits
from paceline.core.approval import OnDenied
from paceline.core.compaction import cleared_by_api
from paceline.core.errors import AgentFileError, UsageError
from paceline.core.finish import FINISH_TOOL, schema_problem
from paceline.core.ids import CallId, RunId
from paceline.core.models import max_output_tokens
from paceline.core.prices import GivenPrices, exact_usd, given_prices, is_known
from paceline.core.request_fields import CLEAR_TOOL_USES
from paceline.core.tool_spec import ToolSpec
from paceline.core.unknown_effect import OnUnknownEffect
from paceline.tools import Registry, read_result_tool

from .model_names import priced_models
from .passed_through import (
    NOT_TAKEN,
    OutputConfigSection,
    PassedThroughSection,
    Problem,
    Section,
    is_server_tool,
    passed_through,
    request_problems,
)
from .template import BadTemplate, Template, read_template
from .yaml_lines import KeyPath, NotYaml, YamlFile, read_yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """What an agent file says: the agent, and how a row becomes its prompt (None: each row has its own)."""

    agent: Agent
    template: Template | None
    notes: tuple[str, ...] = ()
    """What will be done otherwise than one might think; for whoever submits it."""


_Positive = Annotated[int, Field(gt=0)]
_PositiveNumber = Annotated[float, Field(gt=0)]
_Price = Annotated[float, Field(ge=0, le=10_000)]


class _LimitsSection(Section):
    turns: _Positive | None = None
    tokens: _Positive | None = None
    seconds: _PositiveNumber | None = None
    deadline: _PositiveNumber | None = None
    usd: _PositiveNumber | None = None
    repeats: Annotated[int, Field(ge=2, le=10)] | None = None
    error_turns: _Positive | None = None


class _PricesSection(Section):
    """Dollars a million tokens."""

    input: _Price
    output: _Price
    cache_write: _Price | None = None
    cache_read: _Price | None = None

    def prices(self) -> GivenPrices:
        return given_prices(
            exact_usd(self.input),
            exact_usd(self.output),
            cache_write_usd=None if self.cache_write is None else exact_usd(self.cache_write),
            cache_read_usd=None if self.cache_read is None else exact_usd(self.cache_read),
        )


class _FileSection(PassedThroughSection):
    # The defaults are the agent's own: only what the file sets is taken from here.
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    model: Annotated[str, Field(min_length=1)]
    max_tokens: _Positive = 1
    system: str = ""
    prompt: Annotated[str | None, Field(min_length=1)] = None
    tools: list[Any] = Field(default_factory=list)
    limits: _LimitsSection = Field(default_factory=_LimitsSection)
    model_attempts: _Positive = 1
    empty_retries: Annotated[int, Field(ge=0)] = 0
    pauses: Annotated[int, Field(ge=0)] = 0
    compact_at: Annotated[float, Field(gt=0, le=1)] | None = None
    on_unknown_effect: Literal["wait", "stop", "tell"] = "wait"
    on_denied: Literal["tell", "stop"] = "tell"
    finish: dict[str, Any] | None = None
    prices: _PricesSection | None = None


_EXAMPLES = {"name": "oncall", "model": "claude-sonnet-5-5", "input": "0.5", "output": "2"}
_NAME_RULE = "1 to 64 letters, digits or . _ -, and a letter or digit first"


def load_agent_file(path: str | os.PathLike[str], *, search_paths: Iterable[str | os.PathLike[str]] = ()) -> AgentFile:
    """Read an agent file. Its tools are imported: from its own folder, the working folder, and `search_paths`.

    Raises AgentFileError, one line for each thing wrong: file, line, key, what was expected, the fix.
    """
    file = Path(path)
    yaml_file = _read(file)
    section = _checked(file, yaml_file)
    registry = Registry([file.parent, Path.cwd(), *search_paths])
    server_tools = {place: entry for place, entry in enumerate(section.tools) if is_server_tool(entry)}
    own_entries = [(place, entry) for place, entry in enumerate(section.tools) if place not in server_tools]
    own_tools, problems = _load_tools(registry, own_entries)
    tools = _with_built_in(own_tools)
    template = _template(section.prompt, problems)
    agent = _agent(section, tools, list(server_tools.values()))
    problems += [
        *request_problems(agent, list(server_tools)),
        *_tool_problems(tools),
        *_finish_problems(section.finish, tools),
        *_agent_problems(agent),
    ]
    is_left_to_api = section.compact_at is not None and not agent.passed_through.bears_edits(agent.model)
    if is_left_to_api and "context_management" in agent.passed_through.body:
        message = "the API edits the context already, by `context_management`: take one of the two out"
        problems.append(Problem(at=("compact_at",), message=message))
    _raise_if(file, yaml_file, problems)
    if is_left_to_api:
        return AgentFile(agent=cleared_by_api(agent), template=template, notes=(_told_of_clearing(agent),))
    return AgentFile(agent=agent, template=template)


def _told_of_clearing(agent: Agent) -> str:
    return (
        f"the thinking of {agent.model} is bound to all that stands before it, so nothing is cleared here: past "
        f"compact_at ({agent.compact_at:g} of its window) the API clears old tool results itself, by an edit of "
        f"{CLEAR_TOOL_USES}"
    )


def _read(file: Path) -> YamlFile:
    try:
        return read_yaml(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AgentFileError(f"{file}: no such file: name the agent's YAML file{_nearby(file)}") from None
    except OSError as error:
        raise AgentFileError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise AgentFileError(f"{file}: not UTF-8 (byte {error.start}): save the file as UTF-8") from None
    except NotYaml as error:
        raise AgentFileError(f"{file}:{error.line}:{error.column}: not YAML: {error}") from None


def _nearby(file: Path) -> str:
    folder = file.parent
    names = [entry.name for entry in folder.glob("*.y*ml")] if folder.is_dir() else []
    near = difflib.get_close_matches(file.name, names, n=1) or names[:1]
    return f" (there is {folder / near[0]})" if near else ""


def _checked(file: Path, yaml_file: YamlFile) -> _FileSection:
    if not isinstance(yaml_file.data, dict):
        raise AgentFileError(
            f"{file}:1: expected keys such as `name: oncall` and `model: ...`, found {_kind(yaml_file)}"
        )
    try:
        return _FileSection.model_validate(yaml_file.data)
    except ValidationError as error:
        problems = [_problem(details) for details in error.errors(include_url=False)]
        raise AgentFileError(_report(file, yaml_file, problems)) from None


def _kind(yaml_file: YamlFile) -> str:
    return "nothing" if yaml_file.data is None else f"a {type(yaml_file.data).__name__}"


def _problem(error: ErrorDetails) -> Problem:
    at: KeyPath = error["loc"]
    match error["type"]:
        case "missing":
            key = str(at[-1])
            return Problem(at=at, message=f"missing: add `{key}: {_EXAMPLES[key]}`, say")
        case "extra_forbidden":
            return Problem(at=at, message=_unknown_key(at))
        case "model_type" | "dict_type":
            return Problem(at=at, message=f"expected keys and values, found {_short(error['input'])}")
        case "string_pattern_mismatch":
            return Problem(at=at, message=f"expected {_NAME_RULE}, found {error['input']!r}")
        case _:
            expected = error["msg"].replace("Input should be", "expected").replace("a valid ", "")
            return Problem(at=at, message=f"{expected}, found {_short(error['input'])}")


def _unknown_key(at: KeyPath) -> str:
    if at[-1] in NOT_TAKEN:
        return NOT_TAKEN[str(at[-1])]
    section = _SECTIONS.get(at[0], _FileSection)
    known = list(section.model_fields)
    near = difflib.get_close_matches(str(at[-1]), known, n=1)
    return f"unknown key: did you mean `{near[0]}`?" if near else f"unknown key: the keys here are {', '.join(known)}"


_SECTIONS: Mapping[str | int, type[Section]] = {
    "limits": _LimitsSection,
    "output_config": OutputConfigSection,
    "prices": _PricesSection,
}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _load_tools(registry: Registry, entries: Iterable[tuple[int, object]]) -> tuple[dict[int, ToolSpec], list[Problem]]:
    tools: dict[int, ToolSpec] = {}
    problems: list[Problem] = []
    for index, entry in entries:
        try:
            tools[index] = _load_tool(registry, entry)
        except UsageError as error:
            problems.append(Problem(at=("tools", index), message=str(error)))
    return tools, problems


def _load_tool(registry: Registry, entry: object) -> ToolSpec:
    match entry:
        case str():
            return registry.load(entry).spec
        case {"mcp": _}:
            raise UsageError("tools of an MCP server are not supported yet: take the entry out")
        case _:
            raise UsageError(f"expected `module:function`, as in `wiki_tools:get_page`, found {_short(entry)}")


def _template(prompt: str | None, problems: list[Problem]) -> Template | None:
    try:
        return None if prompt is None else read_template(prompt)
    except BadTemplate as error:
        problems.append(Problem(at=("prompt",), message=str(error)))
        return None


def _agent(section: _FileSection, tools: Mapping[int, ToolSpec], server_tools: Sequence[dict[str, Any]]) -> Agent:
    apart = {"tools", "limits", "prompt", "prices", *PassedThroughSection.model_fields}
    given = section.model_dump(exclude_unset=True, exclude=apart)
    limits = section.limits.model_dump(exclude_unset=True)
    if "deadline" in limits:
        limits["deadline_seconds"] = limits.pop("deadline")
    if "on_unknown_effect" in given:
        given["on_unknown_effect"] = OnUnknownEffect(given["on_unknown_effect"])
    if "on_denied" in given:
        given["on_denied"] = OnDenied(given["on_denied"])
    return Agent(
        **given,
        tools=tuple(tools.values()),
        limits=Limits(**limits),
        passed_through=passed_through(section, server_tools),
        prices=section.prices.prices() if section.prices else None,
    )


def _with_built_in(tools: dict[int, ToolSpec]) -> dict[int, ToolSpec]:
    """Where there are tools there are results too long to be shown whole: the model can page through them."""
    return {**tools, max(tools) + 1: read_result_tool(_never_called).spec} if tools else tools


async def _never_called(run: RunId, call: CallId) -> str | None:
    """Stands for the record, which only workers read tools' results from."""


def _tool_problems(tools: Mapping[int, ToolSpec]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, tool in tools.items():
        if tool.name in first:
            other = tools[first[tool.name]]
            yield Problem(
                at=("tools", index),
                message=f"two tools are called {tool.name!r}: {other.path} and {tool.path}: "
                'give one of them another name, `@tool(name="...")`',
            )
        first.setdefault(tool.name, index)
        yield from _schema_problems(index, tool)


def _finish_problems(schema: dict[str, Any] | None, tools: Mapping[int, ToolSpec]) -> Iterator[Problem]:
    if schema is None:
        return
    problem = schema_problem(schema)
    if problem:
        yield Problem(at=("finish",), message=problem)
    for index, tool in tools.items():
        if tool.name == FINISH_TOOL:
            message = (
                f"{tool.path} is called {FINISH_TOOL!r}, as the tool that hands in the output: give it another name"
            )
            yield Problem(at=("tools", index), message=message)


def _schema_problems(index: int, tool: ToolSpec) -> Iterator[Problem]:
    try:
        Draft202012Validator.check_schema(dict(tool.input_schema))
    except SchemaError as error:
        yield Problem(
            at=("tools", index),
            message=f"tool {tool.path}: its input schema is not JSON Schema: at {error.json_path}: {error.message}",
        )


def _nearest_model(name: str) -> str:
    near = difflib.get_close_matches(name, priced_models(), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _agent_problems(agent: Agent) -> Iterator[Problem]:
    if agent.limits.usd is not None and not is_known(agent.priced_by):
        yield Problem(
            at=("model",),
            message=f"{agent.model!r} is not known here{_nearest_model(agent.model)}, nor is its price, so limits.usd "
            f"(${agent.limits.usd:g}) cannot be kept: check the name, give its `prices`, or set `usd: null` under "
            "`limits` to run without it",
        )
    maximum = max_output_tokens(agent.model)
    if agent.max_tokens > maximum:
        yield Problem(
            at=("max_tokens",), message=f"{agent.max_tokens} is more than {agent.model} gives: at most {maximum}"
        )


def _raise_if(file: Path, yaml_file: YamlFile, problems: Sequence[Problem]) -> None:
    if problems:
        raise AgentFileError(_report(file, yaml_file, problems))


def _report(file: Path, yaml_file: YamlFile, problems: Sequence[Problem]) -> str:
    lines = sorted(
        (yaml_file.line_of(problem.at), ".".join(map(str, problem.at)), problem.message) for problem in problems
    )
    return "\n".join(f"{file}:{line}: {key}: {message}" for line, key, message in lines)
