"""What the headers of a request must say: a key, a version, and only known betas."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from multidict import CIMultiDict, CIMultiDictProxy

from paceline.sim.rules import Refusal, Rule, refuse

Headers = CIMultiDict[str] | CIMultiDictProxy[str]

NO_SAMPLING_SINCE = "2026-10-21"
VERSIONS = frozenset({"2023-01-01", "2023-06-01", NO_SAMPLING_SINCE})
BETAS = frozenset(
    {
        "advisor-tool-2026-03-01",
        "cache-diagnosis-2026-04-07",
        "code-execution-2025-05-22",
        "compact-2026-01-12",
        "compact-2026-09-04",
        "computer-use-2025-01-24",
        "computer-use-2025-11-24",
        "context-1m-2025-08-07",
        "context-management-2025-06-27",
        "extended-cache-ttl-2025-04-11",
        "fallback-credit-2026-07-01",
        "fast-mode-2026-02-01",
        "files-api-2025-04-14",
        "inline-tools-2026-09-15",
        "interleaved-thinking-2025-05-14",
        "mcp-client-2025-11-20",
        "message-batches-2024-09-24",
        "message-threads-2026-08-12",
        "mid-conversation-output-config-2026-07-01",
        "mid-conversation-tool-changes-2026-07-01",
        "output-300k-2026-03-24",
        "pdfs-2024-09-25",
        "prompt-caching-2024-07-31",
        "server-side-fallback-2026-07-01",
        "skills-2025-10-02",
        "structured-outputs-2025-11-13",
        "task-budgets-2026-03-13",
        "thinking-binding-controls-2026-08-01",
        "thinking-display-updates-2026-08-18",
        "token-counting-2024-11-01",
        "token-efficient-tools-2025-02-19",
    }
)


def header_refusals(headers: Headers, keys: Collection[str] | None) -> Iterator[Refusal]:
    """What the headers break; any key will do when `keys` is None."""
    yield from _key_refusals(headers, keys)
    versions = headers.getall("anthropic-version", [])
    if not versions:
        yield refuse(Rule.NO_VERSION)
    version = ", ".join(versions)
    if version not in VERSIONS:
        yield refuse(Rule.BAD_VERSION, version=version)
    for beta in betas(headers):
        if beta not in BETAS:
            yield refuse(Rule.UNKNOWN_BETA, value=beta)


def betas(headers: Headers) -> list[str]:
    """The betas asked for, in order."""
    lines = headers.getall("anthropic-beta", [])
    return [beta.strip() for line in lines for beta in line.split(",") if beta.strip()]


def version_of(headers: Headers) -> str:
    """The version of a request; the oldest that is still current for one that names none, or none known."""
    version = headers.get("anthropic-version", "")
    return version if version in VERSIONS else "2023-06-01"


def key_of(headers: Headers) -> str | None:
    """The key a request carries; None without one."""
    bearer = headers.get("authorization", "")
    if bearer.lower().startswith("bearer "):
        return bearer[len("bearer ") :]
    return headers.get("x-api-key")


def workspace_of(headers: Headers, keys: Collection[str] | None) -> str:
    """The workspace of a request: keys may be mapped to workspaces, otherwise all share one."""
    if isinstance(keys, Mapping):
        return str(keys.get(key_of(headers), "default"))
    return "default"


def _key_refusals(headers: Headers, keys: Collection[str] | None) -> Iterator[Refusal]:
    key = key_of(headers)
    if not key:
        yield refuse(Rule.NO_KEY)
    elif keys is not None and key not in keys:
        yield refuse(Rule.WRONG_BEARER if "authorization" in headers else Rule.WRONG_KEY)
