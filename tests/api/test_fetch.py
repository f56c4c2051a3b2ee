"""What consumers are answered: how much, how soon, and where offsets lie."""

import pytest

from millpond.broker.node import Node
from millpond.model.ids import TimestampMs
from millpond.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millpond.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from millpond.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.api.asking import BY_NAME, batch, create, fetch, fetch_request, list_offset, produce, values
from tests.api.brokers import Peer, RunningBroker

FOREVER_MS = 2**31 - 1
"""Longer than any test: what is answered all the same was not answered by a timer."""


def is_waited_for(node: Node, name: str) -> bool:
    partition = node.partitions.named(name, 0)
    return partition is not None and bool(partition._waiting)


def test_an_append_wakes_who_waits_for_it(broker: RunningBroker, peer: Peer, name: str) -> None:
    create(peer, name)
    with Peer(broker) as consumer:
        consumer.send(fetch_request(name, 0, max_wait_ms=FOREVER_MS), BY_NAME)
        broker.wait_until(lambda node: is_waited_for(node, name))
        produce(peer, name, batch(b"news"))
        answer = consumer.receive(1, BY_NAME)
    assert values(answer.responses[0].partitions[0]) == [b"news"]


def test_who_waits_for_more_bytes_than_one_append_has_waits_on(broker: RunningBroker, peer: Peer, name: str) -> None:
    create(peer, name)
    first, second = batch(b"first"), batch(b"second")
    with Peer(broker) as consumer:
        wanted = fetch_request(name, 0, max_wait_ms=FOREVER_MS, min_bytes=len(first) + 1)
        consumer.send(wanted, BY_NAME)
        broker.wait_until(lambda node: is_waited_for(node, name))
        produce(peer, name, first)
        broker.wait_until(lambda node: is_waited_for(node, name))
        produce(peer, name, second)
        answer = consumer.receive(1, BY_NAME)
    assert values(answer.responses[0].partitions[0]) == [b"first", b"second"]


def test_the_wait_ends_with_what_there_is(peer: Peer, name: str) -> None:
    create(peer, name)
    assert values(fetch(peer, name, max_wait_ms=20)) == []
    produce(peer, name, batch(b"few"))
    assert values(fetch(peer, name, max_wait_ms=20, min_bytes=1_000_000)) == [b"few"]


def test_enough_bytes_are_answered_without_a_wait(peer: Peer, name: str) -> None:
    create(peer, name)
    records = batch(b"enough")
    produce(peer, name, records)
    assert values(fetch(peer, name, max_wait_ms=FOREVER_MS, min_bytes=len(records))) == [b"enough"]
    assert values(fetch(peer, name, 1, min_bytes=0, max_wait_ms=FOREVER_MS)) == []


def test_an_error_is_answered_without_a_wait(peer: Peer, name: str) -> None:
    create(peer, name)
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    missing = FetchPartition(partition=9, fetch_offset=0, partition_max_bytes=1000)
    topic = FetchTopic(topic=name, partitions=[part, missing])
    request = FetchRequest(max_wait_ms=FOREVER_MS, min_bytes=1, topics=[topic])
    assert [each.error_code for each in peer.ask(request, BY_NAME).responses[0].partitions] == [0, 3]


def test_a_deleted_topic_ends_the_wait_for_it(broker: RunningBroker, peer: Peer, name: str) -> None:
    create(peer, name)
    with Peer(broker) as consumer:
        consumer.send(fetch_request(name, 0, max_wait_ms=FOREVER_MS), BY_NAME)
        broker.wait_until(lambda node: is_waited_for(node, name))
        peer.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
        answer = consumer.receive(1, BY_NAME)
    assert answer.responses[0].partitions[0].error_code != 0


def test_a_batch_larger_than_every_limit_comes_alone(peer: Peer, name: str) -> None:
    create(peer, name)
    produce(peer, name, batch(bytes(5000)))
    produce(peer, name, batch(b"next"))
    assert values(fetch(peer, name, max_bytes=1, partition_max_bytes=1)) == [bytes(5000)]
    assert values(fetch(peer, name, 1, max_bytes=1, partition_max_bytes=1)) == [b"next"]


