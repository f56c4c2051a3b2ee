"""Who leads, as brokers come and go."""

from millpond.core.metadata.agreed import allowed_unclean
from millpond.core.metadata.alterations import AlterConfigs, ConfigItem, alter_configs
from millpond.core.metadata.commands import ALL_BROKERS, NO_LEADER, ChangePartition, Endpoint, RegisterBroker
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.elections import (
    Elected,
    Election,
    balance,
    elect_leaderless,
    elect_leaders,
    fence_broker,
    hand_over,
    register_broker,
    step_aside,
    unclean,
)
from millpond.core.metadata.image import Image, Partition
from millpond.core.metadata.partition_changes import led_by
from millpond.model.ids import LeaderEpoch, TopicPartition
from tests.core.metadata.clusters import STATIC, after, chance, cluster
from tests.core.metadata.replicated import AT, OTHER_DISK, dead, topic_on


def three_brokers(*replicas: int) -> Image:
    image = cluster(3)
    topic = NewTopic(name="t", assignments=((0, replicas),))
    return after(image, create_topics(image, [topic], static=STATIC, rng=chance()).commands)


def partition(image: Image) -> Partition:
    found = image.partition(AT)
    assert found is not None
    return found


def back(image: Image, broker: int) -> Image:
    return after(image, register_broker(image, broker, endpoints=(Endpoint("P", "h", 1),)))


def code(image: Image, kind: Election, at: TopicPartition = AT) -> int:
    decision = elect_leaders(image, kind, [at])
    [answer] = decision.answers
    assert isinstance(answer, Refused)
    assert decision.commands == ()
    return answer.error.kafka_code


def test_with_one_broker_no_election_is_ever_needed() -> None:
    image = three_brokers(1)
    assert code(image, Election.PREFERRED) == 84
    assert code(image, Election.UNCLEAN) == 84
    assert code(image, Election.PREFERRED, TopicPartition("t", 1)) == 3
    assert code(image, Election.PREFERRED, TopicPartition("other", 0)) == 3


def test_when_a_leader_dies_the_next_replica_in_sync_leads_with_a_new_epoch() -> None:
    image = three_brokers(1, 2, 3)
    image = after(image, fence_broker(image, 1))
    assert partition(image) == Partition(
        replicas=(1, 2, 3), leader=2, leader_epoch=LeaderEpoch(1), isr=(2, 3), partition_epoch=1
    )


def test_when_a_follower_dies_the_leader_and_its_epoch_stay() -> None:
    image = three_brokers(1, 2, 3)
    image = after(image, fence_broker(image, 2))
    assert (partition(image).leader, partition(image).leader_epoch, partition(image).isr) == (1, 0, (1, 3))


def test_the_last_replica_in_sync_stays_eligible_and_leads_again_when_it_is_back() -> None:
    image = three_brokers(1, 2)
    image = after(image, fence_broker(image, 2))
    image = after(image, fence_broker(image, 1))
    assert (partition(image).leader, partition(image).isr, partition(image).elr) == (NO_LEADER, (), (1,))
    image = back(image, 2)
    assert partition(image).leader == NO_LEADER, "it may lack what was acknowledged"
    image = back(image, 1)
    assert (partition(image).leader, partition(image).leader_epoch) == (1, 2)
    assert (partition(image).isr, partition(image).elr) == ((1,), ())


def test_it_is_the_last_one_in_sync_that_stays_not_the_first_replica() -> None:
    image = three_brokers(1, 2)
    image = after(image, fence_broker(image, 1))
    image = after(image, fence_broker(image, 2))
    assert (partition(image).leader, partition(image).isr, partition(image).elr) == (NO_LEADER, (), (2,))


def test_an_unclean_election_makes_any_live_replica_lead_alone() -> None:
    image = three_brokers(1, 2)
    image = after(image, fence_broker(image, 2))
    image = after(image, fence_broker(image, 1))
    assert code(image, Election.UNCLEAN) == 83
    image = back(image, 2)
    decision = elect_leaders(image, Election.UNCLEAN, [AT, AT])
    assert decision.answers == (Elected(AT, 2),)
    image = after(image, decision.commands)
    assert (partition(image).leader, partition(image).isr) == (2, (2,))


