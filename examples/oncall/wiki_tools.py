"""The tools of the on-call agent: search the wiki, and read a page of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from paceline.tools import ToolError, tool

WIKI = Path(__file__).parent / "wiki"

_PAGE_PATH = re.compile(r"(services|teams|rotations)/[a-z0-9-]+\.md")
_WORD = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FIELD = re.compile(r"(?!Moved)[A-Z][a-z]+( [a-z]+)?: ")
_SNIPPET_CHARS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page, with the words that searches compare."""

    path: str
    title: str
    lines: tuple[str, ...]
    title_words: frozenset[str]
    words: frozenset[str]

    @property
    def name(self) -> str:
        """`services/login.md` -> `login`."""
        return Path(self.path).stem

    @property
    def folder(self) -> str:
        """`services/login.md` -> `services`."""
        return self.path.partition("/")[0]


@tool(effect="reads", placement="inline")
def search_wiki(
    query: Annotated[str, Field(description="Words to look for, such as a service's name.")],
    limit: Annotated[int, Field(ge=1, le=20, description="How many pages to list at most.")] = 5,
) -> str:
    """Search the company wiki. Lists the best pages first, one a line: path — title — the line that matches best.

    Add the word service, team or rotation to prefer pages of that kind.
    """
    words = _words(query)
    ranked = sorted(_pages(), key=lambda page: (-_score(page, words), page.path))
    found = [page for page in ranked[:limit] if _score(page, words)]
    if not found:
        return f"No page matches {query!r}. Try fewer words, or the name of the service alone."
    return "\n".join(f"{page.path} — {page.title} — {_snippet(page, words)}" for page in found)


@tool(effect="reads")
def get_page(
    path: Annotated[str, Field(description="As search results and links give it: services/login.md")],
) -> str:
    """Read one page of the company wiki, as Markdown. The links in it are paths for this tool."""
    if not _PAGE_PATH.fullmatch(path):
        raise ToolError(
            f"{path[:100]!r} is no path in the wiki",
            hint="paths look like services/login.md, teams/identity.md or rotations/identity-primary.md",
        )
    try:
        return (WIKI / path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ToolError(
            f"there is no page {path}",
            hint="pages get renamed: search_wiki with the name of the service and the word rotation finds the new one",
        ) from None


@cache
def _pages() -> tuple[Page, ...]:
    """The whole wiki, read once a process: it is small."""
    return tuple(_page(file) for file in sorted(WIKI.glob("*/*.md")))


def _page(file: Path) -> Page:
    title, *lines = file.read_text(encoding="utf-8").splitlines()
    return Page(
        path=file.relative_to(WIKI).as_posix(),
        title=title.removeprefix("# "),
        lines=tuple(line for line in lines if line and not line.startswith(("#", "Slug:"))),
        title_words=_words(title),
        words=_words("\n".join([title, *lines])),
    )


def _words(text: str) -> frozenset[str]:
    """Words in lower case; `search-api` is a word, and so are its parts."""
    whole = _WORD.findall(text.lower())
    return frozenset(whole).union(*(word.split("-") for word in whole))


def _score(page: Page, words: frozenset[str]) -> int:
    """How well a page fits; 0 if it does not. A page of the wanted kind must still have one of the words."""
    named = 20 * (page.name in words)
    in_title = 5 * len(words & page.title_words)
    in_text = sum(6 if "-" in word else 1 for word in words & page.words)
    of_kind = 8 * (page.folder in words or page.folder.removesuffix("s") in words)
    return named + in_title + in_text + of_kind if named + in_title + in_text else 0


def _snippet(page: Page, words: frozenset[str]) -> str:
    """The line with most of the words; of a page that was asked for by name, what it says of itself."""
    if page.name in words:
        line = next((line for line in page.lines if not _FIELD.match(line)), page.lines[0])
    else:
        line = max(page.lines, key=lambda line: len(words & _words(line)))
    return line if len(line) <= _SNIPPET_CHARS else f"{line[:_SNIPPET_CHARS]}..."