def test_whole_batches_up_to_the_limits(peer: Peer, name: str) -> None:
    create(peer, name)
    size = len(batch(bytes(100)))
    for _ in range(5):
        produce(peer, name, batch(bytes(100)))
    assert len(values(fetch(peer, name, partition_max_bytes=3 * size))) == 3
    assert len(values(fetch(peer, name, partition_max_bytes=3 * size - 1))) == 2
    assert len(values(fetch(peer, name, max_bytes=2 * size))) == 2
    assert len(values(fetch(peer, name))) == 5


def test_one_limit_holds_for_all_partitions_together(peer: Peer, name: str) -> None:
    create(peer, name, partitions=3)
    size = len(batch(bytes(100)))
    for partition in range(3):
        produce(peer, name, batch(bytes(100)), partition=partition)
    parts = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000) for number in range(3)]
    request = FetchRequest(min_bytes=1, max_bytes=2 * size, topics=[FetchTopic(topic=name, partitions=parts)])
    answers = peer.ask(request, BY_NAME).responses[0].partitions
    assert [len(values(each)) for each in answers] == [1, 1, 0]
    assert [each.high_watermark for each in answers] == [1, 1, 1]


def test_only_the_first_partition_may_break_the_limits(peer: Peer, name: str) -> None:
    create(peer, name, partitions=3)
    size = len(batch(bytes(100)))
    for partition in range(3):
        produce(peer, name, batch(bytes(100)), partition=partition)
    parts = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1) for number in range(3)]
    request = FetchRequest(min_bytes=1, max_bytes=10 * size, topics=[FetchTopic(topic=name, partitions=parts)])
    assert [len(values(each)) for each in peer.ask(request, BY_NAME).responses[0].partitions] == [1, 0, 0]


def test_the_end_of_a_segment_is_no_reason_to_wait(peer: Peer, name: str) -> None:
    create(peer, name, segment_bytes="1048576")
    for _ in range(3):
        produce(peer, name, batch(bytes(700_000)))
    found = fetch(peer, name, max_wait_ms=FOREVER_MS, min_bytes=1_500_000, partition_max_bytes=10_000_000)
    assert len(values(found)) >= 1


