"""Mistakes in a playbook, told to the one who wrote it: which rule, which field, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError

from paceline.sim import playbook_file as parts

# What the field of each name holds, by which an unknown field inside it is compared with the known ones.
_HOLDERS: Mapping[str, type[BaseModel]] = MappingProxyType(
    {
        "rules": parts.RulePart,
        "when": parts.When,
        "turn": parts.TurnRange,
        "tool_results": parts.ResultPattern,
        "answer": parts.AnswerPart,
        "calls": parts.CallPart,
        "server_calls": parts.ServerCallPart,
        "switches": parts.SwitchesPart,
        "batches": parts.BatchesPart,
        "faults": parts.InjectionPart,
        "fault": parts.FaultPart,
    }
)


class PlaybookError(ValueError):
    """A playbook that cannot be used; the text names the file, the rule and the fix."""


def mistakes(error: ValidationError, written: Mapping[str, Any]) -> list[str]:
    """One line for each mistake found in the playbook `written`."""
    return [f"  {_mistake(found, written)}" for found in error.errors()]


def _mistake(found: Any, written: Mapping[str, Any]) -> str:
    path = [part for part in found["loc"] if part not in ("int", "TurnRange")]
    where, inside = _where(path, written)
    field = ".".join(str(part) for part in inside)
    return f"{where}{field}{': ' if field else ''}{_advice(found, path)}"


def _where(path: list[Any], written: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The rule that a path leads into, as a reader would name it, and the rest of the path."""
    if len(path) < 2 or path[0] != "rules":
        return "", path
    rule = written["rules"][path[1]]
    name = f" ({rule['name']})" if isinstance(rule, dict) and rule.get("name") else ""
    return f"rule {path[1] + 1}{name}: ", path[2:]


def _advice(found: Any, path: list[Any]) -> str:
    match found["type"]:
        case "extra_forbidden":
            near = difflib.get_close_matches(str(path[-1]), _known_beside(path), n=1)
            return "unknown field; " + (f"did you mean `{near[0]}`?" if near else "remove it")
        case "missing":
            return "missing; add it"
        case "value_error":
            return str(found["ctx"]["error"])
        case _:
            return f"{found['msg']}, not {found['input']!r}"


def _known_beside(path: list[Any]) -> list[str]:
    """The fields that may stand where a path ends."""
    holders = [_HOLDERS[part] for part in path[:-1] if part in _HOLDERS]
    holder = holders[-1] if holders else parts.PlaybookFile
    return [field.alias or name for name, field in holder.model_fields.items()]
