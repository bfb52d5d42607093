"""A user of the session's Valkey who may do what the documentation says is needed, and no more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from redis import Redis

_DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "guarantees.md"
_OF_THE_TESTS = ["~test-*", "+scan", "+pexpire"]
"""Their prefixes, and how they let time pass."""


def documented_rules() -> list[list[str]]:
    """The rules of each `ACL SETUSER paceline` in the documentation: for the record, and on top for the broker."""
    blocks = re.findall(r"ACL SETUSER paceline (.*?)```", _DOCUMENT.read_text(), re.DOTALL)
    return [block.replace(">PASSWORD", ">secret").split() for block in blocks]


def set_rules(url: str, user: str, rules: list[str]) -> str:
    """Give a user these rights, and return the URL by which to come as that user."""
    with Redis.from_url(url) as client:
        client.execute_command("ACL", "SETUSER", user, *rules)
    return url.replace("redis://", f"redis://{user}:secret@")


@pytest.fixture(scope="session")
def acl_url(valkey_url: str) -> str:
    """The server's address for a user with the documented rights."""
    return set_rules(valkey_url, "paceline", [*documented_rules()[0], *_OF_THE_TESTS])
