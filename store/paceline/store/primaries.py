"""The servers that take writes: one, or several where the record is in a Redis Cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode, PipelineCommand

Command = tuple[str | bytes | int, ...]


async def by_primary(client: Redis, keys: Iterable[str]) -> list[list[str]]:
    """These keys in groups, each group in the hands of one server."""
    if not isinstance(client, RedisCluster):
        return [list(keys)]
    await client.initialize()
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(_node(client, key).name, []).append(key)
    return list(groups.values())


async def on_one_connection(client: Redis, key: str, commands: Sequence[Command]) -> list[Any]:
    """The replies to these commands, which one connection of the server that has this key carries one after another.

    Through a cluster nothing is repeated and no redirection followed: the first error is raised.
    """
    if isinstance(client, RedisCluster):
        return await _on_node(client, key, commands)
    async with client.pipeline(transaction=False) as pipe:
        for command in commands:
            pipe.execute_command(*command)
        return list(await pipe.execute())


async def _on_node(client: RedisCluster, key: str, commands: Sequence[Command]) -> list[Any]:
    await client.initialize()
    sent = [PipelineCommand(place, *command) for place, command in enumerate(commands)]
    await _node(client, key).execute_pipeline(sent)
    for command in sent:
        if isinstance(command.result, Exception):
            raise command.result
    return [command.result for command in sent]


def _node(client: RedisCluster, key: str) -> ClusterNode:
    node: ClusterNode | None = client.get_node_from_key(key)
    assert node is not None, "a primary is asked for, and each slot has one"
    return node


async def infos(client: Redis, section: str = "default") -> dict[str, dict[str, Any]]:
    """What each primary says of itself, by its address in a cluster; by the empty string where there is one server."""
    if not isinstance(client, RedisCluster):
        return {"": dict(await client.info(section))}
    await client.initialize()
    return {node.name: dict(await client.info(section, target_nodes=node)) for node in client.get_primaries()}
