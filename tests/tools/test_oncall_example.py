"""The example is sound: every row's answer can be found with the example's own tools."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.core.ids import CallId, RunId
from paceline.core.tool_spec import Effect, Placement
from paceline.tools import Registry, ToolContext, ToolResult, run_tool

EXAMPLE = Path(__file__).parents[2] / "examples" / "oncall"
ROWS: list[dict[str, str]] = [json.loads(line) for line in (EXAMPLE / "rows.jsonl").read_text().splitlines()]
AGENT: dict[str, Any] = yaml.safe_load((EXAMPLE / "agent.yaml").read_text())
SERVICES = sorted({row["service"] for row in ROWS})
CTX = ToolContext(run_id=RunId("batch-row"), turn=1, call_id=CallId("toolu_1"))


@pytest.fixture(scope="module")
def wiki() -> Iterator[Wiki]:
    path, modules = list(sys.path), set(sys.modules)
    yield Wiki(Registry([EXAMPLE]))
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


class Wiki:
    """The example's tools, called as a worker would call them."""

    def __init__(self, registry: Registry) -> None:
        self.search_tool = registry.load("wiki_tools:search_wiki")
        self.page_tool = registry.load("wiki_tools:get_page")

    def search(self, query: object, **more: object) -> ToolResult:
        return asyncio.run(run_tool(self.search_tool, {"query": query, **more}, CTX))

    def page(self, path: object) -> ToolResult:
        return asyncio.run(run_tool(self.page_tool, {"path": path}, CTX))

    def text(self, path: str) -> str:
        result = self.page(path)
        assert not result.is_error, f"{path}: {result.content}"
        return str(result.content)

    def found(self, query: str) -> list[str]:
        """The paths of the pages that a search lists."""
        return re.findall(r"^(\S+\.md) — .+ — .+$", str(self.search(query).content), re.MULTILINE)


def rotation_of(wiki: Wiki, service: str) -> str:
    """Work as the agent's instructions say, and give the name of the rotation."""
    page = wiki.text(wiki.found(service)[0])
    if moved := re.search(r"^Moved: .*\[.+?\]\(services/(.+?)\.md\)", page, re.MULTILINE):
        return rotation_of(wiki, moved[1])
    path = named_on(wiki, page, service)
    if wiki.page(path).is_error:
        path = next(found for found in wiki.found(f"{service} rotation") if found.startswith("rotations/"))
    rotation = wiki.text(path)
    covers = re.search(r"^Covers: (.+)$", rotation, re.MULTILINE)
    assert covers, path
    assert service in covers[1].split(", ")
    name = re.search(r"^Rotation: (.+)$", rotation, re.MULTILINE)
    assert name, path
    return name[1]


def named_on(wiki: Wiki, page: str, service: str) -> str:
    """The path of the rotation that a service's page links to, or else the pages of its teams."""
    if direct := re.search(r"^Rotation: \[.+?\]\((rotations/.+?)\)$", page, re.MULTILINE):
        return direct[1]
    owners = re.search(r"^Owner: (.+)$", page, re.MULTILINE)
    assert owners, service
    teams = [wiki.text(path) for path in re.findall(r"\((teams/.+?)\)", owners[1])]
    pattern = rf"^- {re.escape(service)}: Rotation: \[.+?\]\((.+?)\)"
    (path,) = [path for team in teams for path in re.findall(pattern, team, re.MULTILINE)]
    return str(path)


@pytest.mark.parametrize("service", SERVICES)
def test_each_rows_rotation_can_be_found_with_the_tools(wiki: Wiki, service: str) -> None:
    expected = {row["expected_rotation"] for row in ROWS if row["service"] == service}
    assert {rotation_of(wiki, service)} == expected


def test_there_are_200_different_rows_for_45_names_of_40_services() -> None:
    assert len(ROWS) == len({row["id"] for row in ROWS}) == len({row["question"] for row in ROWS}) == 200
    assert len(SERVICES) == 45
    assert all(row["service"] in row["question"] for row in ROWS)


def test_the_prompt_gives_no_answer_away() -> None:
    assert set(re.findall(r"\{(\w+)\}", AGENT["prompt"])) == {"question", "service"}
    for row in ROWS:
        assert row["expected_rotation"] not in AGENT["prompt"].format(**row)


def test_the_agents_tools_can_be_loaded_and_are_placed_as_the_readme_says(wiki: Wiki) -> None:
    assert AGENT["tools"] == [wiki.search_tool.spec.path, wiki.page_tool.spec.path]
    assert (wiki.search_tool.spec.effect, wiki.page_tool.spec.effect) == (Effect.READS, Effect.READS)
    assert (wiki.search_tool.spec.placement, wiki.page_tool.spec.placement) == (Placement.INLINE, Placement.FLEET)


def test_the_wiki_has_each_of_the_troubles_it_is_there_for(wiki: Wiki) -> None:
    pages = {service: wiki.text(f"services/{service}.md") for service in SERVICES}
    moved = [page for page in pages.values() if "\nMoved: " in page]
    links = [re.search(r"^Rotation: \[.+?\]\((.+?)\)$", page, re.MULTILINE) for page in pages.values()]
    dead = [link[1] for link in links if link and wiki.page(link[1]).is_error]
    to_team = [page for page in pages.values() if "\nRotation: see the team page" in page]
    shared = [page for page in pages.values() if "\nRotation: shared between" in page]
    assert [len(kind) for kind in (moved, dead, to_team, shared)] == [5, 5, 7, 4]


def test_every_link_but_those_to_renamed_rotations_leads_to_a_page(wiki: Wiki) -> None:
    files = {file.relative_to(EXAMPLE / "wiki").as_posix() for file in (EXAMPLE / "wiki").glob("*/*.md")}
    linked = {link for path in files for link in re.findall(r"\]\((\S+?\.md)\)", wiki.text(path))}
    renamed = {"rotations/search-oncall.md", "rotations/reco-oncall.md", "rotations/courier-support.md"}
    assert linked - files == renamed | {"rotations/crm-oncall.md"}


@pytest.mark.parametrize(
    "path",
    [
        "../agent.yaml",
        "services/../../agent.yaml",
        "/etc/passwd",
        "services/login.md/../../../rows.jsonl",
        "services/login.md\x00",
        "services/login.md\n",
        "services\\login.md",
        "services/",
        "",
    ],
)
def test_no_path_leads_out_of_the_wiki(wiki: Wiki, path: str) -> None:
    result = wiki.page(path)
    assert result.is_error
    assert "no path in the wiki" in str(result.content)
    assert "paths look like services/login.md" in str(result.content)


def test_a_missing_page_is_answered_with_how_to_find_it(wiki: Wiki) -> None:
    result = wiki.page("rotations/search-oncall.md")
    assert result.is_error
    assert result.content == (
        "there is no page rotations/search-oncall.md\n"
        "Hint: pages get renamed: search_wiki with the name of the service and the word rotation finds the new one"
    )


def test_a_search_lists_no_more_than_it_was_asked_for_and_says_when_it_finds_nothing(wiki: Wiki) -> None:
    assert len(str(wiki.search("rotation", limit=3).content).splitlines()) == 3
    assert "No page matches 'zzz'" in str(wiki.search("zzz").content)
    assert wiki.search("login", limit=0).is_error
