"""Servers that speak the Messages API without being it: what they check less, leave out, and how they fail.

What is known of them comes from threads about them, not from their code: see `Dialect.source`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from paceline.sim.rules import Rule, error_body


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error to be written."""

    status: int
    error_type: str
    text: str
    error_code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One kind of server. `unenforced` are rules it does not have; `usage` the fields it reports, None for all;
    `is_marked` is true when answers carry a request id, an organisation and rate limits."""

    name: str
    source: str
    write: Callable[[Failure, str], bytes]
    unenforced: frozenset[Rule] = frozenset()
    usage: tuple[str, ...] | None = None
    is_marked: bool = True


def _anthropic(failure: Failure, request_id: str) -> bytes:
    return error_body(failure.error_type, failure.text, request_id, failure.error_code)


def _vllm(failure: Failure, request_id: str) -> bytes:
    if failure.status in (401, 404):
        return json.dumps({"detail": failure.text}).encode()
    name = "BadRequestError" if failure.status < 500 else "InternalServerError"
    error = {"object": "error", "message": failure.text, "type": name, "param": None, "code": failure.status}
    return json.dumps(error).encode()


def _llama_cpp(failure: Failure, request_id: str) -> bytes:
    error = {"code": failure.status, "message": failure.text, "type": failure.error_type}
    return json.dumps({"error": error}).encode()


_LITELLM_NAMES: Mapping[int, str] = MappingProxyType(
    {401: "AuthenticationError", 404: "NotFoundError", 429: "RateLimitError"}
)


def _litellm(failure: Failure, request_id: str) -> bytes:
    name = _LITELLM_NAMES.get(failure.status, "BadRequestError" if failure.status < 500 else "InternalServerError")
    inner = _anthropic(failure, request_id).decode()
    text = (
        f"litellm.{name}: AnthropicException - {inner}. Received Model Group=any\nAvailable Model Group Fallbacks=None"
    )
    error = {"message": text, "type": "None", "param": "None", "code": str(failure.status)}
    return json.dumps({"error": error}).encode()


_HEADERS = frozenset({Rule.NO_KEY, Rule.NO_VERSION, Rule.BAD_VERSION, Rule.UNKNOWN_BETA})
_OWN_MODELS = _HEADERS | {Rule.UNKNOWN_MODEL, Rule.SAMPLING_GONE, Rule.CALLS_WITHOUT_TOOLS}
_BARE_USAGE = ("input_tokens", "output_tokens")

ANTHROPIC = Dialect(name="anthropic", source="docs, api/errors", write=_anthropic)
DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (
            ANTHROPIC,
            Dialect(
                name="vllm",
                source="issue vllm#4667",
                write=_vllm,
                unenforced=_OWN_MODELS,
                usage=_BARE_USAGE,
                is_marked=False,
            ),
            Dialect(
                name="llama.cpp",
                source="issue butterfish#53; pull request llama.cpp#17570",
                write=_llama_cpp,
                unenforced=_OWN_MODELS,
                usage=_BARE_USAGE,
                is_marked=False,
            ),
            Dialect(
                name="litellm",
                source="issues litellm#20575, pull request litellm#30385",
                write=_litellm,
                unenforced=_HEADERS | {Rule.UNKNOWN_MODEL},
                is_marked=False,
            ),
        )
    }
)


def dialect_named(name: str) -> Dialect:
    """The dialect of that name; ValueError with the known ones."""
    if name not in DIALECTS:
        raise ValueError(f"there is no dialect {name!r}; there are: {', '.join(DIALECTS)}")
    return DIALECTS[name]
