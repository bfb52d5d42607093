"""The prompt of an agent with its places for a row's fields: `"Which rotation owns {service}?"`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any

_NAME = re.compile(r"[^\W\d][\w-]*")


class BadTemplate(ValueError):
    """A template cannot be read; the message says which place of it, and the fix."""


class MissingField(ValueError):
    """A row lacks what the template needs; the message names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A text in pieces: each literal, and the field that follows it (None at the end)."""

    pieces: tuple[tuple[str, str | None], ...]

    @property
    def fields(self) -> frozenset[str]:
        """The fields of a row that it needs."""
        return frozenset(field for _, field in self.pieces if field is not None)

    def fill(self, row: Mapping[str, Any]) -> str:
        """The prompt of a row. Texts stand as they are, all else as JSON. Raises MissingField."""
        return "".join(literal + ("" if field is None else _text(row, field)) for literal, field in self.pieces)


def read_template(text: str) -> Template:
    """Raises BadTemplate for anything but plain names in braces; `{{` and `}}` stand for the braces themselves."""
    try:
        pieces = list(Formatter().parse(text))
    except ValueError as error:
        raise BadTemplate(f"{error}: write {{{{ and }}}} for braces that are meant as such") from None
    for _, field, spec, conversion in pieces:
        if field is not None and (spec or conversion or not _NAME.fullmatch(field)):
            raise BadTemplate(_not_a_name(field, spec, conversion))
    return Template(pieces=tuple((literal, field) for literal, field, _, _ in pieces))


def _not_a_name(field: str, spec: str | None, conversion: str | None) -> str:
    written = field + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
    return (
        f"{{{written}}} is not the plain name of a row's field, as in {{service}}: name a field, or write "
        f"{{{{{written}}}}} if the braces are meant as such"
    )


def _text(row: Mapping[str, Any], field: str) -> str:
    value = row.get(field)
    if value is None:
        state = "is null" if field in row else "is missing"
        raise MissingField(f"the field {field!r} {state}, and the agent's prompt needs it")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
