"""What an operator does to a simulated cluster on its bad days: partitions move, a broker that joined becomes a voter
and stops to be one, and a disk is replaced by an empty one.

A disk is lost only by a broker that does not vote: a voter that forgets breaks what Raft builds on. And only where
every partition it keeps is in sync everywhere, so that nothing is lost that a cluster could have kept.
Driven by replicated_world.py.
"""

import asyncio
import random
from enum import Enum
from functools import partial

from millpond.core.metadata.commands import NO_LEADER
from millpond.core.metadata.decisions import Decision
from millpond.core.metadata.image import Image, Partition
from millpond.core.metadata.partition_changes import partitions_of
from millpond.core.metadata.reassignments import Reassign, Reassigned, reassign
from millpond.core.raft.membership import PromoteLearner, RemoveNode
from millpond.model.errors import MillpondError
from millpond.model.ids import TopicPartition
from millpond.testing.hosts import HostDown
from tests.broker.clusters import Machine, SimCluster

REPLICAS = 3


class Kind(Enum):
    """Of a cluster."""

    THREE = "three brokers, all founders"
    GUEST_VOTES = "three and one that joined, which votes at times"
    GUEST_FORGETS = "three and one that joined, which loses its disk at times"
    FIVE = "five brokers, all founders"


def kind_of(seed: int) -> Kind:
    match seed % 10:
        case 2:
            return Kind.GUEST_VOTES
        case 3:
            return Kind.GUEST_FORGETS
        case 4 | 9:
            return Kind.FIVE
        case _:
            return Kind.THREE


async def move_partitions(cluster: SimCluster, places: tuple[tuple[str, int], ...], rng: random.Random) -> None:
    while True:
        await asyncio.sleep(rng.uniform(1.0, 8.0))
        if not cluster.up:
            continue
        machine, at = rng.choice(cluster.up), TopicPartition(*rng.choice(places))
        assert machine.broker is not None
        live = sorted(each.broker for each in machine.broker.node.image.live_brokers())
        if len(live) < REPLICAS:
            continue
        drawn = rng.sample(live, len(live))
        metadata = machine.broker.node.metadata
        try:
            await machine.host.run(metadata.decide(partial(_move, at, drawn)))
        except (MillpondError, HostDown):
            continue


def _move(at: TopicPartition, drawn: list[int], image: Image) -> Decision[Reassigned]:
    """To the first of those that were drawn; and its leader stays one, so that it goes on leading."""
    partition = image.partition(at)
    if partition is None or partition.leader == NO_LEADER:
        return Decision((), ())
    others = [each for each in drawn if each != partition.leader][: REPLICAS - 1]
    place = drawn[0] % REPLICAS
    return reassign(image, [Reassign(at, (*others[:place], partition.leader, *others[place:]))])


async def change_voters(cluster: SimCluster, guest: Machine, rng: random.Random) -> None:
    while True:
        await asyncio.sleep(rng.uniform(3.0, 10.0))
        if not cluster.up:
            continue
        machine = rng.choice(cluster.up)
        assert machine.broker is not None
        metadata = machine.broker.node.metadata
        is_voter = guest.node_id in metadata.quorum.raft.membership.voters
        change = RemoveNode(guest.node_id) if is_voter else PromoteLearner(guest.node_id)
        try:
            await machine.host.run(metadata.change_members(change))
        except (MillpondError, HostDown):
            continue


def may_forget(image: Image | None, broker: int) -> bool:
    kept = _kept(image, broker)
    return bool(kept) and all(set(each.isr) == set(each.replicas) for each in kept)


def leaders_beside(image: Image | None, broker: int) -> list[int]:
    """Of the partitions that it keeps, but for itself."""
    return [each.leader for each in _kept(image, broker) if each.leader not in (NO_LEADER, broker)]


def _kept(image: Image | None, broker: int) -> list[Partition]:
    if image is None:
        return []
    return [partition for _, _, partition in partitions_of(image) if broker in partition.replicas]
