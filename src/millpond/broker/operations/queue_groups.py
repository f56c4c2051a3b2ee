"""Groups as an administrator lists them: those that had members, and queue groups that nobody ever joined.

A group that only ever came by HTTP or gRPC has no members, and nothing at its coordinator: what is kept of its queues
is all there is of it. It counts as a share group that is empty. Where a group of another kind has its name, that one
is meant. Driven by Kafka's door, at the group's coordinator.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from millpond.broker.drivers.queue_partition import KIND
from millpond.broker.node import Node
from millpond.core.groups.descriptions import GroupListing, GroupType, ShareDescription
from millpond.core.groups.share import State
from millpond.core.groups.share_assignor import NAME as ASSIGNOR
from millpond.core.metadata.group_configs import REDRIVES
from millpond.core.metadata.internal_topics import STATES
from millpond.model.errors import CoordinatorUnavailable

PATIENCE_SECONDS: Final = 2.0
"""Where queues are kept by brokers that do not answer, the others are listed after this."""
NOBODYS_STATE: Final = State.EMPTY.value


def has_queues(node: Node) -> bool:
    """Otherwise there are no groups but those that have had members."""
    return STATES in node.image.topics


async def listings(node: Node, *, states: Collection[str], types: Collection[GroupType]) -> list[GroupListing]:
    """Of this coordinator, by name; empty filters let everything through."""
    found = {each.group: each for each in node.groups.listings(states=states, types=types)}
    is_wanted = not states or NOBODYS_STATE.lower() in {each.lower() for each in states}
    if is_wanted and (not types or GroupType.SHARE in types):
        for group in await _unjoined(node):
            found[group] = GroupListing(group, GroupType.SHARE, GroupType.SHARE.value, NOBODYS_STATE)
    return [found[group] for group in sorted(found)]


async def _unjoined(node: Node) -> set[str]:
    with suppress(CoordinatorUnavailable, TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            kept = await node.states.find(KIND)
        groups = {key.group for key in kept if not key.group.startswith(REDRIVES)}
        return {each for each in groups if _is_looked_after_here(node, each) and node.groups.describe(each) is None}
    return set()


def _is_looked_after_here(node: Node, group: str) -> bool:
    """Or by nobody yet, because no group has ever had a member: then any broker tells of it."""
    return node.groups.leader_of(group) == node.node_id or not node.groups.has_place


async def describe(node: Node, group: str) -> ShareDescription | None:
    """None where there is no share group of that name."""
    found = node.groups.describe(group)
    if found is not None:
        return found if isinstance(found, ShareDescription) else None
    if not _is_looked_after_here(node, group) or not await node.states.find(KIND, group=group):
        return None
    return ShareDescription(group, NOBODYS_STATE, 0, ASSIGNOR, ())
