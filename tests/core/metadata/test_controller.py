"""Deciding on topics: what is created, deleted, grown and refused, and with which code."""

import pytest

from millpond.core.metadata.commands import AllocateProducerIds, CreateTopic, FenceBroker
from millpond.core.metadata.configs import ConfigSource
from millpond.core.metadata.controller import (
    NO_TOPIC_ID,
    Created,
    Deleted,
    Grown,
    MorePartitions,
    NewTopic,
    TopicToDelete,
    allocate_producer_ids,
    auto_create,
    create_partitions,
    create_topics,
    delete_topics,
)
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.elections import unclean
from millpond.core.metadata.image import Image, apply
from millpond.model.errors import RequestError
from tests.core.metadata.clusters import STATIC, after, chance, cluster


def created(image: Image, *topics: NewTopic) -> Image:
    decision = create_topics(image, topics, static=STATIC, rng=chance())
    assert all(isinstance(answer, Created) for answer in decision.answers), decision.answers
    return after(image, decision.commands)


def refusal(answer: object) -> RequestError:
    assert isinstance(answer, Refused), answer
    assert len(str(answer.error)) > 20, "says which value, what is allowed, what to do"
    return answer.error


def refused(image: Image, topic: NewTopic) -> RequestError:
    decision = create_topics(image, [topic], static=STATIC, rng=chance())
    assert decision.commands == ()
    return refusal(decision.answers[0])


def test_a_topic_is_created_with_what_was_asked_and_described_in_the_answer() -> None:
    image = cluster(3)
    new = NewTopic(name="orders", partitions=6, replication_factor=2, configs=(("retention.ms", "1000"),))
    decision = create_topics(image, [new], static=STATIC, rng=chance())
    [answer] = decision.answers
    assert isinstance(answer, Created)
    assert (answer.partitions, answer.replication_factor) == (6, 2)
    entry = next(each for each in answer.configs if each.name == "retention.ms")
    assert (entry.value, entry.source) == ("1000", ConfigSource.TOPIC)
    topic = after(image, decision.commands).topics["orders"]
    assert topic.topic_id == answer.topic_id
    assert sorted(partition.leader for partition in topic.partitions) == [1, 1, 2, 2, 3, 3]


def test_numbers_left_open_are_the_brokers_defaults() -> None:
    static = {"num.partitions": "3", "default.replication.factor": "2"}
    [answer] = create_topics(cluster(2), [NewTopic(name="t")], static=static, rng=chance()).answers
    assert isinstance(answer, Created)
    assert (answer.partitions, answer.replication_factor) == (3, 2)


@pytest.mark.parametrize("racks", [("x", "x", "y", "y"), ("x", "x", "x", "y")])
def test_replicas_are_on_different_racks_while_there_are_racks(racks: tuple[str, ...]) -> None:
    image = created(cluster(4, racks=racks), NewTopic(name="t", partitions=8, replication_factor=2))
    rack_of = {broker.broker: broker.rack for broker in image.brokers.values()}
    for partition in image.topics["t"].partitions:
        assert {rack_of[replica] for replica in partition.replicas} == {"x", "y"}


def test_a_fenced_broker_gets_no_new_partitions() -> None:
    image = apply(FenceBroker(broker=1), cluster(2))
    image = created(image, NewTopic(name="t", partitions=4, replication_factor=1))
    assert {partition.leader for partition in image.topics["t"].partitions} == {2}


def test_validating_answers_the_same_and_creates_nothing() -> None:
    decision = create_topics(cluster(), [NewTopic(name="t")], static=STATIC, rng=chance(), validate_only=True)
    [answer] = decision.answers
    assert isinstance(answer, Created)
    assert answer.topic_id == NO_TOPIC_ID
    assert decision.commands == ()


