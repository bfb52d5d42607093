"""An agent: a versioned definition, frozen into each run when the run is submitted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from .approval import OnDenied
from .cache_breakpoint import with_breakpoint
from .errors import NewerVersion
from .finish import definition as finish_definition
from .ids import AgentDigest, agent_digest
from .known_fields import known_fields
from .prices import GivenPrices, ModelPrices, Prices
from .request_fields import RequestFields
from .tool_spec import ToolSpec
from .unknown_effect import OnUnknownEffect

AGENT_VERSION = 1
COMPACT_AT = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a run stops. None: no limit of this kind."""

    turns: int | None = 25
    tokens: int | None = 300_000
    """All input, cached too, and output, over the whole run."""
    seconds: float | None = 600.0
    """Working time: the model's and the tools'; not waiting in queues or on hold."""
    deadline_seconds: float | None = None
    """From submission, by the clock."""
    usd: float | None = 1.0
    repeats: int | None = 3
    """The same call in a row: so many times, and it is not run any more; once more, and the run stops."""
    error_turns: int | None = 3
    """Turns in a row in which every call failed."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data. What came later is left out where it is the default: an agent keeps its digest."""
        data = asdict(self)
        for name in ("repeats", "error_turns"):
            if data[name] == getattr(Limits(), name):
                del data[name]
        return data


@dataclass(frozen=True, kw_only=True)
class Agent:
    """Model, instructions, tools and limits. Equal definitions freeze to equal bytes, and so have one digest."""

    name: str
    model: str
    max_tokens: int = 4096
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    limits: Limits = field(default_factory=Limits)
    model_attempts: int = 5
    empty_retries: int = 2
    pauses: int = 10
    on_unknown_effect: OnUnknownEffect = OnUnknownEffect.WAIT
    on_denied: OnDenied = OnDenied.TELL
    compact_at: float | None = COMPACT_AT
    """The share of the model's window past which old tool results are cleared from what is sent, where that pays and
    the model bears it; None: never."""
    finish: Mapping[str, Any] | None = None
    """The JSON Schema of the output; set: a run ends by the `finish` tool alone."""
    passed_through: RequestFields = field(default_factory=RequestFields)
    prices: GivenPrices | None = None
    """What its model costs, where the price table is not to say that."""

    def freeze(self) -> bytes:
        """The definition as bytes, for the record."""
        own = {
            "tools": [tool.to_json() for tool in self.tools],
            "limits": self.limits.to_json(),
            "passed_through": self.passed_through.to_json(),
            "prices": self.prices and self.prices.to_json(),
        }
        data = {**asdict(self), **own, "version": AGENT_VERSION}
        if self.on_unknown_effect is OnUnknownEffect.WAIT:
            del data["on_unknown_effect"]  # as before there was such a thing: an agent keeps its digest
        if self.on_denied is OnDenied.TELL:
            del data["on_denied"]
        if self.finish is None:
            del data["finish"]
        if self.compact_at == COMPACT_AT:
            del data["compact_at"]
        if self.passed_through == RequestFields():
            del data["passed_through"]
        if self.prices is None:
            del data["prices"]
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def thaw(cls, frozen: bytes) -> Agent:
        """The agent that `freeze` wrote; members that are not known here are passed over.

        Raises NewerVersion for a version that this code does not read.
        """
        data = json.loads(frozen)
        version = data.pop("version")
        if version != AGENT_VERSION:
            raise NewerVersion(
                f"an agent of version {version} cannot be read here: this paceline reads {AGENT_VERSION}: upgrade it"
            )
        tools = tuple(ToolSpec.from_json(tool) for tool in data.pop("tools"))
        on_unknown_effect = OnUnknownEffect(data.pop("on_unknown_effect", OnUnknownEffect.WAIT))
        on_denied = OnDenied(data.pop("on_denied", OnDenied.TELL))
        limits = Limits(**known_fields(Limits, data.pop("limits")))
        if "passed_through" in data:
            data["passed_through"] = RequestFields.from_json(data["passed_through"])
        if "prices" in data:
            data["prices"] = GivenPrices.from_json(data["prices"])
        rest = known_fields(cls, data)
        return cls(**rest, tools=tools, limits=limits, on_unknown_effect=on_unknown_effect, on_denied=on_denied)

    @cached_property
    def digest(self) -> AgentDigest:
        return agent_digest(self.freeze())

    @cached_property
    def priced_by(self) -> Prices:
        return self.prices or ModelPrices(model=self.model)

    @cached_property
    def tools_by_name(self) -> Mapping[str, ToolSpec]:
        return {tool.name: tool for tool in self.tools}

    @cached_property
    def tool_names(self) -> Sequence[str]:
        """Every tool that the model may call."""
        return [str(definition.get("name")) for definition in self._definitions()]

    @cached_property
    def head(self) -> bytes:
        """The request up to its messages, rendered once: the same bytes on every worker, so the prompt cache holds.

        The breakpoint of the head stands on the last block before the messages; the moving one is the API's own
        (`cache_control` at the top level), so no stored message is ever touched for it.
        """
        members: dict[str, Any] = {"model": self.model, "cache_control": _EPHEMERAL, **self.passed_through.body}
        tools = self._definitions()
        if tools:
            members["tools"] = tools
        if self.system:
            members["system"] = [{"type": "text", "text": self.system, "cache_control": _EPHEMERAL}]
        elif tools:
            tools[-1]["cache_control"] = _EPHEMERAL
        return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()[:-1] + b',"messages":['

    def _definitions(self) -> list[dict[str, Any]]:
        own = [*(tool.definition() for tool in self.tools), *map(dict, self.passed_through.server_tools)]
        return own if self.finish is None else [*own, finish_definition(self.finish)]

    def request(self, fragments: Sequence[bytes], *, max_tokens: int, user_id: str, container: str = "") -> bytes:
        """The body of a call: the head, the stored messages, and what may differ between calls last.

        The messages are sent as they are stored, but for a cache breakpoint after a long turn.
        `container` is where the API ran code for this conversation, if it did.
        """
        last: dict[str, Any] = {"max_tokens": max_tokens, "metadata": {"user_id": user_id}}
        tail = json.dumps(last | {"container": container} if container else last, separators=(",", ":"))
        return self.head + b",".join(with_breakpoint(fragments)) + b"]," + tail[1:].encode()


_EPHEMERAL = {"type": "ephemeral"}
