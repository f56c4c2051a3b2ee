"""An image under random histories: it is the same from its log, its snapshot and their bytes; its promises hold."""

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.core.metadata.alterations import AlterConfigs, ConfigItem, ConfigOperation, alter_configs
from millpond.core.metadata.commands import (
    ALL_BROKERS,
    AddPartitions,
    ChangePartition,
    Command,
    CreateTopic,
    DeleteTopic,
    Endpoint,
    Movement,
    UnregisterBroker,
)
from millpond.core.metadata.controller import (
    MorePartitions,
    NewTopic,
    TopicToDelete,
    allocate_producer_ids,
    auto_create,
    create_partitions,
    create_topics,
    delete_topics,
)
from millpond.core.metadata.elections import (
    Election,
    balance,
    elect_leaders,
    fence_broker,
    hand_over,
    register_broker,
    unregister_broker,
)
from millpond.core.metadata.encoding import decode, encode
from millpond.core.metadata.image import EMPTY, Image, apply, apply_all, rebuild, snapshot
from millpond.core.metadata.reassignments import Reassign, reassign
from millpond.core.metadata.replicas import IsrAsked, change_isr
from millpond.model.ids import LeaderEpoch, TopicPartition
from tests.core.metadata.clusters import STATIC, after, chance, check_invariants, cluster

NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "c.d_e", "__consumer_offsets", "bad name", "."])
BROKERS = st.integers(1, 4)


@dataclass(frozen=True)
class Step:
    verb: str
    name: str
    number: int
    broker: int


VERBS = (
    *("register", "fence", "hand over", "unregister", "preferred", "unclean", "balance", "isr", "move", "insync"),
    *("create", "auto", "delete", "grow", "topic", "broker", "ids"),
)
STEPS = st.lists(
    st.builds(
        Step,
        verb=st.sampled_from(VERBS),
        name=NAMES,
        number=st.integers(-1, 5),
        broker=BROKERS,
    ),
    max_size=40,
)


def decide(image: Image, step: Step, seed: int) -> tuple[Command, ...]:
    """What a broker would do with this step; refusals are no commands."""
    rng = chance(seed)
    match step.verb:
        case "create":
            new = NewTopic(name=step.name, partitions=step.number, replication_factor=step.broker)
            return create_topics(image, [new], static=STATIC, rng=rng).commands
        case "auto":
            static = {"offsets.topic.num.partitions": "3"}
            return auto_create(image, ["x", step.name, "x"], static=static, rng=rng).commands
        case "delete":
            return delete_topics(image, [TopicToDelete(name=step.name)], static=STATIC).commands
        case "grow":
            return create_partitions(image, [MorePartitions(name=step.name, count=step.number)], rng=rng).commands
        case "topic" | "broker":
            name = "retention.ms" if step.verb == "topic" else "log.retention.ms"
            item = ConfigItem(name, str(step.number), ConfigOperation(step.number % 2))
            target = step.name if step.verb == "topic" else [ALL_BROKERS, step.broker][step.number % 2]
            return alter_configs(image, [AlterConfigs(target=target, items=(item,))], static=STATIC).commands
        case "ids":
            return (allocate_producer_ids(image)[0],)
        case "isr" | "move" | "insync":
            return decide_on_replicas(image, step, rng)
        case _:
            return decide_on_leaders(image, step)


def decide_on_leaders(image: Image, step: Step) -> tuple[Command, ...]:
    match step.verb:
        case "register":
            rack = [None, "x", "y"][step.number % 3]
            endpoints, directory_id = (Endpoint("P", "h", 1),), bytes([step.number % 2 + 1]) * 16
            return register_broker(
                image, step.broker, endpoints=endpoints, rack=rack, directory_id=directory_id, life=directory_id
            )
        case "fence":
            return fence_broker(image, step.broker)
        case "hand over":
            return hand_over(image, step.broker)
        case "unregister":
            return unregister_broker(image, step.broker).commands
        case "balance":
            return balance(image, imbalance_percent_max=0)
        case _:
            kind = Election.PREFERRED if step.verb == "preferred" else Election.UNCLEAN
            return elect_leaders(image, kind).commands


def decide_on_replicas(image: Image, step: Step, rng: Random) -> tuple[Command, ...]:
    partition = image.partition(TopicPartition(step.name, 0))
    if partition is None:
        return ()
    if step.verb == "insync":
        item = ConfigItem("min.insync.replicas", str(step.broker))
        return alter_configs(image, [AlterConfigs(target=step.name, items=(item,))], static=STATIC).commands
    some = rng.sample([1, 2, 3, 4], max(1, step.number % 4))
    if step.verb == "move":
        return reassign(image, [Reassign(TopicPartition(step.name, 0), tuple(some) if step.number else None)]).commands
    known = {each: image.brokers[each].epoch for each in {partition.leader, *some} if each in image.brokers}
    asked = IsrAsked(
        topic_id=image.topics[step.name].topic_id,
        partition=0,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=tuple((each, epoch) for each, epoch in known.items() if each in partition.replicas),
    )
    return change_isr(image, asked).commands


