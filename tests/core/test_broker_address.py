"""A broker's URL, as people write it and as kombu does."""

from __future__ import annotations

import pytest

from paceline.core.broker_address import broker_address
from paceline.core.errors import UsageError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("rediss://user:secret@host:6380/1", "rediss://user:secret@host:6380/1"),
        ("unix:///run/valkey.sock", "redis+socket:///run/valkey.sock?virtual_host=0"),
        ("unix:///run/valkey.sock?db=2", "redis+socket:///run/valkey.sock?virtual_host=2"),
        ("sentinel://a:1,b:2/3?service=main", "sentinel://a:1/3;sentinel://b:2/3"),
        ("sentinel://:secret@a:1,b:2/3", "sentinel://:secret@a:1/3;sentinel://:secret@b:2/3"),
        ("amqp://h//", "amqp://h//"),
    ],
)
def test_a_url_is_written_as_kombu_writes_it(given: str, expected: str) -> None:
    assert broker_address(given).url == expected


def test_keys_of_a_broker_in_redis_lie_under_the_prefix() -> None:
    assert broker_address("redis://h:1/0", prefix="p").transport_options["global_keyprefix"] == "p:broker:"


def test_sentinels_are_asked_for_the_primary_that_the_url_names() -> None:
    assert broker_address("sentinel://a:1/0?service=main").transport_options["master_name"] == "main"
    assert broker_address("sentinel://a:1/0").transport_options["master_name"] == "mymaster"
    assert "master_name" not in broker_address("redis://a:1/0").transport_options


def test_another_broker_is_left_as_it_is() -> None:
    rabbit = broker_address("amqp://h//")
    assert (rabbit.transport_options, rabbit.is_redis) == ({}, False)


def test_a_cluster_is_refused_as_a_broker() -> None:
    with pytest.raises(UsageError, match="set PACELINE_BROKER_URL to a single server"):
        broker_address("redis+cluster://a:1,b:2")


@pytest.mark.parametrize("url", ["redis://host:6379/0?password=secret", "unix:///path?username=u&password=secret"])
def test_a_login_where_kombu_does_not_read_it_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(UsageError, match="write user and password before the host") as refused:
        broker_address(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("amqp://user:a/secret@host//", "write %2F for /"),
        ("redis://:a[secret@host", "write %2F for /"),
        ("amqp://user:secret@host:port//", "'port'"),
    ],
)
def test_what_is_no_address_is_refused_without_its_password(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        broker_address(url)
    assert "secret" not in str(refused.value)
