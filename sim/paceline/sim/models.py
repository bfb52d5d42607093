"""What the API knows of each model: its window, its largest answer, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model id. `rate_class` names the models that share one rate limit."""

    id: str
    rate_class: str
    window_tokens: int = 1_000_000
    max_output_tokens: int = 128_000
    min_cache_tokens: int = 512
    takes_prefill: bool = False
    takes_system_role: bool = True
    takes_sampling: bool = False
    takes_forced_tool: bool = True


def _before_5(model_id: str, rate_class: str, min_cache_tokens: int, *, sampling: bool = True) -> Model:
    """A model of the 4.6 to 4.8 generation."""
    return Model(
        id=model_id,
        rate_class=rate_class,
        min_cache_tokens=min_cache_tokens,
        takes_system_role=model_id == "claude-opus-4-8",
        takes_sampling=sampling,
    )


def _4_5(model_id: str, rate_class: str) -> Model:
    return Model(
        id=model_id,
        rate_class=rate_class,
        window_tokens=200_000,
        max_output_tokens=64_000,
        min_cache_tokens=4096,
        takes_prefill=True,
        takes_system_role=False,
        takes_sampling=True,
    )


_ALL = (
    *(
        Model(id=f"claude-{name}-{version}", rate_class="fable-5", takes_forced_tool=version == "5")
        for name in ("fable", "mythos")
        for version in ("5", "5-1", "5-2")
    ),
    Model(id="claude-opus-5-5", rate_class="opus-5-5", takes_forced_tool=False),
    Model(id="claude-opus-5", rate_class="opus-5"),
    Model(id="claude-sonnet-5-5", rate_class="sonnet-5-5", takes_forced_tool=False),
    Model(id="claude-sonnet-5", rate_class="sonnet-5", min_cache_tokens=1024, takes_system_role=False),
    Model(id="claude-haiku-5-5", rate_class="haiku-5-5"),
    _before_5("claude-opus-4-8", "opus-4", 1024, sampling=False),
    _before_5("claude-opus-4-7", "opus-4", 2048, sampling=False),
    _before_5("claude-opus-4-6", "opus-4", 4096),
    _before_5("claude-sonnet-4-6", "sonnet-4", 1024),
    _4_5("claude-opus-4-5", "opus-4"),
    _4_5("claude-opus-4-5-20251101", "opus-4"),
    _4_5("claude-haiku-4-5", "haiku-4-5"),
    _4_5("claude-haiku-4-5-20251001", "haiku-4-5"),
)

MODELS: dict[str, Model] = {model.id: model for model in _ALL}
