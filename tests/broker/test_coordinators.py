"""Who looks after a group: all brokers name the same one."""

import asyncio
from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.api.kafka.handlers import find_coordinator
from millpond.app.broker import Broker
from millpond.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.broker.clusters import Machine, SimCluster
from tests.broker.test_movement import with_brokers

GROUP_KEY = 0
MANY = {"offsets.topic.num.partitions": "6", "offsets.topic.replication.factor": "3"}


def broker_of(machine: Machine) -> Broker:
    assert machine.broker is not None
    return machine.broker


def _nothing() -> None:
    """No connection is behind these requests."""


async def find(machine: Machine, group: str) -> FindCoordinatorResponse:
    context = Context(version=3, client_id="", host="", close=_nothing, answer_alone=_nothing)
    answer = find_coordinator.answer(
        broker_of(machine).node, FindCoordinatorRequest(key=group, key_type=GROUP_KEY), context
    )
    return await machine.host.run(_awaited(answer)) if isinstance(answer, Awaitable) else answer


async def _awaited(answer: Awaitable[FindCoordinatorResponse]) -> FindCoordinatorResponse:
    return await answer


@with_brokers(seeds=3, configs=MANY)
async def test_brokers_asked_for_the_first_time_name_the_same_coordinator(cluster: SimCluster) -> None:
    found = await asyncio.gather(*(find(machine, "readers") for machine in cluster.up))
    assert [each.error_code for each in found] == [0, 0, 0]
    assert len({each.node_id for each in found}) == 1
