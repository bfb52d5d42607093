import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from paceline.core.approval import OnDenied
from paceline.core.errors import AgentFileError
from paceline.core.prices import given_prices
from paceline.core.request_fields import RequestFields, broken_rules
from paceline.core.tool_spec import Approval
from paceline.core.unknown_effect import OnUnknownEffect
from paceline.producer.agent_file import AgentFile, load_agent_file

GOOD = """\
name: oncall
model: claude-sonnet-5-5
"""


@pytest.fixture(autouse=True)
def _own_modules() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("pf_"):
            del sys.modules[name]


def loaded(folder: Path, text: str) -> AgentFile:
    (folder / "agent.yaml").write_text(text)
    return load_agent_file(folder / "agent.yaml")


def refused(folder: Path, text: str) -> list[str]:
    with pytest.raises(AgentFileError) as caught:
        loaded(folder, text)
    return str(caught.value).replace(f"{folder}/", "").split("\n")


def test_a_file_of_two_keys_is_an_agent_with_the_defaults(tmp_path: Path) -> None:
    agent = loaded(tmp_path, GOOD).agent
    assert (agent.name, agent.model, agent.max_tokens, agent.limits.turns) == ("oncall", "claude-sonnet-5-5", 4096, 25)


def test_every_key_reaches_the_agent(tmp_path: Path) -> None:
    (tmp_path / "pf_all.py").write_text(_tool("find"))
    file = loaded(
        tmp_path,
        GOOD + "max_tokens: 100\nsystem: Be brief\nprompt: Who owns {service}?\ntools: [pf_all:find]\n"
        "limits: {turns: 3, tokens: null, seconds: 60, deadline: 3600, usd: 0.5, repeats: 4, error_turns: null}\n"
        "model_attempts: 2\nempty_retries: 0\npauses: 1\non_unknown_effect: tell\nfinish: {type: object}\n",
    )
    agent, limits = file.agent, file.agent.limits
    assert (agent.max_tokens, agent.system, agent.model_attempts, agent.empty_retries, agent.pauses) == (
        100,
        "Be brief",
        2,
        0,
        1,
    )
    assert (limits.turns, limits.tokens, limits.seconds, limits.deadline_seconds, limits.usd) == (
        3,
        None,
        60,
        3600,
        0.5,
    )
    assert agent.finish == {"type": "object"}
    assert (limits.repeats, limits.error_turns) == (4, None)
    assert agent.on_unknown_effect is OnUnknownEffect.TELL
    assert [tool.path for tool in agent.tools] == ["pf_all:find", "paceline.tools:read_result"]
    assert file.template is not None
    assert file.template.fields == {"service"}


def test_prices_of_ones_own_stand_for_those_that_are_not_known(tmp_path: Path) -> None:
    own = "name: a\nmodel: llama-12\nprices: {input: 0.3, output: 2}\n"
    agent = loaded(tmp_path, own).agent
    assert agent.prices == given_prices(Decimal("0.3"), Decimal(2))
    assert agent.limits.usd == 1.0
    given = loaded(tmp_path, own.replace("output: 2", "output: 2, cache_write: 0, cache_read: 0.01")).agent.prices
    assert given is not None
    assert (given.cache_write_usd, given.cache_read_usd) == (Decimal(0), Decimal("0.01"))
    assert refused(tmp_path, own.replace("output: 2", "ouput: 2")) == [
        "agent.yaml:3: prices.ouput: unknown key: did you mean `output`?",
        "agent.yaml:3: prices.output: missing: add `output: 2`, say",
    ]
    [line] = refused(tmp_path, own.replace("0.3", "-1"))
    assert line.startswith("agent.yaml:3: prices.input: expected greater than or equal to 0")


def test_an_agent_has_tools_that_a_person_must_approve_and_says_what_a_denial_does(tmp_path: Path) -> None:
    (tmp_path / "pf_asks.py").write_text(
        "from paceline.tools import tool\n\n@tool(approval='always')\n"
        "def pay(cents: int) -> str:\n    'Pay.'\n    return ''\n"
    )
    agent = loaded(tmp_path, GOOD + "tools: [pf_asks:pay]\non_denied: stop\n").agent
    assert agent.tools[0].approval is Approval.ALWAYS
    assert agent.on_denied is OnDenied.STOP
    [line] = refused(tmp_path, GOOD + "on_denied: wait\n")
    assert "on_denied" in line
    assert "'tell' or 'stop'" in line


