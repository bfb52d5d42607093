"""Calls that the simulated model makes: of the client's tools, and of those that the API runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a client's tool. `id` is derived from the conversation when it is empty. `by_code` makes it a
    programmatic call, of the code that the answer's first server call runs."""

    tool: str
    input: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    by_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCall:
    """One call of a tool that the API runs, such as `web_search`. `result` is the content of its result block;
    None leaves the call open, as in a turn that pauses or waits for the client as well."""

    tool: str
    input: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None
    id: str = ""