@given(STEPS, st.integers(0, 2**32))
def test_an_image_is_the_same_from_its_log_its_snapshot_and_their_bytes(steps: list[Step], seed: int) -> None:
    image = cluster(2)
    log = list(snapshot(image))
    for step in steps:
        before, kept = image, snapshot(image)
        commands = decide(image, step, seed)
        for command in commands:
            image = apply(command, image)
        check_invariants(image)
        assert apply_all(commands, before) == image
        assert snapshot(before) == kept, "an image never changes"
        assert image.version == before.version + len(commands)
        log.extend(commands)
    assert apply_all([decode(encode(command)) for command in log], EMPTY) == image
    compact = [decode(encode(command)) for command in snapshot(image)]
    assert rebuild(compact, version=image.version) == image
    assert snapshot(rebuild(compact, version=image.version)) == snapshot(image)


def a_topic(name: str = "orders", *, first_byte: int = 1, partitions: int = 2) -> CreateTopic:
    topic_id = bytes([first_byte]) + bytes(15)
    return CreateTopic(name=name, topic_id=topic_id, partitions=((1,),) * partitions, configs=(("retention.ms", "5"),))


def a_change(
    *, elr: tuple[int, ...] = (), partition_epoch: int = 1, movement: Movement | None = None
) -> ChangePartition:
    return ChangePartition(
        topic_id=b"\1" + bytes(15),
        partition=0,
        leader=1,
        leader_epoch=LeaderEpoch(0),
        isr=(1,),
        elr=elr,
        partition_epoch=partition_epoch,
        movement=movement,
    )


def test_a_topic_is_found_by_name_and_by_id_with_its_partitions() -> None:
    image = apply(a_topic(), cluster())
    topic = image.topics["orders"]
    assert image.topics_by_id[topic.topic_id] is topic
    assert topic.configs == {"retention.ms": "5"}
    partition = image.partition(TopicPartition("orders", 1))
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.replicas, partition.isr) == (1, 0, (1,), (1,))
    assert image.partition(TopicPartition("orders", 2)) is None
    assert image.partition(TopicPartition("orders", -1)) is None
    assert image.partition(TopicPartition("other", 0)) is None


def test_an_image_that_somebody_holds_stays_as_it_is() -> None:
    held = apply(a_topic(), cluster())
    later = after(held, (DeleteTopic(topic_id=held.topics["orders"].topic_id), a_topic("other", first_byte=2)))
    assert set(held.topics) == {"orders"}
    assert set(later.topics) == {"other"}
    assert later.version == held.version + 2
    assert later.brokers is held.brokers, "what did not change is shared"


def test_a_topic_with_very_many_partitions_is_snapshotted_in_pieces_that_fit() -> None:
    image = apply(a_topic(partitions=10_000), cluster())
    topic_id = image.topics["orders"].topic_id
    image = after(image, (AddPartitions(topic_id=topic_id, partitions=((1,),) * 10_001),))
    commands = snapshot(image)
    assert [type(command) for command in commands[1:]] == [CreateTopic, AddPartitions, AddPartitions]
    assert rebuild(commands, version=image.version) == image


@pytest.mark.parametrize(
    "command",
    [
        a_topic("orders", first_byte=2),
        a_topic("or.ders", first_byte=1),
        DeleteTopic(topic_id=bytes(16)),
        ChangePartition(topic_id=b"\1" + bytes(15), partition=0, leader=2, leader_epoch=LeaderEpoch(1), isr=(1,)),
        ChangePartition(topic_id=b"\1" + bytes(15), partition=0, leader=-1, leader_epoch=LeaderEpoch(0), isr=(1,)),
        ChangePartition(topic_id=b"\1" + bytes(15), partition=0, leader=1, leader_epoch=LeaderEpoch(0), isr=(1, 2)),
        ChangePartition(topic_id=b"\1" + bytes(15), partition=0, leader=1, leader_epoch=LeaderEpoch(0), isr=()),
        a_change(elr=(1,)),
        a_change(elr=(2,)),
        a_change(partition_epoch=0),
        a_change(movement=Movement((2,))),
        a_change(movement=Movement((1, 2), adding=(3,))),
        a_change(movement=Movement((1, 2), adding=(2,), removing=(2,))),
        UnregisterBroker(broker=9),
        CreateTopic(name="x", topic_id=b"\2" + bytes(15), partitions=()),
        CreateTopic(name="x", topic_id=b"\2" + bytes(15), partitions=((1, 1),)),
    ],
)
def test_a_command_that_does_not_fit_its_image_stops_the_process(command: Command) -> None:
    image = apply(a_topic(), cluster(2))
    with pytest.raises(AssertionError):
        apply(command, image)
