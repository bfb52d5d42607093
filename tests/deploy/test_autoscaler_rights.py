"""The user that docs/operations.md gives to KEDA can read how much waits and how much is running, and nothing else."""

from __future__ import annotations

import re
import uuid

import pytest
from deploy.programs import ROOT
from redis import Redis
from redis.exceptions import NoPermissionError
from support.acl import set_rules

LENGTH = """
local count = {list = 'llen', hash = 'hlen', none = 'llen'}
return redis.call(count[redis.call('type', KEYS[1]).ok], KEYS[1])
"""
"""As the scaler asks: for the length of whatever is there."""


@pytest.fixture
def prefix(valkey_url: str) -> str:
    return f"test-{uuid.uuid4().hex}"


def test_the_documented_rights_of_an_autoscaler_are_enough_and_no_more(valkey_url: str, prefix: str) -> None:
    (documented,) = re.findall(r"ACL SETUSER keda (.*)", (ROOT / "docs" / "operations.md").read_text())
    rules = documented.replace(">PASSWORD", ">secret").replace("~paceline:", f"~{prefix}:").split()
    waiting, running, run = f"{prefix}:broker:paceline.turns", f"{prefix}:broker:unacked.threads", f"{prefix}:01:run:x"
    with Redis.from_url(valkey_url) as fleet, Redis.from_url(set_rules(valkey_url, prefix, rules)) as keda:
        fleet.rpush(waiting, "a", "b")
        fleet.hset(running, mapping={"c": "1", "d": "2", "e": "3"})
        try:
            assert [keda.eval(LENGTH, 1, key) for key in (waiting, running, f"{prefix}:broker:none")] == [2, 3, 0]
            for forbidden in (("LPUSH", waiting, "x"), ("LRANGE", waiting, 0, -1), ("HLEN", run)):
                with pytest.raises(NoPermissionError):
                    keda.execute_command(*forbidden)
        finally:
            fleet.delete(waiting, running)
            fleet.execute_command("ACL", "DELUSER", prefix)
