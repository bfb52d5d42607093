"""What the API knows of each model: its window, its largest answer, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Literal

ADAPTIVE, ENABLED, DISABLED, BETWEEN_TOOLS = "adaptive", "enabled", "disabled", "between_tools"
Binding = Literal["never", "by_account", "always"]
Speed = Literal["taken", "ignored", "refused"]
THINKING_KINDS = (ADAPTIVE, BETWEEN_TOOLS, DISABLED, ENABLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model id. `rate_class` names the models that share one rate limit; `released` and `retires` are
    dates, empty when there is none.

    `thinking` are the kinds of thinking that may be asked for. `binds_thinking` says whether a signature holds
    for one conversation alone: `by_account` for accounts made since 2026-08-31. `fast` is what becomes of
    `speed: fast`.
    """

    id: str
    rate_class: str
    window_tokens: int = 1_000_000
    max_output_tokens: int = 128_000
    min_cache_tokens: int = 512
    takes_prefill: bool = False
    takes_system_role: bool = True
    takes_sampling: bool = False
    takes_forced_tool: bool = True
    thinking: frozenset[str] = frozenset({ADAPTIVE, DISABLED})
    high_effort_needs_thinking: bool = False
    signs_thinking: bool = True
    binds_thinking: Binding = "never"
    fast: Speed = "refused"
    refused_tools: frozenset[str] = frozenset()
    released: str = ""
    retires: str = ""

    @property
    def base(self) -> str:
        """The id without its date: one model may have two ids."""
        stem, _, date = self.id.rpartition("-")
        return stem if len(date) == 8 and date.isdigit() else self.id

    def is_retired(self, now: float) -> bool:
        """Whether the model is gone at `now`, in Unix seconds."""
        return bool(self.retires) and now >= unix_seconds(self.retires)


def unix_seconds(date: str) -> float:
    """The start of a day, in UTC."""
    return datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp()


_FABLE_BINDS: Mapping[str, Binding] = MappingProxyType({"5": "never", "5-1": "by_account", "5-2": "always"})
_FAST_BEFORE_5: Mapping[str, Speed] = MappingProxyType({"claude-opus-4-8": "taken", "claude-opus-4-6": "ignored"})


def _fable(name: str, version: str) -> Model:
    return Model(
        id=f"claude-{name}-{version}",
        rate_class="fable-5",
        takes_forced_tool=version == "5",
        thinking=frozenset({ADAPTIVE}),
        binds_thinking=_FABLE_BINDS[version],
        fast="taken" if version == "5-2" else "refused",
        released="2026-11-09" if version == "5-2" else "",
    )


def _before_5(model_id: str, rate_class: str, min_cache_tokens: int, *, is_4_6: bool = False) -> Model:
    """A model of the 4.6 to 4.8 generation."""
    return Model(
        id=model_id,
        rate_class=rate_class,
        min_cache_tokens=min_cache_tokens,
        takes_system_role=model_id == "claude-opus-4-8",
        takes_sampling=is_4_6,
        thinking=frozenset({ADAPTIVE, DISABLED, ENABLED} if is_4_6 else {ADAPTIVE, DISABLED}),
        fast=_FAST_BEFORE_5.get(model_id, "refused"),
    )


def _4_5(model_id: str, rate_class: str, *, min_cache_tokens: int = 4096, retires: str = "") -> Model:
    return Model(
        id=model_id,
        rate_class=rate_class,
        window_tokens=200_000,
        max_output_tokens=64_000,
        min_cache_tokens=min_cache_tokens,
        takes_prefill=True,
        takes_system_role=False,
        takes_sampling=True,
        thinking=frozenset({DISABLED, ENABLED}),
        retires=retires,
    )


_ALL = (
    *(_fable(name, version) for name in ("fable", "mythos") for version in ("5-2", "5-1", "5")),
    Model(
        id="claude-opus-5-5",
        rate_class="opus-5-5",
        takes_forced_tool=False,
        thinking=frozenset({ADAPTIVE}),
        binds_thinking="by_account",
        fast="taken",
        refused_tools=frozenset({"computer_20250124", "computer_20251124"}),
        released="2026-09-22",
    ),
    Model(
        id="claude-opus-5",
        rate_class="opus-5",
        high_effort_needs_thinking=True,
        fast="taken",
        released="2026-07-24",
    ),
    Model(
        id="claude-sonnet-5-5",
        rate_class="sonnet-5-5",
        takes_forced_tool=False,
        thinking=frozenset({ADAPTIVE, BETWEEN_TOOLS, DISABLED}),
        binds_thinking="by_account",
        released="2026-09-28",
    ),
    Model(id="claude-sonnet-5", rate_class="sonnet-5", min_cache_tokens=1024, takes_system_role=False),
    Model(id="claude-haiku-5-5", rate_class="haiku-5-5", binds_thinking="by_account", released="2026-10-07"),
    _before_5("claude-opus-4-8", "opus-4", 1024),
    _before_5("claude-opus-4-7", "opus-4", 2048),
    _before_5("claude-opus-4-6", "opus-4", 4096, is_4_6=True),
    _before_5("claude-sonnet-4-6", "sonnet-4", 1024, is_4_6=True),
    _4_5("claude-opus-4-5", "opus-4", retires="2027-01-22"),
    _4_5("claude-opus-4-5-20251101", "opus-4", retires="2027-01-22"),
    _4_5("claude-sonnet-4-5", "sonnet-4", min_cache_tokens=1024, retires="2026-11-30"),
    _4_5("claude-sonnet-4-5-20250929", "sonnet-4", min_cache_tokens=1024, retires="2026-11-30"),
    _4_5("claude-haiku-4-5", "haiku-4-5"),
    _4_5("claude-haiku-4-5-20251001", "haiku-4-5"),
)

MODELS: dict[str, Model] = {model.id: model for model in _ALL}
# What a server that takes any name serves under it.
ANY_MODEL = Model(
    id="any",
    rate_class="any",
    min_cache_tokens=1_000_000_000,
    takes_prefill=True,
    takes_sampling=True,
    thinking=frozenset(THINKING_KINDS),
    signs_thinking=False,
)


def model_of(model_id: str) -> Model:
    """The model of an accepted request."""
    return MODELS.get(model_id, ANY_MODEL)
