"""An image under random histories: it is the same from its log, its snapshot and their bytes; its promises hold."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
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
from millpond.core.metadata.elections import Election, elect_leaders, fence_broker, register_broker
from millpond.core.metadata.encoding import decode, encode
from millpond.core.metadata.image import EMPTY, Image, apply, apply_all, rebuild, snapshot
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


STEPS = st.lists(
    st.builds(
        Step,
        verb=st.sampled_from(
            ["register", "fence", "create", "auto", "delete", "grow", "topic", "broker", "ids", "preferred", "unclean"]
        ),
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
        case "register":
            rack = [None, "x", "y"][step.number % 3]
            return register_broker(image, step.broker, endpoints=(Endpoint("P", "h", 1),), rack=rack)
        case "fence":
            return fence_broker(image, step.broker)
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
        case _:
            kind = Election.PREFERRED if step.verb == "preferred" else Election.UNCLEAN
            return elect_leaders(image, kind).commands


@settings(deadline=None)
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
        ChangePartition(topic_id=b"\1" + bytes(15), partition=0, leader=-1, leader_epoch=LeaderEpoch(1), isr=()),
        CreateTopic(name="x", topic_id=b"\2" + bytes(15), partitions=()),
        CreateTopic(name="x", topic_id=b"\2" + bytes(15), partitions=((1, 1),)),
    ],
)
def test_a_command_that_does_not_fit_its_image_stops_the_process(command: Command) -> None:
    image = apply(a_topic(), cluster(2))
    with pytest.raises(AssertionError):
        apply(command, image)
