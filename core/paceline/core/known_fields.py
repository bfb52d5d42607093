"""Values that a newer version wrote: what it added to them is passed over, as long as their version is the same.

So workers and producers of two releases work on one record while a fleet is upgraded, whichever is upgraded first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def known_fields(kind: type[DataclassInstance], data: Mapping[str, Any]) -> dict[str, Any]:
    """Of these members, those that are fields of the dataclass."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in data.items() if name in names}