def test_a_fetch_from_inside_a_batch_gets_the_whole_batch(peer: Peer, name: str) -> None:
    create(peer, name)
    produce(peer, name, batch(b"a", b"b", b"c"))
    assert values(fetch(peer, name, 2)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("offset", [-1, 2, 100])
def test_an_offset_that_is_not_there_is_out_of_range(peer: Peer, name: str, offset: int) -> None:
    create(peer, name)
    produce(peer, name, batch(b"only"))
    answer = fetch(peer, name, offset, max_wait_ms=FOREVER_MS)
    assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (1, -1, -1)
    assert not answer.records


def test_an_epoch_that_is_not_the_leaders_is_refused(peer: Peer, name: str) -> None:
    create(peer, name)
    produce(peer, name, batch(b"x"))
    assert fetch(peer, name, current_leader_epoch=0).error_code == 0
    assert fetch(peer, name, current_leader_epoch=1).error_code == 75
    assert list_offset(peer, name, -1, epoch=1).error_code == 75
    assert list_offset(peer, name, -1, epoch=0).error_code == 0


def test_an_epoch_that_is_over_is_fenced(broker: RunningBroker, peer: Peer, name: str) -> None:
    create(peer, name)

    async def lead_anew(node: Node) -> None:
        partition = node.partitions.named(name, 0)
        assert partition is not None
        partition.leader_epoch = type(partition.leader_epoch)(3)

    broker.do(lead_anew)
    assert fetch(peer, name, current_leader_epoch=2).error_code == 74
    assert list_offset(peer, name, -1, epoch=2).error_code == 74


def test_a_topic_id_nobody_has_is_an_error_and_waits_for_nothing(peer: Peer) -> None:
    answer = fetch(peer, "", topic_id=b"\1" * 16, version=13, max_wait_ms=FOREVER_MS)
    assert answer.error_code == 100


def test_a_fetch_of_nothing_is_answered_at_once(peer: Peer) -> None:
    assert peer.ask(FetchRequest(max_wait_ms=FOREVER_MS, min_bytes=1)).responses == []


def test_places_and_times_are_found(peer: Peer, name: str) -> None:
    create(peer, name)
    for number, time in enumerate((1000, 3000, 2000)):
        produce(peer, name, batch(b"%d" % number, timestamp=TimestampMs(time)))
    found = {asked: list_offset(peer, name, asked) for asked in (-1, -2, -3, 0, 1001, 3000, 3001)}
    assert {asked: each.offset for asked, each in found.items()} == {
        -1: 3, -2: 0, -3: 1, 0: 0, 1001: 1, 3000: 1, 3001: -1
    }  # fmt: skip
    assert (found[1001].timestamp, found[3001].timestamp, found[-1].timestamp) == (3000, -1, -1)
    assert found[1001].leader_epoch == 0


def test_an_empty_partition_has_places_and_no_times(peer: Peer, name: str) -> None:
    create(peer, name)
    assert [list_offset(peer, name, asked).offset for asked in (-1, -2, -3, 5)] == [0, 0, -1, -1]
    assert list_offset(peer, name, -99).error_code != 0
    assert list_offset(peer, "not-there", -1).error_code == 3


def test_an_epoch_ends_where_the_log_does_and_a_later_one_is_not_known(peer: Peer, name: str) -> None:
    create(peer, name)
    produce(peer, name, batch(b"a", b"b"))

    def end_of(epoch: int, partition: int = 0) -> tuple[int, int, int]:
        part = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
        topic = OffsetForLeaderTopic(topic=name, partitions=[part])
        answer = peer.ask(OffsetForLeaderEpochRequest(topics=[topic])).topics[0].partitions[0]
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert end_of(0) == (0, 0, 2)
    assert end_of(5) == (0, -1, -1)
    assert end_of(0, partition=7) == (3, -1, -1)


def test_a_session_that_is_not_kept_is_not_found(peer: Peer, name: str) -> None:
    create(peer, name)
    for session_id, session_epoch, code in ((77, 1, 70), (0, 5, 70), (0, 0, 0), (77, -1, 0)):
        request = fetch_request(name, 0, session_id=session_id, session_epoch=session_epoch)
        assert peer.ask(request, 12).error_code == code


def test_one_batch_comes_however_little_is_asked_for(peer: Peer, name: str) -> None:
    create(peer, name)
    produce(peer, name, batch(b"a"))
    produce(peer, name, batch(b"b"))
    assert values(fetch(peer, name, max_bytes=0)) == [b"a"]


@pytest.mark.parametrize(("place", "since"), [(-3, 7), (-4, 8), (-5, 9)])
def test_places_are_known_from_a_version_on(peer: Peer, name: str, place: int, since: int) -> None:
    create(peer, name)
    part = ListOffsetsPartition(partition_index=0, timestamp=place)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[part])])
    codes = [peer.ask(request, version).topics[0].partitions[0].error_code for version in (since - 1, since)]
    assert codes == [35, 0]
    part.timestamp = -6
    assert peer.ask(request, 10).topics[0].partitions[0].error_code == 35


def test_a_partition_that_is_listed_twice_is_answered_once_and_refused(peer: Peer, name: str) -> None:
    create(peer, name)
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[part, part])])
    assert [each.error_code for each in peer.ask(request).topics[0].partitions] == [42]


def test_no_epoch_has_no_end(peer: Peer, name: str) -> None:
    create(peer, name)
    part = OffsetForLeaderPartition(partition=0, leader_epoch=-1)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=[part])])
    (found,) = peer.ask(request).topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, -1, -1)
