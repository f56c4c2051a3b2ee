"""Who looks after a group: all brokers name the same one, and a moment of doubt leaves nobody without offsets."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from millpond.api.kafka.context import Context
from millpond.api.kafka.handlers import find_coordinator
from millpond.app.broker import Broker
from millpond.broker.drivers.groups import JUST_GONE_MS
from millpond.core.groups.errors import GroupError
from millpond.core.groups.offsets import FetchedOffsets, FetchOffsets
from millpond.model.ids import TopicPartition
from millpond.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.broker.clusters import Machine, SimCluster
from tests.broker.test_cluster import until
from tests.broker.test_movement import with_brokers

GROUP_KEY = 0
MANY = {"offsets.topic.num.partitions": "6", "offsets.topic.replication.factor": "3"}


def broker_of(machine: Machine) -> Broker:
    assert machine.broker is not None
    return machine.broker


def _nothing() -> None:
    """No connection is behind these requests."""


def _ignore(then: Callable[[], object]) -> None:
    """Nor will one be lost."""


async def find(machine: Machine, group: str) -> FindCoordinatorResponse:
    context = Context(version=3, client_id="", host="", close=_nothing, answer_alone=_nothing, when_lost=_ignore)
    answer = find_coordinator.answer(
        broker_of(machine).node, FindCoordinatorRequest(key=group, key_type=GROUP_KEY), context
    )
    return await machine.host.run(_awaited(answer)) if isinstance(answer, Awaitable) else answer


async def _awaited(answer: Awaitable[FindCoordinatorResponse]) -> FindCoordinatorResponse:
    return await answer


async def coordinator_of_a_group(cluster: SimCluster) -> tuple[Machine, str]:
    """One that is not the controller: its lease is what the controller gave it."""
    for number in count():
        group = f"group-{number}"
        found = cluster[(await find(cluster[1], group)).node_id]
        if found is not cluster.controller():
            await until(lambda: all(broker_of(each).node.groups.has_place for each in cluster.up))
            return found, group
    raise AssertionError


async def fetch(machine: Machine, group: str) -> FetchedOffsets:
    async def ask() -> FetchedOffsets:
        wanted = (TopicPartition("orders", 0),)
        answer: FetchedOffsets = await broker_of(machine).node.groups.ask(
            group, lambda token: FetchOffsets(token=token, partitions=wanted)
        )
        return answer

    return await machine.host.run(ask())


@with_brokers(seeds=3, configs=MANY)
async def test_brokers_asked_for_the_first_time_name_the_same_coordinator(cluster: SimCluster) -> None:
    found = await asyncio.gather(*(find(machine, "readers") for machine in cluster.up))
    assert [each.error_code for each in found] == [0, 0, 0]
    assert len({each.node_id for each in found}) == 1


@with_brokers(seeds=3, configs=MANY)
async def test_who_fetches_offsets_from_a_coordinator_without_a_lease_is_told_to_ask_again(cluster: SimCluster) -> None:
    machine, group = await coordinator_of_a_group(cluster)
    life = broker_of(machine).life
    await until(life.holds_lease)
    life._lease.give_up()
    assert (await fetch(machine, group)).error is GroupError.COORDINATOR_LOAD_IN_PROGRESS
    await until(life.holds_lease)
    assert (await fetch(machine, group)).error is GroupError.NONE


@with_brokers(seeds=3, configs=MANY)
async def test_so_is_who_asks_one_that_has_just_handed_over(cluster: SimCluster) -> None:
    """Its heartbeats tell it who has the group now; another, who has no heartbeats, hears of that a while later."""
    machine, group = await coordinator_of_a_group(cluster)
    life = broker_of(machine).life
    await until(life.holds_lease)
    await machine.host.run(life.hand_over())
    assert (await find(machine, group)).node_id != machine.node_id
    assert (await fetch(machine, group)).error is GroupError.COORDINATOR_LOAD_IN_PROGRESS
    await asyncio.sleep(JUST_GONE_MS / 1000)
    assert (await fetch(machine, group)).error is GroupError.NOT_COORDINATOR