def test_a_file_that_is_not_there_names_one_that_is(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(GOOD)
    with pytest.raises(AgentFileError, match=r"agnet.yaml: no such file.*\(there is .*agent.yaml\)"):
        load_agent_file(tmp_path / "agnet.yaml")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(AgentFileError, match="cannot be read"):
        load_agent_file(tmp_path)


def test_what_is_not_yaml_is_reported_with_line_and_column(tmp_path: Path) -> None:
    (line,) = refused(tmp_path, "name: x\nmodel: [a\n")
    assert line.startswith("agent.yaml:3:1: not YAML: ")


def test_what_is_not_utf8_is_reported(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_bytes(b"name: \xff")
    with pytest.raises(AgentFileError, match="not UTF-8"):
        load_agent_file(tmp_path / "agent.yaml")


def test_a_character_that_yaml_forbids_is_reported(tmp_path: Path) -> None:
    (line,) = refused(tmp_path, "name: x\nsystem: \x00\n")
    assert line.startswith("agent.yaml:2:1: not YAML: ")


def test_a_key_given_twice_names_both_lines(tmp_path: Path) -> None:
    (line,) = refused(tmp_path, GOOD + "name: other\n")
    assert "agent.yaml:3:1" in line
    assert "on line 1" in line


@pytest.mark.parametrize(("text", "found"), [("", "nothing"), ("- a\n", "a list"), ("text\n", "a str")])
def test_a_file_without_keys_is_refused(tmp_path: Path, text: str, found: str) -> None:
    (line,) = refused(tmp_path, text)
    assert f"found {found}" in line


@pytest.mark.parametrize(
    ("extra", "report"),
    [
        ("max_token: 5\n", "agent.yaml:3: max_token: unknown key: did you mean `max_tokens`?"),
        ("limits:\n  turn: 5\n", "agent.yaml:4: limits.turn: unknown key: did you mean `turns`?"),
        ("limits:\n  xyz: 5\n", "agent.yaml:4: limits.xyz: unknown key: the keys here are turns, tokens, seconds"),
        ("compact_at: 0\n", "agent.yaml:3: compact_at: expected"),
        ("compact_at: 1.5\n", "agent.yaml:3: compact_at: expected"),
        (
            "compact_at: 0.5\ncontext_management: {edits: []}\n",
            "agent.yaml:3: compact_at: the API edits the context already, by `context_management`: take one of the two",
        ),
        ("finish: {type: array}\n", "agent.yaml:3: finish: expected a JSON Schema with `type: object`"),
        ("finish: {type: object, anyOf: []}\n", "agent.yaml:3: finish: the API takes none of anyOf"),
        ("finish: {type: object, required: 3}\n", "agent.yaml:3: finish: not JSON Schema: at $.required: 3 is not"),
        ("limits: {repeats: 1}\n", "agent.yaml:3: limits.repeats: expected"),
        ("max_tokens: many\n", "agent.yaml:3: max_tokens: expected integer, found 'many'"),
        ("max_tokens: 0\n", "agent.yaml:3: max_tokens: expected"),
        ("max_tokens: true\n", "agent.yaml:3: max_tokens: expected integer, found True"),
        ("limits: {usd: .inf}\n", "agent.yaml:3: limits.usd: expected a finite number"),
        ("max_tokens: 999999\n", "agent.yaml:3: max_tokens: 999999 is more than claude-sonnet-5-5 gives: at most"),
        ("prompt: '{a.b}'\n", "agent.yaml:3: prompt: {a.b} is not the plain name"),
        ("tools: x\n", "agent.yaml:3: tools: expected list, found 'x'"),
        ("tools:\n  - mcp: http://x\n", "agent.yaml:4: tools.0: tools of an MCP server are not supported yet"),
        ("tools:\n  - 3\n", "agent.yaml:4: tools.0: expected `module:function`"),
        ("tools:\n  - pf_nowhere:f\n", "agent.yaml:4: tools.0: tool 'pf_nowhere:f': there is no module 'pf_nowhere'"),
    ],
)
def test_each_error_names_line_key_expectation_and_fix(tmp_path: Path, extra: str, report: str) -> None:
    (line,) = refused(tmp_path, GOOD + extra)
    assert line.startswith(report)


def test_compact_at_is_a_share_of_the_window_or_never(tmp_path: Path) -> None:
    small = GOOD.replace("claude-sonnet-5-5", "claude-haiku-4-5")
    assert loaded(tmp_path, small).agent.compact_at == 0.6
    assert loaded(tmp_path, small + "compact_at: 0.8\n").agent.compact_at == 0.8
    assert loaded(tmp_path, small + "compact_at: null\n").agent.compact_at is None
    assert loaded(tmp_path, small + "compact_at: 0.8\n").notes == ()


def test_where_thinking_is_bound_compact_at_is_left_to_the_api_and_that_is_told(tmp_path: Path) -> None:
    file = loaded(tmp_path, GOOD + "compact_at: 0.5\n")
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 500_000},
        "keep": {"type": "tool_uses", "value": 3},
        "clear_at_least": {"type": "input_tokens", "value": 50_000},
    }
    assert file.agent.passed_through.body == {"context_management": {"edits": [edit]}}
    assert file.agent.passed_through.betas == ("context-management-2025-06-27",)
    assert list(broken_rules(file.agent.passed_through, model=file.agent.model, max_tokens=4096)) == []
    (note,) = file.notes
    assert note.startswith("the thinking of claude-sonnet-5-5 is bound to all that stands before it")
    assert "past compact_at (0.5 of its window) the API clears old tool results itself" in note


