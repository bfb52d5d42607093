"""The simulator's tokenizer."""

from __future__ import annotations

CHARS_PER_TOKEN = 3.5


def tokens(chars: int) -> int:
    """Tokens of a text of so many characters: 3.5 a token, rounded up."""
    return -(-chars * 2 // 7)