def test_the_preferred_leader_is_elected_once_it_is_in_sync_again() -> None:
    image = three_brokers(1, 2)
    image = after(image, fence_broker(image, 1))
    assert code(image, Election.PREFERRED) == 80
    image = back(image, 1)
    assert code(image, Election.PREFERRED) == 80, "up, and not yet in sync"
    topic_id = image.topics["t"].topic_id
    caught_up = ChangePartition(topic_id=topic_id, partition=0, leader=2, leader_epoch=LeaderEpoch(1), isr=(1, 2))
    image = after(image, (caught_up,))
    decision = elect_leaders(image, Election.PREFERRED)
    assert decision.answers == (Elected(AT, 1),)
    image = after(image, decision.commands)
    assert (partition(image).leader, partition(image).leader_epoch, partition(image).isr) == (1, 2, (1, 2))


def test_asking_for_all_partitions_answers_for_all() -> None:
    assert [type(answer) for answer in elect_leaders(three_brokers(1), Election.PREFERRED).answers] == [Refused]


def test_a_broker_registers_with_a_higher_epoch_each_time_and_a_dead_one_dies_once() -> None:
    image = back(cluster(1), 1)
    assert image.brokers[1].epoch == 1
    [again] = register_broker(image, 1, endpoints=(Endpoint("P", "h", 1),))
    assert isinstance(again, RegisterBroker)
    assert again.epoch == 2
    image = after(image, fence_broker(image, 1))
    assert fence_broker(image, 1) == ()
    assert fence_broker(image, 9) == ()


def test_a_leader_that_restarts_leads_again_in_a_new_epoch() -> None:
    image = back(three_brokers(1, 2), 1)
    assert (partition(image).leader, partition(image).leader_epoch, partition(image).isr) == (1, 1, (1, 2))
    alone = back(three_brokers(1), 1)
    assert partition(alone).leader_epoch == 0, "nobody else could have what it lost"


def test_a_leader_whose_log_is_damaged_gives_way_and_counts_for_nothing_until_it_has_copied_it() -> None:
    image = three_brokers(1, 2, 3)
    damaged = {(image.topics["t"].topic_id, 0)}
    image = after(image, step_aside(image, 1, damaged))
    found = partition(image)
    assert (found.leader, found.leader_epoch, found.isr, found.elr) == (2, 1, (2, 3), ())
    assert step_aside(image, 1, damaged) == ()
    assert step_aside(image, 2, set()) == ()


def test_a_follower_whose_log_is_damaged_is_neither_in_sync_nor_eligible() -> None:
    image = three_brokers(1, 2)
    damaged = {(image.topics["t"].topic_id, 0)}
    image = after(image, step_aside(image, 2, damaged))
    assert (partition(image).leader, partition(image).isr, partition(image).elr) == (1, (1,), ())


def test_a_damaged_log_is_the_best_there_is_where_nobody_else_is_in_sync() -> None:
    image = three_brokers(1, 2)
    damaged = {(image.topics["t"].topic_id, 0)}
    image = after(image, fence_broker(image, 2))
    assert step_aside(image, 1, damaged) == ()
    assert step_aside(three_brokers(1), 1, damaged) == ()


def test_a_broker_that_goes_hands_over_and_nobody_waits_for_it() -> None:
    image = three_brokers(1, 2, 3)
    image = after(image, hand_over(image, 1))
    assert (partition(image).leader, partition(image).isr) == (2, (2, 3))
    assert image.brokers[1].shutting_down
    image = after(image, hand_over(image, 2))
    image = after(image, hand_over(image, 3))
    assert (partition(image).leader, partition(image).isr) == (3, (3,)), "the last one leads to the end"
    assert hand_over(image, 3) == ()
    image = back(after(image, fence_broker(image, 3)), 3)
    assert (partition(image).leader, image.brokers[3].shutting_down) == (3, False)
    assert hand_over(after(image, fence_broker(image, 1)), 1) == ()


def test_new_partitions_do_not_come_to_a_broker_that_goes() -> None:
    image = cluster(2)
    image = after(image, hand_over(image, 1))
    topic = NewTopic(name="t", partitions=4, replication_factor=1)
    image = after(image, create_topics(image, [topic], static=STATIC, rng=chance()).commands)
    assert {each.leader for each in image.topics["t"].partitions} == {2}


