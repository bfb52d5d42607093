"""The Models API: what each model takes, as the simulator enforces it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.sim.models import MODELS, THINKING_KINDS, Model, unix_seconds
from paceline.sim.rules import Refusal, Rule, refuse
from paceline.sim.wire import rfc_3339

ACTIVE, DEPRECATED, RETIRED = "active", "deprecated", "retired"


def models(now: float, lifecycles: Sequence[str]) -> list[dict[str, Any]]:
    """The models in these stages of life; those that are not retired when none are named."""
    wanted = lifecycles or (ACTIVE, DEPRECATED)
    return [model_info(model, now) for model in MODELS.values() if _lifecycle(model, now) in wanted]


def one_model(model_id: str, now: float) -> dict[str, Any] | Refusal:
    """One model by its id."""
    model = MODELS.get(model_id)
    return refuse(Rule.UNKNOWN_MODEL, model=model_id) if model is None else model_info(model, now)


def model_info(model: Model, now: float) -> dict[str, Any]:
    """A model as the API writes it."""
    _, line, *version = model.base.split("-")
    return {
        "type": "model",
        "id": model.id,
        "display_name": f"Claude {line.capitalize()} {'.'.join(version)}",
        # The epoch stands for a day that is not known.
        "created_at": rfc_3339(unix_seconds(model.released) if model.released else 0.0),
        "lifecycle": _lifecycle(model, now),
        "deprecated_at": None,
        "retires_at": rfc_3339(unix_seconds(model.retires)) if model.retires else None,
        "line": line,
        "max_input_tokens": model.window_tokens,
        "max_tokens": model.max_output_tokens,
        "capabilities": _capabilities(model),
    }


def _lifecycle(model: Model, now: float) -> str:
    if model.is_retired(now):
        return RETIRED
    return DEPRECATED if model.retires else ACTIVE


def _capabilities(model: Model) -> dict[str, Any]:
    is_recent = "adaptive" in model.thinking
    return {
        **{
            name: _support(True)
            for name in ("batch", "citations", "code_execution", "image_input", "pdf_input", "structured_outputs")
        },
        "context_management": {
            "supported": True,
            "clear_thinking_20251015": _support(True),
            "clear_tool_uses_20250919": _support(True),
            "compact_20260112": _support(is_recent),
        },
        "effort": {
            "supported": is_recent,
            **{name: _support(is_recent) for name in ("low", "medium", "high", "xhigh", "max")},
        },
        "server_tools": {"supported": True, "code_execution": _support(True), "web_search": _support(True)},
        "thinking": {
            "supported": True,
            "types": {kind: _support(kind in model.thinking) for kind in THINKING_KINDS},
        },
    }


def _support(is_supported: bool) -> Mapping[str, bool]:
    return {"supported": is_supported}
