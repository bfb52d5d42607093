"""Ending by the `finish` tool: its input is the run's output, if it fits the schema that the agent asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError

from .answer import Call
from .ids import CallId
from .transcript import Fragment, result_block, results_message

FINISH_TOOL = "finish"
REMINDER = (
    "Your answer counts only if you hand it in with the `finish` tool: call it now, with input that fits its schema."
)
ACCEPTED = "Accepted."
NOT_RUN = "This call was not run: `finish` was called in the same message. Call it again before you finish, if need be."

_DESCRIPTION = (
    "Hand in the result and end your work. Call it exactly once, alone, when everything else is done; "
    "only what you hand in here is read."
)
_TOP_LEVEL = ("anyOf", "oneOf", "allOf")
_MOST_PROBLEMS = 5
_LONGEST_PROBLEM = 300

Schema = Mapping[str, Any]


def definition(schema: Schema) -> dict[str, Any]:
    """The tool as an entry of the request's `tools`."""
    return {"name": FINISH_TOOL, "description": _DESCRIPTION, "input_schema": dict(schema)}


def schema_problem(schema: Schema) -> str:
    """Why the API would refuse this schema of a tool's input; empty if it would not."""
    if schema.get("type") != "object":
        return "expected a JSON Schema with `type: object` at its top"
    if any(word in schema for word in _TOP_LEVEL):
        return f"the API takes none of {', '.join(_TOP_LEVEL)} at the top of a schema: put it under a property"
    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        return f"not JSON Schema: at {error.json_path}: {error.message}"
    return ""


def misfits(schema: Schema, raw_input: str) -> list[str]:
    """What of this input does not fit the schema, a few points at most; empty if it fits."""
    found = Draft202012Validator(dict(schema)).iter_errors(json.loads(raw_input))
    return [_told(error) for error in islice(found, _MOST_PROBLEMS)]


def _told(error: ValidationError) -> str:
    return f"at {error.json_path}: {error.message}"[:_LONGEST_PROBLEM]


def told(calls: Sequence[Call], handed_in: Call, problems: Sequence[str]) -> dict[CallId, str]:
    """What the model is told of each call of a message whose `finish` does not fit: none of them is run."""
    refusal = "\n".join(["The input does not fit the schema of `finish`. Mend it and call `finish` again:", *problems])
    return {call.call_id: refusal if call is handed_in else NOT_RUN for call in calls}


def closing(calls: Sequence[Call], accepted: Call) -> Fragment:
    """The message after the last one: it answers every call, so that the transcript can be sent for ever after."""
    blocks = {call.call_id: result_block(call.call_id, NOT_RUN, is_error=True) for call in calls}
    blocks[accepted.call_id] = result_block(accepted.call_id, ACCEPTED, is_error=False)
    return results_message([call.call_id for call in calls], blocks)
