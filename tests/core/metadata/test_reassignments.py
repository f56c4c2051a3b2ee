"""Partitions on their way from some brokers to others."""

import pytest

from millpond.core.metadata.commands import NO_LEADER
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.core.metadata.elections import hand_over, unclean, unregister_broker
from millpond.core.metadata.image import Image, rebuild, snapshot
from millpond.core.metadata.placement import place, replace_broker
from millpond.core.metadata.reassignments import Reassign, Reassigned, Reassignment, list_reassignments, reassign
from millpond.core.metadata.replicas import change_isr
from millpond.model.ids import TopicPartition
from tests.core.metadata.clusters import STATIC, after, chance, cluster
from tests.core.metadata.replicated import AT, asked, back, code, dead, in_sync, partition, topic_on


def moving(image: Image, *target: int) -> Image:
    decision = reassign(image, [Reassign(AT, target)])
    assert decision.answers == (Reassigned(AT),)
    return after(image, decision.commands)


def cancelled(image: Image) -> Image:
    return after(image, reassign(image, [Reassign(AT, None)]).commands)


def test_a_partition_moves_once_those_it_moves_to_are_in_sync() -> None:
    image = moving(topic_on(1, 2), 3, 4)
    assert list_reassignments(image) == [Reassignment(AT, (3, 4, 1, 2), (3, 4), (1, 2))]
    assert list_reassignments(image, [TopicPartition("t", 1)]) == []
    assert (partition(image).leader, partition(image).isr) == (1, (1, 2))
    image = in_sync(image, 1, 2, 3)
    assert partition(image).moving
    image = in_sync(image, 1, 2, 3, 4)
    found = partition(image)
    assert (found.replicas, found.isr, found.leader, found.moving) == ((3, 4), (3, 4), 3, False)
    assert found.leader_epoch == 1


def test_the_only_replica_hands_over_to_the_one_that_comes_in_by_the_same_command_and_cleanly() -> None:
    image = moving(topic_on(1), 3)
    decision = change_isr(image, asked(image, 1, 3))
    assert unclean(image, decision.commands) == []
    found = partition(after(image, decision.commands))
    assert (found.replicas, found.isr, found.leader, found.leader_epoch) == ((3,), (3,), 3, 1)


def test_a_leader_that_stays_goes_on_with_a_new_epoch_when_another_is_dropped() -> None:
    image = in_sync(moving(topic_on(1, 2), 1, 3), 1, 2, 3)
    found = partition(image)
    assert (found.replicas, found.isr, found.leader, found.leader_epoch) == ((1, 3), (1, 3), 1, 1)


def test_fewer_replicas_and_another_order_need_no_waiting() -> None:
    image = moving(topic_on(1, 2, 3), 3, 1)
    found = partition(image)
    assert (found.replicas, found.isr, found.leader, found.moving) == ((3, 1), (3, 1), 1, False)


def test_replicas_go_only_when_enough_of_those_that_stay_are_in_sync() -> None:
    image = moving(in_sync(topic_on(1, 2, 3, insync_min=2), 1, 2), 3, 1)
    assert partition(image).removing == (2,)
    image = in_sync(image, 1, 2, 3)
    assert (partition(image).replicas, partition(image).isr) == ((3, 1), (3, 1))


def test_cancelling_goes_back_to_the_brokers_it_was_on() -> None:
    image = in_sync(moving(topic_on(1, 2), 3, 4), 1, 3)
    image = cancelled(image)
    found = partition(image)
    assert (set(found.replicas), found.isr, found.leader, found.moving) == ({1, 2}, (1,), 1, False)


def test_cancelling_never_throws_away_the_last_complete_copy() -> None:
    image = in_sync(moving(topic_on(1, 2), 3, 4), 1, 3)
    image = dead(image, 1)
    assert partition(image).leader == 3
    assert code(reassign(image, [Reassign(AT, None)])) == 39
    image = dead(image, 3)
    assert (partition(image).leader, partition(image).elr) == (NO_LEADER, (3,))
    assert code(reassign(image, [Reassign(AT, None)])) == 39, "nor the last eligible one"


def test_another_target_takes_the_place_of_the_first() -> None:
    image = in_sync(moving(topic_on(1, 2), 3, 1), 1, 2)
    image = moving(image, 4, 1)
    assert list_reassignments(image) == [Reassignment(AT, (4, 1, 2), (4,), (2,))]
    assert partition(image).leader_epoch == 1, "3 was dropped"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Reassign(TopicPartition("t", 9), (1,)), 3),
        (Reassign(TopicPartition("x", 0), (1,)), 3),
        (Reassign(AT, ()), 39),
        (Reassign(AT, (1, 1)), 39),
        (Reassign(AT, (1, 9)), 39),
        (Reassign(AT, (4, 3)), 39),
        (Reassign(AT, tuple(range(1, 40))), 39),
        (Reassign(AT, None), 85),
    ],
    ids=str,
)
def test_refusals_are_kafkas(request_: Reassign, expected: int) -> None:
    assert code(reassign(dead(topic_on(1, 2), 4), [request_])) == expected


def test_another_number_of_replicas_can_be_forbidden() -> None:
    image = topic_on(1, 2)
    assert code(reassign(image, [Reassign(AT, (1, 2, 3))], allow_replication_change=False)) == 38
    assert reassign(image, [Reassign(AT, (1, 3))], allow_replication_change=False).commands


def test_a_broker_is_emptied_stopped_and_unregistered() -> None:
    image = topic_on(1, 2)
    assert code(unregister_broker(image, 2)) == 42, "it is up"
    assert code(unregister_broker(image, 9)) == 102
    moves, stuck = replace_broker(image, 2)
    assert (moves, stuck) == ([Reassign(AT, (1, 3))], [])
    image = after(image, reassign(image, moves).commands)
    assert code(unregister_broker(dead(image, 2), 2)) == 42, "it keeps something"
    image = in_sync(image, 1, 2, 3)
    image = dead(after(image, hand_over(image, 2)), 2)
    image = after(image, unregister_broker(image, 2).commands)
    assert sorted(image.brokers) == [1, 3, 4]
    assert back(image, 2).brokers[2].epoch > 1, "an id that is used again begins no earlier life"


def test_where_nobody_could_take_over_it_says_so() -> None:
    moves, stuck = replace_broker(topic_on(1, 2, brokers=2), 2)
    assert moves == []
    assert [refused.error.kafka_code for refused in stuck] == [38]


def test_an_heir_is_on_another_rack_and_the_one_that_keeps_least() -> None:
    image = cluster(5, racks=("a", "b", "b", "c", "c"))
    topics = [NewTopic(name=name, assignments=((0, replicas),)) for name, replicas in (("t", (1, 2)), ("u", (4,)))]
    image = after(image, create_topics(image, topics, static=STATIC, rng=chance()).commands)
    moves, _ = replace_broker(image, 1)
    assert moves == [Reassign(AT, (5, 2))], "3 shares a rack with 2, and 4 keeps something already"


def test_followers_of_one_leader_are_spread_over_all_others() -> None:
    placed = place(cluster(4).live_brokers(), partitions=12, replication=2, rng=chance())
    followers = {follower for leader, follower in placed if leader == 1}
    assert followers == {2, 3, 4}


def test_a_partition_whose_leader_is_not_first_any_more_survives_a_snapshot() -> None:
    image = moving(topic_on(1, 2, 3), 3, 1, 2)
    assert (partition(image).leader, partition(image).leader_epoch) == (1, 0)
    assert rebuild(snapshot(image), version=image.version) == image