@pytest.mark.parametrize("more", ["", "compact_at: null\n", "compact_at: 0.5\nthinking: {type: disabled}\n"])
def test_else_nothing_is_left_to_the_api(tmp_path: Path, more: str) -> None:
    file = loaded(tmp_path, GOOD + more)
    assert "context_management" not in file.agent.passed_through.body
    assert file.notes == ()


PASSED_THROUGH = """\
thinking: {type: adaptive}
effort: low
output_config: {format: {type: json_schema, schema: {type: object}}}
service_tier: standard_only
stop_sequences: [STOP]
betas: [context-management-2025-06-27]
context_management: {edits: [{type: clear_tool_uses_20250919}]}
tools:
  - {type: web_search_20260209, name: web_search, max_uses: 3}
"""


def test_what_the_api_takes_is_passed_through_as_it_is(tmp_path: Path) -> None:
    agent = loaded(tmp_path, GOOD + PASSED_THROUGH).agent
    assert agent.passed_through == RequestFields(
        body={
            "thinking": {"type": "adaptive"},
            "service_tier": "standard_only",
            "stop_sequences": ["STOP"],
            "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}, "effort": "low"},
        },
        server_tools=({"type": "web_search_20260209", "name": "web_search", "max_uses": 3},),
        betas=("context-management-2025-06-27",),
    )
    assert list(agent.tool_names) == ["web_search"]


@pytest.mark.parametrize(
    ("extra", "report"),
    [
        (
            "thinking: {type: enabled}\n",
            "agent.yaml:3: thinking.budget_tokens: thinking that is enabled needs a budget",
        ),
        ("thinking: {type: x}\n", "agent.yaml:3: thinking.type: claude-sonnet-5-5 takes no thinking of type 'x'"),
        ("effort: most\n", "agent.yaml:3: effort: expected 'low', 'medium', 'high', 'xhigh' or 'max', found 'most'"),
        ("output_config: {efort: low}\n", "agent.yaml:3: output_config.efort: unknown key: did you mean `effort`?"),
        ("prices: cheap\n", "agent.yaml:3: prices: expected keys and values, found 'cheap'"),
        ("temperature: 0\n", "agent.yaml:3: temperature: the API refuses it since version 2026-10-21"),
        ("betas: [\n  made-up]\n", "agent.yaml:4: betas.0: 'made-up' is none of the betas"),
        (
            "tools:\n- {type: memory_20250818, name: memory}\n",
            "agent.yaml:4: tools.0: 'memory_20250818' is no tool that the API runs itself",
        ),
        (
            "finish: {type: object}\ntools:\n- {type: web_search_20260209, name: finish}\n",
            "agent.yaml:5: tools.0: two tools are called 'finish'",
        ),
    ],
)
def test_what_the_api_would_refuse_is_refused_with_the_rule(tmp_path: Path, extra: str, report: str) -> None:
    assert refused(tmp_path, GOOD + extra)[0].startswith(report)


def test_a_missing_key_is_named_with_an_example(tmp_path: Path) -> None:
    assert refused(tmp_path, "model: claude-sonnet-5-5\n") == ["agent.yaml:1: name: missing: add `name: oncall`, say"]


def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (line,) = refused(tmp_path, "name: on call\nmodel: claude-sonnet-5-5\n")
    assert "expected 1 to 64 letters" in line


def test_everything_wrong_is_reported_together_in_the_order_of_the_lines(tmp_path: Path) -> None:
    lines = refused(tmp_path, "model: 3\nnam: x\nlimits: {turns: 0}\n")
    assert [line.split(":")[1] for line in lines] == ["1", "1", "2", "3"]


