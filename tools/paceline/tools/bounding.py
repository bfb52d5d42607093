"""Long texts: the head and the tail, and a note that says what is missing between them."""

from __future__ import annotations

from paceline.core.tool_spec import READ_RESULT

MIN_RESULT_CHARS = 400
"""Less would leave no room for text beside the note."""

_LONGEST_NAMED_ID = 100
_HEAD_SHARE = 0.7  # What a text is about stands first; how it ended stands last.


def bounded(text: str, max_chars: int, *, call_id: str | None = None) -> str:
    """The text if it fits; else its head and its tail around a note of how much is missing.

    Never longer than `max_chars` characters (code points), which must be at least `MIN_RESULT_CHARS`. With a
    `call_id` the note says with which call of `read_result` the missing part can be read.
    """
    if max_chars < MIN_RESULT_CHARS:
        raise ValueError(f"max_chars is {max_chars}, must be at least {MIN_RESULT_CHARS}")
    if len(text) <= max_chars:
        return text
    # The note with the largest numbers it could hold is the longest: what it leaves is room for text.
    room = max_chars - len(_note(len(text), len(text), len(text), call_id))
    head = int(room * _HEAD_SHARE)
    return text[:head] + _note(len(text) - room, len(text), head, call_id) + text[len(text) - (room - head) :]


def _note(missing: int, length: int, offset: int, call_id: str | None) -> str:
    how = ""
    if call_id is not None and len(call_id) <= _LONGEST_NAMED_ID:
        how = f'; {READ_RESULT}(call_id="{call_id}", offset={offset}) returns them'
    return f"\n\n[... {missing} of {length} characters are left out here{how} ...]\n\n"
