"""Who leads when brokers come and go: failover, controlled shutdown, preferred leaders, movements, members."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from millpond.broker.operations.delete_records import delete_records
from millpond.broker.operations.produce import begin, finish
from millpond.core.metadata.commands import ALL_BROKERS, NO_LEADER, SetTopicConfigs
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.elections import unregister_broker
from millpond.core.metadata.image import Partition as PartitionFacts
from millpond.core.metadata.reassignments import Reassign, reassign
from millpond.core.raft.membership import PromoteLearner, RemoveNode
from millpond.model.errors import InvalidRequest, MillpondError, NotLeader, OutOfOrderSequence
from millpond.model.ids import Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs, TopicPartition
from millpond.protocol.records import NewRecord, encode_batch
from millpond.storage.log import Log
from millpond.testing import Simulation, simulate
from tests.broker.clusters import Machine, SimCluster
from tests.broker.test_replication import AT, isr_of, leader_of, send, unique, until, values_on

Steps = Callable[[SimCluster], Awaitable[None]]


def with_brokers(
    size: int = 3, *, seeds: int = 1, configs: Mapping[str, str] | None = None
) -> Callable[[Steps], Callable[[int], None]]:
    def decorate(steps: Steps) -> Callable[[int], None]:
        @pytest.mark.parametrize("seed", range(1, seeds + 1))
        def test(seed: int) -> None:
            async def scenario(sim: Simulation) -> None:
                cluster = SimCluster(sim, size, configs=configs)
                await cluster.start_all()
                await steps(cluster)
                await cluster.stop_all()

            simulate(seed, scenario, virtual_seconds_max=900)

        test.__name__ = steps.__name__
        return test

    return decorate


def facts(machine: Machine) -> PartitionFacts:
    assert machine.broker is not None
    found = machine.broker.node.image.partition(AT)
    assert found is not None
    return found


async def make_topic(cluster: SimCluster, *, replication: int = 3, partitions: int = 1) -> None:
    """Returns when every broker knows it."""
    assert await cluster.up[0].create_topic("orders", replication=replication, partitions=partitions)
    await until(
        lambda: all(each.broker is not None and "orders" in each.broker.node.image.topics for each in cluster.up)
    )


# Failover


@with_brokers(seeds=3, configs={"broker.session.timeout.ms": "60000"})
async def test_a_controller_that_dies_is_replaced_long_before_a_session_is_over(cluster: SimCluster) -> None:
    await make_topic(cluster, replication=3, partitions=6)
    lost = cluster.controller()
    assert lost is not None
    lost.cut_power()

    def is_fenced() -> bool:
        return all(m.broker is not None and not m.broker.node.image.is_live(lost.node_id) for m in cluster.up)

    await until(is_fenced, seconds=10)  # of virtual time: an election and a grace, not a session
    await lost.start()


@with_brokers(seeds=3)
async def test_a_controller_that_only_loses_its_place_is_not_fenced(cluster: SimCluster) -> None:
    before = cluster.controller()
    assert before is not None
    assert before.broker is not None
    epoch = before.broker.life.epoch
    quorum = before.broker.node.metadata.quorum
    quorum.transfer()
    await until(lambda: cluster.controller() not in (None, before))
    await asyncio.sleep(10)
    assert before.broker.life.epoch == epoch
    assert before.broker.node.image.is_live(before.node_id)
    assert before.broker.life.holds_lease()


# Controlled shutdown


@with_brokers(seeds=3, configs={"broker.session.timeout.ms": "60000", "auto.leader.rebalance.enable": "false"})
async def test_a_broker_that_stops_hands_over_first(cluster: SimCluster) -> None:
    await make_topic(cluster, replication=3)
    sent: list[bytes] = []
    for round_ in range(3):
        for number in range(3):
            sent.append(b"%d.%d" % (round_, number))
            await send(cluster, sent[-1])
        leader = leader_of(cluster)
        assert leader is not None
        await leader.stop()
        await until(lambda: all(len(facts(each).isr) == 2 for each in cluster.up), seconds=5)
        await until(lambda: leader_of(cluster) is not None, seconds=5)
        sent.append(b"%d.while" % round_)
        await send(cluster, sent[-1])
        await leader.start()
        await until(lambda: isr_of(cluster) == {1, 2, 3})
    await until(lambda: len({tuple(values_on(machine)) for machine in cluster.up}) == 1)
    assert unique(values_on(cluster[1])) == sent


@with_brokers(seeds=3, configs={"broker.session.timeout.ms": "60000"})
async def test_a_controller_that_stops_hands_the_quorum_over_too(cluster: SimCluster) -> None:
    controller = cluster.controller()
    assert controller is not None
    await controller.stop()
    assert cluster.controller() is not None
    await controller.start()


@with_brokers()
async def test_the_last_broker_does_not_wait_for_anybody(cluster: SimCluster) -> None:
    await make_topic(cluster, replication=3)
    first, second, last = cluster.up
    await first.stop()
    await second.stop()
    async with asyncio.timeout(6):
        await last.stop()


# Preferred leaders


@with_brokers(seeds=2, configs={"leader.imbalance.check.interval.seconds": "20"})
async def test_preferred_replicas_lead_again_after_a_while(cluster: SimCluster) -> None:
    await make_topic(cluster, replication=3)
    preferred = facts(cluster[1]).replicas[0]
    await cluster[preferred].stop()
    await cluster[preferred].start()
    assert facts(cluster[preferred]).leader != preferred
    await until(lambda: all(facts(each).leader == preferred for each in cluster.up))
    await send(cluster, b"to the preferred one")


@with_brokers(5, configs={"min.insync.replicas": "1", "broker.rack": "here"})
async def test_allowing_unclean_elections_finds_a_leader_and_is_told_loudly(cluster: SimCluster) -> None:
    told: list[TopicPartition] = []
    allowed: list[str] = []
    await make_topic(cluster, replication=2)
    first, second = facts(cluster[1]).replicas
    third = next(each for each in cluster.machines if each not in (first, second))
    cluster[second].cut_power()
    await until(lambda: facts(cluster[third]).isr == (first,))
    cluster[first].cut_power()
    await until(lambda: facts(cluster[third]).leader == NO_LEADER)
    await cluster[second].start()
    for machine in cluster.up:
        assert machine.broker is not None
        machine.broker.node.metadata.on_unclean = told.extend
        machine.broker.node.metadata.on_unclean_allowed = allowed.extend
    broker = cluster[third].broker
    assert broker is not None
    allow = SetTopicConfigs(
        topic_id=broker.node.image.topics["orders"].topic_id, values=(("unclean.leader.election.enable", "true"),)
    )
    await cluster[third].host.run(broker.node.metadata.submit(lambda image: (allow,)))
    await until(lambda: facts(cluster[third]).leader == second)
    assert told == [AT]
    assert allowed == ["orders"], "also before anything was lost by it"
    assert {each.rack for each in broker.node.image.brokers.values()} == {"here"}
    await cluster[first].start()


@with_brokers(configs={"min.insync.replicas": "2"})
async def test_what_a_broker_is_told_of_replicas_in_sync_holds_for_the_cluster(cluster: SimCluster) -> None:
    for machine in cluster.up:
        assert machine.broker is not None
        shared = machine.broker.node.image.configs_of_broker(ALL_BROKERS)
        await until(lambda shared=shared: shared.get("min.insync.replicas") == "2")  # type: ignore[misc]


# Moving partitions


async def move(cluster: SimCluster, *replicas: int) -> None:
    broker = cluster.up[0].broker
    assert broker is not None
    wanted = [Reassign(AT, replicas or None)]
    decision = await cluster.up[0].host.run(broker.node.metadata.decide(lambda image: reassign(image, wanted)))
    assert not any(isinstance(each, Refused) for each in decision.answers)


@with_brokers(4, seeds=3)
async def test_a_partition_moves_with_all_it_has_and_leaves_nothing_behind(cluster: SimCluster) -> None:
    await make_topic(cluster, replication=2)
    sent = [b"%d" % number for number in range(10)]
    for value in sent:
        await send(cluster, value)
    before = facts(cluster[1]).replicas
    after = tuple(each for each in cluster.machines if each not in before)
    await move(cluster, *after)
    await until(lambda: all(facts(each).replicas == after and not facts(each).moving for each in cluster.up))
    assert facts(cluster[1]).leader in after
    await send(cluster, b"after")
    await until(lambda: all(unique(values_on(cluster[each])) == [*sent, b"after"] for each in after))
    for each in before:
        broker = cluster[each].broker
        assert broker is not None
        assert broker.node.partitions.named(*AT) is None
        await until(lambda each=each: not cluster[each].disk.exists("data/orders-0"))  # type: ignore[misc]


@with_brokers(4, configs={"follower.replication.throttled.rate": "100"})
async def test_a_movement_is_throttled_shown_and_can_be_cancelled(cluster: SimCluster) -> None:
    await make_topic(cluster, replication=1)
    for number in range(20):
        await send(cluster, b"%d" % number)
    (before,) = facts(cluster[1]).replicas
    after = next(each for each in cluster.machines if each != before)
    await move(cluster, after)
    await until(lambda: 0 < len(values_on(cluster[after])) < 20)
    assert facts(cluster[after]).replicas == (after, before)
    assert (facts(cluster[after]).adding, facts(cluster[after]).removing) == ((after,), (before,))
    await move(cluster)
    await until(lambda: all(facts(each).replicas == (before,) for each in cluster.up))
    assert facts(cluster[1]).leader == before
    await move(cluster, after)
    await until(lambda: all(facts(each).replicas == (after,) and not facts(each).moving for each in cluster.up))
    assert unique(values_on(cluster[after])) == [b"%d" % number for number in range(20)]


@with_brokers()
async def test_a_new_leader_forgives_a_producer_one_gap_since_another_may_have_refused_what_is_missing(
    cluster: SimCluster,
) -> None:
    await make_topic(cluster, replication=1)
    (before,) = facts(cluster[1]).replicas
    after = next(each for each in cluster.machines if each != before)
    await send(cluster, b"it surely leads")
    assert await sequence_refused(cluster[before], 0) is None
    assert await sequence_refused(cluster[before], 2) is OutOfOrderSequence, "its own gaps it knows"
    await move(cluster, after)
    await until(lambda: all(facts(each).replicas == (after,) and not facts(each).moving for each in cluster.up))
    await send(cluster, b"it surely leads")
    in_order = [2, 3, 1, 2, 3]
    assert [await sequence_refused(cluster[after], each) for each in in_order] == [
        NotLeader,
        NotLeader,
        None,
        None,
        None,
    ]
    await move(cluster, before)
    await until(lambda: all(facts(each).replicas == (before,) and not facts(each).moving for each in cluster.up))
    await send(cluster, b"it surely leads")
    assert [await sequence_refused(cluster[before], 5) for _ in range(2)] == [NotLeader, OutOfOrderSequence]


async def sequence_refused(machine: Machine, sequence: int) -> type[MillpondError] | None:
    """How it answers a batch of this sequence; None where it is kept."""
    assert machine.broker is not None
    node = machine.broker.node
    record = NewRecord(b"%d" % sequence, timestamp=TimestampMs(node.clock.wall_ms()))
    who = {"producer_id": ProducerId(7), "producer_epoch": ProducerEpoch(0), "base_sequence": Sequence(sequence)}
    batch = encode_batch([record], **who)  # type: ignore[arg-type]
    pending = begin(node.find("orders", b"", 0), bytearray(batch), now_ms=node.clock.wall_ms(), acks_all=True)
    (produced,) = await machine.host.run(finish([pending]))
    return type(produced.error) if produced.error is not None else None


# Members


@with_brokers(seeds=3)
async def test_a_broker_that_is_no_founder_joins_keeps_partitions_and_is_removed_again(cluster: SimCluster) -> None:
    await make_topic(cluster, replication=1)
    for number in range(5):
        await send(cluster, b"%d" % number)
    fourth = cluster.add()
    await fourth.start()
    await until(lambda: all(each.broker and each.broker.node.image.is_live(4) for each in cluster.up))
    (first,) = facts(cluster[1]).replicas
    await move(cluster, 4)
    await until(lambda: all(facts(each).replicas == (4,) and not facts(each).moving for each in cluster.up))
    await send(cluster, b"on the new one")
    assert unique(values_on(fourth)) == [*(b"%d" % number for number in range(5)), b"on the new one"]
    await fourth.stop()
    await fourth.start()
    await until(lambda: facts(cluster[1]).leader == 4)
    await move(cluster, first)
    await until(lambda: all(facts(each).replicas == (first,) and not facts(each).moving for each in cluster.up))
    assert not await forget(cluster, 4), "it is up"
    await fourth.stop()
    await until(lambda: all(each.broker and not each.broker.node.image.is_live(4) for each in cluster.up))
    assert await forget(cluster, 4)
    controller = cluster.controller()
    assert controller is not None
    assert controller.broker is not None
    raft = controller.broker.node.metadata.quorum.raft
    await until(lambda: raft.membership.nodes == (1, 2, 3))


async def forget(cluster: SimCluster, broker_id: int) -> bool:
    broker = cluster[1].broker
    assert broker is not None
    decision = await cluster[1].host.run(broker.node.metadata.decide(lambda image: unregister_broker(image, broker_id)))
    return not isinstance(decision.answers[0], Refused)


# What a log lost


@with_brokers(seeds=3, configs={"millpond.flush": "none", "broker.session.timeout.ms": "60000"})
async def test_a_power_cut_takes_nothing_that_other_replicas_have_even_where_nobody_waits_for_the_disk(
    cluster: SimCluster,
) -> None:
    await make_topic(cluster)
    sent: list[bytes] = []
    for round_ in range(3):
        for number in range(5):
            sent.append(b"%d.%d" % (round_, number))
            await send(cluster, sent[-1])
        lost = leader_of(cluster)
        assert lost is not None
        lost.cut_power()
        await lost.start()
        await until(lambda: leader_of(cluster) is not None and isr_of(cluster) == {1, 2, 3})
    await until(lambda: all(unique(values_on(each)) == sent for each in cluster.up))


@with_brokers(seeds=3)
async def test_a_follower_that_ends_before_its_leader_begins_starts_anew(cluster: SimCluster) -> None:
    await make_topic(cluster)
    await send(cluster, b"long ago")
    leader = leader_of(cluster)
    assert leader is not None
    late = next(each for each in cluster.up if each is not leader)
    late.cut_power()
    await until(lambda: isr_of(cluster) == {each.node_id for each in cluster.up})
    for number in range(5):
        await send(cluster, b"%d" % number)
    leader = leader_of(cluster)
    assert leader is not None
    assert leader.broker is not None
    partition = leader.broker.node.partitions.named(*AT)
    assert partition is not None
    start = await leader.host.run(delete_records(partition, Offset(partition.high_watermark - 2)))
    await late.start()
    await until(lambda: isr_of(cluster) == {1, 2, 3})
    await send(cluster, b"after")
    await until(lambda: all(values_on(each) == values_on(cluster[1]) for each in cluster.up))
    assert values_on(late)[:2] == [b"3", b"4"]
    assert all(log_of(each).start_offset == start for each in cluster.up)


def log_of(machine: Machine) -> Log:
    assert machine.broker is not None
    partition = machine.broker.node.partitions.named(*AT)
    assert partition is not None
    return partition.log


@with_brokers(seeds=3)
async def test_a_broker_that_joined_votes_when_asked_and_can_stop_to(cluster: SimCluster) -> None:
    fourth = cluster.add()
    await fourth.start()
    await asked(cluster[1], PromoteLearner(4))
    await until(lambda: all(voters(each) == (1, 2, 3, 4) for each in cluster.up))
    controller = cluster.controller()
    assert controller is not None
    await asked(fourth, RemoveNode(controller.node_id))
    rest = tuple(each for each in cluster.machines if each != controller.node_id)
    await until(lambda: all(voters(each) == rest for each in cluster.up))
    assert await controller.create_topic("through-one-that-does-not-vote")
    with pytest.raises(InvalidRequest):
        await asked(cluster[1], PromoteLearner(9))


async def asked(machine: Machine, change: PromoteLearner | RemoveNode) -> None:
    assert machine.broker is not None
    await machine.host.run(machine.broker.node.metadata.change_members(change))


def voters(machine: Machine) -> tuple[int, ...]:
    assert machine.broker is not None
    return machine.broker.node.metadata.quorum.raft.membership.voters


@with_brokers(4)
async def test_what_moved_away_while_a_broker_was_down_is_removed_when_it_starts(cluster: SimCluster) -> None:
    await make_topic(cluster, replication=2)
    await send(cluster, b"somewhere")
    first, second = facts(cluster[1]).replicas
    cluster[second].cut_power()
    await until(lambda: all(facts(each).isr == (first,) for each in cluster.up))
    third = next(each.node_id for each in cluster.up if each.node_id != first)
    await move(cluster, first, third)
    await until(lambda: all(facts(each).replicas == (first, third) and not facts(each).moving for each in cluster.up))
    disk = cluster[second].disk
    assert disk.exists("data/orders-0")
    disk.make_directory("data/old-0.removed")  # an earlier life did not get that far
    await cluster[second].start()
    assert not disk.exists("data/orders-0")
    await until(lambda: not any(name.endswith(".removed") for name in disk.list("data")))


@with_brokers(3)
async def test_what_is_being_removed_already_is_removed_once(cluster: SimCluster) -> None:
    """A partition may go while a broker that starts looks for what earlier lives left."""
    broker, disk = cluster[1].broker, cluster[1].disk
    assert broker is not None
    disk.make_directory("data/old-0.removed")
    table, image = broker.node.partitions, broker.node.image

    async def look_twice() -> None:
        table.remove_strays(image)
        table.remove_strays(image)

    await cluster[1].host.run(look_twice())
    await until(lambda: not disk.exists("data/old-0.removed"))