def test_a_broker_is_fenced_only_in_the_life_that_was_silent() -> None:
    image = back(three_brokers(1, 2), 1)
    epoch = image.brokers[1].epoch
    assert fence_broker(image, 1, epoch=epoch - 1) == ()
    assert fence_broker(image, 1, epoch=epoch) != ()


def test_leaders_go_back_to_the_preferred_when_too_many_are_elsewhere() -> None:
    image = cluster(2)
    topic = NewTopic(name="t", assignments=tuple((number, (1, 2)) for number in range(10)))
    image = after(image, create_topics(image, [topic], static=STATIC, rng=chance()).commands)
    assert balance(image) == ()
    image = after(image, elect_elsewhere(image, 1))
    assert balance(image) == (), "one in ten is not too many"
    image = after(image, elect_elsewhere(image, 3))
    assert len(balance(image, moves_max=2)) == 2
    image = after(image, balance(image))
    assert {each.leader for each in image.topics["t"].partitions} == {1}


def elect_elsewhere(image: Image, count: int) -> tuple[ChangePartition, ...]:
    topic = image.topics["t"]
    return tuple(led_by(image, topic, number, 2) for number in range(count))


def test_an_unclean_election_needs_the_topics_leave_and_is_told() -> None:
    image = dead(topic_on(1, 2), 2, 1)
    assert partition(back_with_disk(image, 2)).leader == NO_LEADER
    allowed = dead(topic_on(1, 2, unclean=True), 2, 1)
    assert unclean(allowed, fence_broker(allowed, 3)) == []
    commands = register_broker(allowed, 2, endpoints=(Endpoint("P", "h", 1),))
    assert unclean(allowed, commands) == [AT]
    found = partition(after(allowed, commands))
    assert (found.leader, found.isr, found.elr) == (2, (2,), ()), "nobody else has what it has"
    lost = dead(topic_on(1, unclean=True), 1)
    commands = register_broker(lost, 1, endpoints=(Endpoint("P", "h", 1),), directory_id=OTHER_DISK)
    assert unclean(lost, commands) == [AT], "an empty disk is allowed to lead, and it is told"
    assert partition(after(lost, commands)).leader == 1


def back_with_disk(image: Image, broker: int) -> Image:
    return after(image, register_broker(image, broker, endpoints=(Endpoint("P", "h", 1),)))


def test_a_leader_is_found_when_the_topic_comes_to_allow_it() -> None:
    image = back_with_disk(dead(topic_on(1, 2), 2, 1), 2)
    assert elect_leaderless(image) == ()
    allow = AlterConfigs(target="t", items=(ConfigItem("unclean.leader.election.enable", "true"),))
    image = after(image, alter_configs(image, [allow], static=STATIC).commands)
    assert partition(after(image, elect_leaderless(image))).leader == 2


def test_a_broker_that_may_have_lost_the_end_of_a_log_leads_it_only_where_nobody_else_could() -> None:
    image = three_brokers(1, 2, 3)
    doubtful = {(image.topics["t"].topic_id, 0)}
    at = (Endpoint("P", "h", 1),)
    found = partition(after(image, register_broker(image, 1, endpoints=at, doubtful=doubtful)))
    assert (found.leader, found.isr, found.elr) == (2, (2, 3), ())
    alone = three_brokers(1)
    doubtful = {(alone.topics["t"].topic_id, 0)}
    assert partition(after(alone, register_broker(alone, 1, endpoints=at, doubtful=doubtful))).leader == 1


def test_that_unclean_elections_are_allowed_is_told_of_whom() -> None:
    image = topic_on(1, 2)

    def told(target: str | int, value: str) -> list[str]:
        request = AlterConfigs(target=target, items=(ConfigItem("unclean.leader.election.enable", value),))
        return allowed_unclean(image, alter_configs(image, [request], static=STATIC).commands)

    assert (told("t", "true"), told(ALL_BROKERS, "true")) == (["t"], ["all topics"])
    assert told("t", "false") == told(ALL_BROKERS, "false") == []