def test_one_bad_topic_does_not_stop_the_others_of_its_request() -> None:
    asked = [NewTopic(name="good"), NewTopic(name="b a d"), NewTopic(name="also-good")]
    decision = create_topics(cluster(), asked, static=STATIC, rng=chance())
    assert [isinstance(answer, Created) for answer in decision.answers] == [True, False, True]
    assert len(decision.commands) == 2


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic(name=""), 17),
        (NewTopic(name="."), 17),
        (NewTopic(name=".."), 17),
        (NewTopic(name="a/b"), 17),
        (NewTopic(name="ä"), 17),
        (NewTopic(name="x" * 250), 17),
        (NewTopic(name="taken_name"), 17),
        (NewTopic(name="taken.name"), 36),
        (NewTopic(name="__consumer_offsets"), 44),
        (NewTopic(name="__cluster_metadata"), 44),
        (NewTopic(name="t", partitions=0), 37),
        (NewTopic(name="t", partitions=-2), 37),
        (NewTopic(name="t", partitions=10_001), 44),
        (NewTopic(name="t", partitions=1, replication_factor=0), 38),
        (NewTopic(name="t", partitions=1, replication_factor=-2), 38),
        (NewTopic(name="t", partitions=1, replication_factor=3), 38),
        (NewTopic(name="t", assignments=((0, (1,)), (2, (1,)))), 39),
        (NewTopic(name="t", assignments=((0, (1,)), (0, (1,)))), 39),
        (NewTopic(name="t", assignments=((0, ()),)), 39),
        (NewTopic(name="t", assignments=((0, (1, 1)),)), 39),
        (NewTopic(name="t", assignments=((0, (9,)),)), 39),
        (NewTopic(name="t", assignments=((0, (1,)), (1, (1, 2)))), 39),
        (NewTopic(name="t", partitions=1, assignments=((0, (1,)),)), 42),
        (NewTopic(name="t", replication_factor=1, assignments=((0, (1,)),)), 42),
        (NewTopic(name="t", configs=(("no.such.setting", "1"),)), 40),
        (NewTopic(name="t", configs=(("retention.ms", "soon"),)), 40),
        (NewTopic(name="t", configs=(("retention.ms", None),)), 40),
        (NewTopic(name="t", configs=(("retention.ms", "1"), ("retention.ms", "2"))), 42),
        (NewTopic(name="t", configs=(("min.compaction.lag.ms", "2"), ("max.compaction.lag.ms", "1"))), 40),
    ],
    ids=str,
)
def test_what_cannot_be_created_is_refused_with_its_code(topic: NewTopic, code: int) -> None:
    image = created(cluster(2), NewTopic(name="taken.name"))
    assert refused(image, topic).kafka_code == code


def test_a_name_of_249_characters_is_allowed() -> None:
    created(cluster(), NewTopic(name="x" * 249))


def test_replicas_can_be_placed_by_hand_in_any_order_of_partitions() -> None:
    image = created(cluster(3), NewTopic(name="t", assignments=((1, (3, 1)), (0, (2, 3)))))
    assert [partition.replicas for partition in image.topics["t"].partitions] == [(2, 3), (3, 1)]
    assert [partition.leader for partition in image.topics["t"].partitions] == [2, 3]


def test_a_topic_named_twice_in_one_request_is_created_not_once() -> None:
    decision = create_topics(cluster(), [NewTopic(name="t"), NewTopic(name="t")], static=STATIC, rng=chance())
    assert [refusal(answer).kafka_code for answer in decision.answers] == [42, 42]


def test_names_that_collide_within_one_request_are_found() -> None:
    decision = create_topics(cluster(), [NewTopic(name="a.b"), NewTopic(name="a_b")], static=STATIC, rng=chance())
    assert isinstance(decision.answers[0], Created)
    assert "'a.b'" in str(refusal(decision.answers[1]))


def test_a_request_creates_no_more_partitions_than_one_request_may() -> None:
    asked = [NewTopic(name="a", partitions=6000), NewTopic(name="b", partitions=6000)]
    decision = create_topics(cluster(), asked, static=STATIC, rng=chance())
    assert refusal(decision.answers[1]).kafka_code == 44
    assert "4000" in str(refusal(decision.answers[1]))


def test_topic_ids_are_random_uuids_that_no_command_line_takes_for_an_option() -> None:
    image = cluster()
    for number in range(200):
        decision = create_topics(image, [NewTopic(name=f"t{number}")], static=STATIC, rng=chance(number))
        image = apply(decision.commands[0], image)
    for topic_id in image.topics_by_id:
        assert (topic_id[6] >> 4, topic_id[8] >> 6) == (4, 2)
        assert topic_id[0] >> 2 != 62
    assert len(image.topics_by_id) == 200


