"""Who looks after a group: all brokers name the same one, and a moment of doubt leaves nobody without offsets."""

import asyncio
from collections.abc import Awaitable
from itertools import count

from millpond.api.kafka.handlers import find_coordinator
from millpond.app.broker import Broker
from millpond.broker.drivers.groups import JUST_GONE_MS
from millpond.core.groups.classic_events import JoinGroup, JoinResult
from millpond.core.groups.errors import GroupError
from millpond.core.groups.offsets import FetchedOffsets, FetchOffsets
from millpond.core.groups.share_events import ShareHeartbeat, ShareHeartbeatResult
from millpond.model.ids import TopicPartition
from millpond.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.broker.clusters import Machine, SimCluster
from tests.broker.test_cluster import until
from tests.broker.test_movement import with_brokers
from tests.broker.unconnected import asked_by_nobody

GROUP_KEY = 0
MANY = {"offsets.topic.num.partitions": "6", "offsets.topic.replication.factor": "3"}


def broker_of(machine: Machine) -> Broker:
    assert machine.broker is not None
    return machine.broker


async def find(machine: Machine, group: str) -> FindCoordinatorResponse:
    request = FindCoordinatorRequest(key=group, key_type=GROUP_KEY)
    answer = find_coordinator.answer(broker_of(machine).node, request, asked_by_nobody(3))
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


@with_brokers(1, configs={"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"})
async def test_who_waits_for_other_members_is_told_at_once_that_the_broker_stops(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def join(member: str = "") -> JoinResult:
        answer: JoinResult = await broker_of(machine).node.groups.ask(
            "readers",
            lambda token: JoinGroup(
                token=token, member_id=member, protocols=(("range", b""),), requires_known_member_id=False
            ),
        )
        return answer

    async def steps() -> None:
        groups = broker_of(machine).node.groups
        await groups.make_place()
        await until(lambda: groups.has_place)
        assert (await join()).error is GroupError.NONE
        waiting = asyncio.get_running_loop().create_task(join())  # for the first one, who does not come again
        await asyncio.sleep(1)
        assert not waiting.done()
        groups.let_go()
        await asyncio.wait([waiting], timeout=0.001)
        assert waiting.result().error is GroupError.NOT_COORDINATOR

    await machine.host.run(steps())


async def beat(cluster: SimCluster, group: str, member: str, epoch: int) -> ShareHeartbeatResult:
    """As a client does it: it looks for the coordinator until one answers."""
    while True:
        found = (await find(cluster.up[0], group)).node_id
        if found in {machine.node_id for machine in cluster.up}:
            answer = await cluster[found].host.run(_beat_once(cluster[found], group, member, epoch))
            if answer.error not in {GroupError.NOT_COORDINATOR, GroupError.COORDINATOR_NOT_AVAILABLE}:
                return answer
        await asyncio.sleep(0.1)


async def _beat_once(machine: Machine, group: str, member: str, epoch: int) -> ShareHeartbeatResult:
    topics = frozenset({"orders"}) if epoch == 0 else None
    answer: ShareHeartbeatResult = await broker_of(machine).node.groups.ask(
        group, lambda token: ShareHeartbeat(token=token, member_id=member, member_epoch=epoch, topics=topics)
    )
    return answer


@with_brokers(seeds=5, configs=MANY)
async def test_members_of_a_share_group_do_not_notice_that_their_coordinator_died(cluster: SimCluster) -> None:
    await cluster[1].create_topic("orders", partitions=3, replication=3)
    machine, group = await coordinator_of_a_group(cluster)
    await until(lambda: all("orders" in broker_of(each).node.image.topics for each in cluster.up))
    first = await beat(cluster, group, "ana", 0)
    ben = await beat(cluster, group, "ben", 0)
    ana = await beat(cluster, group, "ana", first.member_epoch)
    assert first.assignment is not None
    assert len(first.assignment) == 3
    assert (ben.assignment, ana.assignment) == (first.assignment, None), "each partition has two readers"
    machine.cut_power()
    for member, before in (("ana", ana), ("ben", ben)):
        after = await beat(cluster, group, member, before.member_epoch)
        assert (after.error, after.member_epoch, after.assignment) == (GroupError.NONE, before.member_epoch, None)
    assert (await beat(cluster, group, "zoe", ana.member_epoch)).error is GroupError.UNKNOWN_MEMBER_ID
