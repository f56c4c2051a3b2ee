"""confluent-kafka: consumer groups of both protocols, their offsets, and what an administrator sees of them."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)

from tests.interop.broker_process import BrokerProcess
from tests.interop.confluent import POLL_SECONDS, new_admin, new_consumer, new_topic, receive, send, values_of
from tests.interop.facts import FACT_SECONDS_MAX, new_name, until

PROTOCOLS = {
    "range": {"partition_assignment_strategy": "range"},
    "roundrobin": {"partition_assignment_strategy": "roundrobin"},
    "cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}
BOTH = ("cooperative-sticky", "consumer")

Join = Callable[..., Consumer]


def _ignore(_: Consumer, __: list[TopicPartition]) -> None:
    """For members of whom it does not matter what they lose."""


@pytest.fixture
def join(broker: BrokerProcess) -> Iterator[Join]:
    """Makes members, and lets those leave that are still there at the end."""
    members: list[Consumer] = []

    def new_member(
        group: str, topic: str, protocol: str, *, on_revoke: Callable[..., None] = _ignore, **settings: object
    ) -> Consumer:
        member = new_consumer(broker, group_id=group, **PROTOCOLS[protocol], **settings)
        member.subscribe([topic], on_revoke=on_revoke)
        members.append(member)
        return member

    yield new_member
    for member in members:
        member.close()


def _shares(members: list[Consumer]) -> list[set[int]]:
    return [{each.partition for each in member.assignment()} for member in members]


def _wait_shared(members: list[Consumer], partitions: int) -> None:
    """Until every partition has exactly one owner and nobody is without."""

    def shared() -> bool:
        shares = _shares(members)
        return all(shares) and sorted(each for share in shares for each in share) == list(range(partitions))

    for _ in until(shared, what="every partition has one owner"):
        for member in members:
            for message in member.consume(1, POLL_SECONDS / 2):
                assert message.error() is None, message.error()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_reads_every_message_once(broker: BrokerProcess, join: Join, protocol: str) -> None:
    topic, group = new_topic(broker, partitions=3), new_name("group")
    for partition in range(3):
        send(broker, topic, [b"%d/%d" % (partition, number) for number in range(50)], partition=partition)
    member = join(group, topic, protocol)
    messages = receive(member, 150)
    assert len(set(values_of(messages))) == 150


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_members_share_the_partitions(broker: BrokerProcess, join: Join, protocol: str) -> None:
    topic, group = new_topic(broker, partitions=4), new_name("group")
    members = [join(group, topic, protocol) for _ in range(2)]
    _wait_shared(members, 4)
    assert [len(share) for share in _shares(members)] == [2, 2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_where_it_stopped(broker: BrokerProcess, join: Join, protocol: str) -> None:
    topic, group = new_topic(broker), new_name("group")
    send(broker, topic, [b"%d" % number for number in range(10)])
    first = join(group, topic, protocol)
    messages = receive(first, 10)
    (kept,) = first.commit(message=messages[6], asynchronous=False)
    assert (kept.offset, kept.error) == (7, None)
    first.close()
    second = join(group, topic, protocol)
    assert values_of(receive(second, 3)) == [b"7", b"8", b"9"]
    (committed,) = second.committed([TopicPartition(topic, 0)], timeout=FACT_SECONDS_MAX)
    assert committed.offset == 7


@pytest.mark.parametrize("protocol", BOTH)
def test_a_commit_in_the_background_is_told_and_kept(broker: BrokerProcess, join: Join, protocol: str) -> None:
    topic, group = new_topic(broker), new_name("group")
    send(broker, topic, [b"a", b"b"])
    told: list[object] = []

    def on_commit(error: object, offsets: list[TopicPartition]) -> None:
        told.append((error, offsets[0].offset))

    member = join(group, topic, protocol, on_commit=on_commit)
    receive(member, 2)
    member.commit(asynchronous=True)
    for _ in until(lambda: told, what="the commit is told"):
        member.poll(POLL_SECONDS)
    assert told == [(None, 2)]


@pytest.mark.parametrize("protocol", BOTH)
def test_a_member_that_leaves_commits_by_itself_where_asked(broker: BrokerProcess, join: Join, protocol: str) -> None:
    topic, group = new_topic(broker), new_name("group")
    send(broker, topic, [b"%d" % number for number in range(5)])
    first = join(group, topic, protocol, enable_auto_commit=True)
    receive(first, 5)
    first.close()
    send(broker, topic, [b"5"])
    assert values_of(receive(join(group, topic, protocol), 1)) == [b"5"]


def test_an_offset_is_kept_with_its_metadata(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    send(broker, topic, [b"x"] * 4)
    consumer = new_consumer(broker)
    consumer.commit(offsets=[TopicPartition(topic, 0, 3, "half way")], asynchronous=False)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=FACT_SECONDS_MAX)
    assert (committed.offset, committed.metadata) == (3, "half way")
    consumer.close()


@pytest.mark.parametrize("protocol", BOTH)
def test_a_topic_made_later_is_found_by_its_pattern(broker: BrokerProcess, join: Join, protocol: str) -> None:
    early = new_topic(broker)
    send(broker, early, [b"early"])
    member = join(new_name("group"), f"^{early}(-late)?$", protocol, topic_metadata_refresh_interval_ms=200)
    assert values_of(receive(member, 1)) == [b"early"]
    send(broker, f"{early}-late", [b"late"])
    assert values_of(receive(member, 1)) == [b"late"]


@pytest.mark.parametrize("protocol", BOTH)
def test_a_group_is_listed_described_and_deleted(broker: BrokerProcess, join: Join, protocol: str) -> None:
    topic, group = new_topic(broker, partitions=2), new_name("group")
    send(broker, topic, [b"x"])
    member = join(group, topic, protocol, client_id="reader")
    receive(member, 1)
    member.commit(asynchronous=False)
    admin = new_admin(broker)
    kind = ConsumerGroupType.CONSUMER if protocol == "consumer" else ConsumerGroupType.CLASSIC
    listed = {each.group_id: each for each in _result(admin.list_consumer_groups()).valid}
    assert (listed[group].state, listed[group].type) == (ConsumerGroupState.STABLE, kind)
    described = _result(admin.describe_consumer_groups([group])[group])
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, kind)
    (seen,) = described.members
    assert seen.client_id == "reader"
    assert {each.partition for each in seen.assignment.topic_partitions} == {0, 1}
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        _result(admin.delete_consumer_groups([group])[group])
    member.close()
    assert _result(admin.describe_consumer_groups([group])[group]).state == ConsumerGroupState.EMPTY
    _result(admin.delete_consumer_groups([group])[group])
    assert group not in {each.group_id for each in _result(admin.list_consumer_groups()).valid}


@pytest.mark.parametrize("protocol", BOTH)
def test_an_administrator_sets_the_offsets_of_an_idle_group(broker: BrokerProcess, join: Join, protocol: str) -> None:
    topic, group = new_topic(broker), new_name("group")
    send(broker, topic, [b"%d" % number for number in range(6)])
    first = join(group, topic, protocol)
    receive(first, 6)
    first.commit(asynchronous=False)
    first.close()
    admin = new_admin(broker)
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 4)])
    _result(admin.alter_consumer_group_offsets([wanted])[group])
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    assert [each.offset for each in _result(asked[group]).topic_partitions] == [4]
    assert values_of(receive(join(group, topic, protocol), 2)) == [b"4", b"5"]


@pytest.mark.parametrize("protocol", BOTH)
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    broker: BrokerProcess, join: Join, protocol: str
) -> None:
    topic, group = new_topic(broker, partitions=4), new_name("group")
    revoked: list[list[TopicPartition]] = []
    stays = join(
        group,
        topic,
        protocol,
        group_instance_id="stays",
        on_revoke=lambda _, partitions: revoked.append(partitions),
    )
    goes = join(group, topic, protocol, group_instance_id="goes")
    _wait_shared([stays, goes], 4)
    before = _shares([stays, goes])
    revoked.clear()
    goes.close()
    back = join(group, topic, protocol, group_instance_id="goes")
    _wait_shared([stays, back], 4)
    assert _shares([stays, back]) == before
    assert revoked == []


def _result(future: "Future[Any]") -> Any:  # noqa: ANN401 - each call has an answer of its own
    return future.result(FACT_SECONDS_MAX)