def test_a_topic_is_deleted_by_name_or_by_id() -> None:
    image = created(cluster(), NewTopic(name="a"), NewTopic(name="b"))
    asked = [TopicToDelete(name="a"), TopicToDelete(topic_id=image.topics["b"].topic_id)]
    decision = delete_topics(image, asked, static=STATIC)
    assert [answer.name for answer in decision.answers if isinstance(answer, Deleted)] == ["a", "b"]
    image = after(image, decision.commands)
    assert not image.topics
    created(image, NewTopic(name="a"))


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (TopicToDelete(name="missing"), 3),
        (TopicToDelete(topic_id=b"x" * 16), 100),
        (TopicToDelete(), 42),
        (TopicToDelete(name="a", topic_id=b"x" * 16), 42),
        (TopicToDelete(name="__consumer_offsets"), 44),
    ],
)
def test_what_cannot_be_deleted_is_refused_with_its_code(asked: TopicToDelete, code: int) -> None:
    image = created(cluster(), NewTopic(name="a"))
    image = after(image, auto_create(image, ["__consumer_offsets"], static=STATIC, rng=chance()).commands)
    decision = delete_topics(image, [asked], static=STATIC)
    assert refusal(decision.answers[0]).kafka_code == code
    assert decision.commands == ()


def test_a_topic_asked_for_by_name_and_id_in_one_request_is_not_deleted() -> None:
    image = created(cluster(), NewTopic(name="a"))
    asked = [TopicToDelete(name="a"), TopicToDelete(topic_id=image.topics["a"].topic_id)]
    decision = delete_topics(image, asked, static=STATIC)
    assert [refusal(answer).kafka_code for answer in decision.answers] == [42, 42]


def test_a_cluster_that_deletes_nothing_says_so() -> None:
    image = created(cluster(), NewTopic(name="a"))
    decision = delete_topics(image, [TopicToDelete(name="a")], static={"delete.topic.enable": "false"})
    assert refusal(decision.answers[0]).kafka_code == 73


def test_a_topic_grows_with_as_many_replicas_as_it_has() -> None:
    image = created(cluster(3), NewTopic(name="t", partitions=1, replication_factor=2))
    decision = create_partitions(image, [MorePartitions(name="t", count=4)], rng=chance())
    assert decision.answers == (Grown(name="t", count=4),)
    grown = after(image, decision.commands).topics["t"]
    assert [len(partition.replicas) for partition in grown.partitions] == [2, 2, 2, 2]
    assert grown.partitions[0] is image.topics["t"].partitions[0]


def test_new_partitions_can_be_placed_by_hand_or_only_validated() -> None:
    image = created(cluster(2), NewTopic(name="t", partitions=1, replication_factor=1))
    asked = [MorePartitions(name="t", count=3, assignments=((2,), (1,)))]
    assert create_partitions(image, asked, rng=chance(), validate_only=True).commands == ()
    grown = after(image, create_partitions(image, asked, rng=chance()).commands).topics["t"]
    assert [partition.leader for partition in grown.partitions[1:]] == [2, 1]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (MorePartitions(name="missing", count=2), 3),
        (MorePartitions(name="t", count=2), 37),
        (MorePartitions(name="t", count=1), 37),
        (MorePartitions(name="t", count=-1), 37),
        (MorePartitions(name="t", count=100_001), 37),
        (MorePartitions(name="t", count=20_000), 44),
        (MorePartitions(name="t", count=4, assignments=((1,),)), 39),
        (MorePartitions(name="t", count=3, assignments=((9,),)), 39),
        (MorePartitions(name="t", count=3, assignments=((1, 2),)), 39),
        (MorePartitions(name="t", count=3, assignments=()), 39),
        (MorePartitions(name="__consumer_offsets", count=99), 44),
    ],
    ids=str,
)
def test_what_cannot_grow_is_refused_with_its_code(asked: MorePartitions, code: int) -> None:
    image = created(cluster(2), NewTopic(name="t", partitions=2, replication_factor=1))
    image = after(image, auto_create(image, ["__consumer_offsets"], static=STATIC, rng=chance()).commands)
    decision = create_partitions(image, [asked], rng=chance())
    assert refusal(decision.answers[0]).kafka_code == code
    assert decision.commands == ()


