"""An address is shown without what lets somebody in, however wrong it is."""

from __future__ import annotations

import pytest

from paceline.core.shown_address import why_not_an_address, without_password

SECRET = "s3cret"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@host:6379/0",
        f"redis+cluster://user:{SECRET}@a:1,b:2",
        f"sentinel://{SECRET}@host:26379/0?service=x",
        f"redis://:a/{SECRET}@host:6379/0",
        f"redis://:a?{SECRET}@host:6379/0",
        f"redis://:a#{SECRET}@host:6379/0",
        f"redis://:a@{SECRET}@host:6379/0",
        f"redis://:[{SECRET}@host:6379/0",
        f":{SECRET}@host",
        f"unix:///path?db=1&password={SECRET}",
        f"rediss://host/0?ssl_password={SECRET}&db=1",
        f"amqp://user:{SECRET}@a//;amqp://user:{SECRET}@b//",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    assert SECRET not in without_password(url)


def test_all_else_is_shown() -> None:
    assert without_password("redis+cluster://user:secret@a:1,b:2") == "redis+cluster://user:***@a:1,b:2"
    assert without_password("redis://host:6379/0?db=1") == "redis://host:6379/0?db=1"


def _read(url: str) -> None:
    raise ValueError(f"no such thing as {url}")


def test_what_is_wrong_is_told_of_the_address_without_its_login() -> None:
    assert why_not_an_address(f"redis://:{SECRET}@host", _read) == "no such thing as redis://host"


def test_a_password_with_a_sign_that_ends_it_is_said_to_be_the_fault() -> None:
    told = why_not_an_address(f"redis://:a/{SECRET}@host", lambda url: None)
    assert "%2F for /" in told
    assert SECRET not in told


def test_nothing_is_told_where_an_option_is_secret() -> None:
    assert why_not_an_address(f"redis://host?password={SECRET}", _read) == ""