def test_a_price_that_is_not_known_asks_for_usd_null(tmp_path: Path) -> None:
    text = "name: x\nmodel: some-model\n"
    (line,) = refused(tmp_path, text)
    assert line.startswith("agent.yaml:2: model: 'some-model' is not known here, nor is its price")
    assert "usd: null" in line
    (line,) = refused(tmp_path, text + "limits:\n  usd: 2\n")
    assert line.startswith("agent.yaml:2: model: ")
    assert loaded(tmp_path, text + "limits: {usd: null}\n").agent.limits.usd is None


def _tool(name: str, parameters: str = "a: str", option: str = "") -> str:
    return (
        "from typing import Annotated\nfrom pydantic import Field\nfrom paceline.tools import tool\n\n"
        f'@tool({option})\ndef {name}({parameters}) -> str:\n    """Find."""\n    return ""\n'
    )


def test_a_tool_is_found_beside_the_agent_file_and_on_the_search_path(tmp_path: Path) -> None:
    (tmp_path / "pf_beside.py").write_text(_tool("find"))
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "pf_more.py").write_text(_tool("search"))
    (tmp_path / "agent.yaml").write_text(GOOD + "tools: [pf_beside:find, pf_more:search]\n")
    agent = load_agent_file(tmp_path / "agent.yaml", search_paths=[tmp_path / "more"]).agent
    assert [tool.name for tool in agent.tools] == ["find", "search", "read_result"]


def test_a_function_that_is_not_there_names_the_nearest_tool(tmp_path: Path) -> None:
    (tmp_path / "pf_near.py").write_text(_tool("find"))
    (line,) = refused(tmp_path, GOOD + "tools: [pf_near:fnd]\n")
    assert "did you mean find?" in line


def test_a_function_that_is_not_a_tool_says_so(tmp_path: Path) -> None:
    (tmp_path / "pf_plain.py").write_text("def find() -> str: ...\n")
    (line,) = refused(tmp_path, GOOD + "tools: [pf_plain:find]\n")
    assert "put @tool above it" in line


def test_a_tool_without_type_hints_names_the_parameter(tmp_path: Path) -> None:
    (tmp_path / "pf_hints.py").write_text(_tool("find", "a"))
    (line,) = refused(tmp_path, GOOD + "tools:\n- pf_hints:find\n")
    assert line.startswith("agent.yaml:4: tools.0: ")
    assert "parameter 'a' has no type hint" in line


def test_an_input_schema_that_is_none_is_refused(tmp_path: Path) -> None:
    hint = "a: Annotated[str, Field(json_schema_extra={'type': 'strnig'})]"
    (tmp_path / "pf_schema.py").write_text(_tool("find", hint))
    (line,) = refused(tmp_path, GOOD + "tools: [pf_schema:find]\n")
    assert "its input schema is not JSON Schema" in line
    assert "strnig" in line


def test_two_tools_of_one_name_are_both_named(tmp_path: Path) -> None:
    (tmp_path / "pf_one.py").write_text(_tool("find"))
    (tmp_path / "pf_two.py").write_text(_tool("other", option="name='find'"))
    (line,) = refused(tmp_path, GOOD + "tools:\n- pf_one:find\n- pf_two:other\n")
    assert line.startswith("agent.yaml:5: tools.1: two tools are called 'find': pf_one:find and pf_two:other")


def test_a_tool_may_not_be_called_as_the_one_that_hands_in(tmp_path: Path) -> None:
    (tmp_path / "pf_finish.py").write_text(_tool("finish"))
    (line,) = refused(tmp_path, GOOD + "finish: {type: object}\ntools:\n- pf_finish:finish\n")
    assert line.startswith("agent.yaml:5: tools.0: pf_finish:finish is called 'finish'")


def test_an_alias_that_holds_itself_does_no_harm(tmp_path: Path) -> None:
    (line,) = refused(tmp_path, GOOD + "tools: &t\n- *t\n")
    assert "tools.0" in line


def test_a_model_that_is_not_known_names_the_nearest_one(tmp_path: Path) -> None:
    (line,) = refused(tmp_path, "name: oncall\nmodel: claude-sonet-5-5\n")
    assert line.startswith(
        "agent.yaml:2: model: 'claude-sonet-5-5' is not known here (did you mean claude-sonnet-5-5?)"
    )


def test_a_folder_in_which_a_module_was_looked_for_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = refused(tmp_path, GOOD + "tools: ['pf_nowhere:f']\n")
    assert line.count(str(tmp_path)) == 1