def test_a_topic_grows_only_once_in_a_request_and_only_with_enough_brokers() -> None:
    image = created(cluster(2), NewTopic(name="t", partitions=1, replication_factor=2))
    twice = create_partitions(image, [MorePartitions(name="t", count=2)] * 2, rng=chance())
    assert [refusal(answer).kafka_code for answer in twice.answers] == [42, 42]
    nobody = apply(FenceBroker(broker=2), apply(FenceBroker(broker=1), image))
    fenced = create_partitions(nobody, [MorePartitions(name="t", count=2)], rng=chance())
    assert refusal(fenced.answers[0]).kafka_code == 38


def test_a_broker_that_is_away_gets_replicas_that_nobody_else_can_have_and_nothing_waits_for_it() -> None:
    image = apply(FenceBroker(broker=2), cluster(3))
    image = created(image, NewTopic(name="all", partitions=6, replication_factor=3))
    for partition in image.topics["all"].partitions:
        assert (partition.replicas[-1], set(partition.replicas)) == (2, {1, 2, 3})
        assert (set(partition.isr), partition.elr, partition.leader_epoch) == ({1, 3}, (), 0)
    assert {partition.leader for partition in image.topics["all"].partitions} == {1, 3}
    image = created(image, NewTopic(name="some", partitions=6, replication_factor=2))
    assert {broker for each in image.topics["some"].partitions for broker in each.replicas} == {1, 3}
    decision = create_partitions(image, [MorePartitions(name="all", count=7)], rng=chance())
    assert unclean(image, decision.commands) == []
    grown = after(image, decision.commands).topics["all"].partitions[6]
    assert (grown.replicas[-1], set(grown.isr), grown.elr) == (2, {1, 3}, ())
    image = after(image, auto_create(image, ["__consumer_offsets"], static=STATIC, rng=chance()).commands)
    assert {len(each.replicas) for each in image.topics["__consumer_offsets"].partitions} == {3}
    assert refused(image, NewTopic(name="more", partitions=1, replication_factor=4)).kafka_code == 38


def test_a_replica_that_is_away_is_not_eligible_for_what_it_never_had() -> None:
    configs = (("min.insync.replicas", "3"),)
    image = apply(FenceBroker(broker=2), cluster(3))
    image = created(image, NewTopic(name="strict", partitions=1, replication_factor=3, configs=configs))
    [partition] = image.topics["strict"].partitions
    assert (set(partition.isr), partition.elr) == ({1, 3}, ())


def test_a_topic_that_a_client_names_first_is_made_with_the_defaults() -> None:
    decision = auto_create(cluster(), ["t", "t"], static={"num.partitions": "4"}, rng=chance())
    [answer] = decision.answers
    assert isinstance(answer, Created)
    assert answer.partitions == 4


def test_without_auto_creation_an_unknown_topic_stays_unknown_but_internal_ones_are_made() -> None:
    static = {"auto.create.topics.enable": "false"}
    decision = auto_create(cluster(), ["t", "__consumer_offsets"], static=static, rng=chance())
    assert refusal(decision.answers[0]).kafka_code == 3
    assert isinstance(decision.answers[1], Created)


def test_auto_creation_refuses_bad_and_reserved_names() -> None:
    decision = auto_create(cluster(), ["b a d", "__delays"], static=STATIC, rng=chance())
    assert [refusal(answer).kafka_code for answer in decision.answers] == [17, 44]


def test_the_offsets_topic_is_compacted_and_has_the_replicas_a_young_cluster_can_have() -> None:
    for brokers, replicas in ((1, 1), (2, 2), (5, 3)):
        decision = auto_create(cluster(brokers), ["__consumer_offsets"], static=STATIC, rng=chance())
        [command] = decision.commands
        assert isinstance(command, CreateTopic)
        assert (len(command.partitions), len(command.partitions[0])) == (50, replicas)
        assert dict(command.configs)["cleanup.policy"] == "compact"
        assert after(cluster(brokers), decision.commands).topics["__consumer_offsets"].internal


def test_blocks_of_producer_ids_follow_one_another_without_overlap() -> None:
    image = cluster()
    seen: list[range] = []
    for _ in range(3):
        command, block = allocate_producer_ids(image)
        image = after(image, (command,))
        seen.append(block)
    assert seen == [range(1000), range(1000, 2000), range(2000, 3000)]
    with pytest.raises(AssertionError):
        apply(AllocateProducerIds(end=3000), image)
