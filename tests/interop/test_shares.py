"""Stock share consumers, of confluent-kafka and of Java: what they accept, release, reject, renew or leave behind; and
beside them a group that reads the same topic from end to end."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from millpond.api.kafka.served import SERVED
from tests.interop.broker_process import BrokerProcess
from tests.interop.confluent import new_consumer, new_producer, new_topic, receive, send, values_of
from tests.interop.facts import FACT_SECONDS_MAX, new_name, until
from tests.interop.foreign_client import ForeignClient, Refused
from tests.interop.sharers import ConfluentSharer, Delivered, JavaSharer, Sharer, configure

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SERVED.keys() >= {76, 77, 78, 79}, reason="ShareFetch and ShareAcknowledge are not served"),
]
CLIENTS = ("confluent", "java")
IMPLICIT, EXPLICIT = "implicit", "explicit"

LONG_MS = 3_600_000
TAKER = """
import sys, time
from confluent_kafka import ShareConsumer
address, group, topic = sys.argv[1:]
consumer = ShareConsumer({"bootstrap.servers": address, "group.id": group, "log_level": 2})
consumer.subscribe([topic])
while not len(consumer.poll(0.1)):
    pass
print("taken", flush=True)
time.sleep(600)
"""
"""A member that takes a message, says so, and does nothing more."""

Join = Callable[..., Sharer]


@pytest.fixture(params=CLIENTS)
def join(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[Join]:
    """Makes members of share groups, and lets those leave that are still there at the end."""
    java: ForeignClient | None = request.getfixturevalue("java") if request.param == "java" else None
    members: list[Sharer] = []

    def new_member(group: str, topic: str, *, mode: str = IMPLICIT) -> Sharer:
        made: Sharer
        if java is None:
            made = ConfluentSharer(broker, group, topic, mode=mode)
        else:
            made = JavaSharer(java, group, topic, mode=mode)
        members.append(made)
        return made

    yield new_member
    for member in members:
        member.close()


def take(member: Sharer, count: int, acknowledge: dict[str, str] | None = None) -> list[Delivered]:
    taken: list[Delivered] = []
    for _ in until(lambda: len(taken) >= count, what=f"{count} messages are delivered"):
        taken.extend(member.take(acknowledge))
    return taken


def test_every_message_is_delivered_once_among_all_members(broker: BrokerProcess, join: Join) -> None:
    topic, group = new_topic(broker, partitions=3), new_name("share")
    for partition in range(3):
        send(broker, topic, [b"%d/%d" % (partition, number) for number in range(50)], partition=partition)
    members = [join(group, topic) for _ in range(4)]
    taken: list[Delivered] = []
    for _ in until(lambda: len(taken) >= 150, what="all are delivered"):
        for member in members:
            taken.extend(member.take())
    assert [member.commit() for member in members] == [[], [], [], []]
    send(broker, topic, [b"last"])
    for _ in until(lambda: len(taken) >= 151, what="the last is delivered"):
        for member in members:
            taken.extend(member.take())
    assert Counter(each.deliveries for each in taken) == {1: 151}
    assert len({each.value for each in taken}) == 151


def test_an_answer_that_tells_the_order_of_priorities_is_read_by_who_does_not_know_of_it(
    broker: BrokerProcess, join: Join
) -> None:
    topic, group = new_topic(broker), new_name("share")
    producer = new_producer(broker)
    for priority in ("low", "normal", "high"):
        producer.produce(topic, priority.encode(), partition=0, headers={"millpond-priority": priority})
    assert producer.flush(FACT_SECONDS_MAX) == 0
    member = join(group, topic)
    assert {each.value for each in take(member, 3)} == {"low", "normal", "high"}
    assert member.commit() == []


def test_what_is_released_comes_again_and_what_is_accepted_or_rejected_does_not(
    broker: BrokerProcess, join: Join
) -> None:
    topic, group = new_topic(broker), new_name("share")
    send(broker, topic, [b"good", b"again", b"bad"])
    member = join(group, topic, mode=EXPLICIT)
    first = take(member, 3, {"good": "ACCEPT", "again": "RELEASE", "bad": "REJECT"})
    assert first == [Delivered("good", 1), Delivered("again", 1), Delivered("bad", 1)]
    assert member.commit() == []
    assert take(member, 1, {}) == [Delivered("again", 2)]
    assert member.commit() == []
    send(broker, topic, [b"last"])
    assert take(member, 1, {}) == [Delivered("last", 1)]
    assert member.commit() == []


def test_who_closes_gives_back_what_it_did_not_acknowledge(broker: BrokerProcess, join: Join) -> None:
    topic, group = new_topic(broker), new_name("share")
    send(broker, topic, [b"job"])
    first = join(group, topic)
    assert take(first, 1) == [Delivered("job", 1)]
    first.close()
    second = join(group, topic)
    assert take(second, 1) == [Delivered("job", 2)]
    assert second.commit() == []


def test_the_messages_of_a_process_that_was_killed_go_to_another_at_once(broker: BrokerProcess, join: Join) -> None:
    topic, group = new_topic(broker), new_name("share")
    configure(broker, group, share_record_lock_duration_ms=LONG_MS)
    send(broker, topic, [b"job"])
    with subprocess.Popen(
        [sys.executable, "-c", TAKER, broker.address, group, topic], stdout=subprocess.PIPE, text=True
    ) as taker:
        assert taker.stdout is not None
        assert taker.stdout.readline() == "taken\n"
        taker.kill()
    member = join(group, topic)
    assert take(member, 1) == [Delivered("job", 2)]
    assert member.commit() == []


def test_what_is_not_acknowledged_in_time_comes_again_and_is_no_longer_its_first_readers(
    broker: BrokerProcess, join: Join
) -> None:
    topic, group = new_topic(broker), new_name("share")
    configure(broker, group, share_record_lock_duration_ms=500)
    send(broker, topic, [b"job"])
    slow, quick = join(group, topic), join(group, topic)
    assert take(slow, 1) == [Delivered("job", 1)]
    assert take(quick, 1) == [Delivered("job", 2)]
    assert slow.commit() in (["INVALID_RECORD_STATE"], ["InvalidRecordStateException"])
    assert quick.commit() == []


def test_what_was_delivered_too_often_is_not_delivered_any_more(broker: BrokerProcess, join: Join) -> None:
    topic, group = new_topic(broker), new_name("share")
    configure(broker, group, share_delivery_count_limit=2)
    send(broker, topic, [b"poison"])
    member = join(group, topic, mode=EXPLICIT)
    for attempt in (1, 2):
        assert take(member, 1, {"poison": "RELEASE"}) == [Delivered("poison", attempt)]
        assert member.commit() == []
    send(broker, topic, [b"last"])
    assert take(member, 1, {}) == [Delivered("last", 1)]
    assert member.commit() == []


def test_a_group_begins_where_its_settings_say(broker: BrokerProcess, join: Join) -> None:
    topic, group = new_topic(broker), new_name("share")
    configure(broker, group, share_auto_offset_reset="latest")
    send(broker, topic, [b"before"])
    member, taken = join(group, topic), list[Delivered]()
    numbers = iter(range(1_000))
    for _ in until(lambda: taken, what="something that was sent after it began"):
        send(broker, topic, [b"after %d" % next(numbers)])
        taken.extend(member.take())
    assert all(each.value.startswith("after") for each in taken)
    assert member.commit() == []


def test_a_consumer_group_reads_the_same_topic_from_end_to_end(broker: BrokerProcess, join: Join) -> None:
    topic = new_topic(broker)
    values = [b"%d" % number for number in range(100)]
    send(broker, topic, values)
    member = join(new_name("share"), topic)
    taken = take(member, 100)
    assert member.commit() == []
    reader = new_consumer(broker)
    reader.subscribe([topic])
    assert values_of(receive(reader, 100)) == values
    reader.close()
    assert [each.value.encode() for each in taken] == values


def test_java_renews_a_lock_and_an_administrator_sees_the_group(broker: BrokerProcess, java: ForeignClient) -> None:
    topic, group = new_topic(broker), new_name("share")
    send(broker, topic, [b"long job"])
    with closing(JavaSharer(java, group, topic, mode=EXPLICIT)) as member:
        assert take(member, 1, {"long job": "RENEW"}) == [Delivered("long job", 1)]
        assert member.commit() == []
        assert java.ask("list_groups")[group] == ["Share", "Stable", "share"]
        assert java.ask("describe_share_group", group=group) == ["Stable", [[0]]]
        assert take(member, 1, {}) == [Delivered("long job", 1)]
        assert member.commit() == []
    assert java.ask("describe_share_group", group=group) == ["Empty", []]


def test_java_moves_a_share_group_and_makes_it_forget(broker: BrokerProcess, java: ForeignClient) -> None:
    topic, group = new_topic(broker), new_name("share")
    send(broker, topic, [b"a", b"b", b"c"])
    with closing(JavaSharer(java, group, topic, mode=EXPLICIT)) as member:
        assert take(member, 3, {}) == [Delivered(each, 1) for each in "abc"]
        assert member.commit() == []
        with pytest.raises(Refused, match="GroupNotEmpty"):
            java.ask("alter_share_offsets", group=group, offsets=[[topic, 0, 1]])
    assert java.ask("share_offsets", group=group) == [[topic, 0, 3, 0]]
    java.ask("alter_share_offsets", group=group, offsets=[[topic, 0, 1]])
    assert java.ask("share_offsets", group=group) == [[topic, 0, 1, 2]]
    with closing(JavaSharer(java, group, topic, mode=EXPLICIT)) as member:
        assert take(member, 2, {}) == [Delivered("b", 1), Delivered("c", 1)]
        assert member.commit() == []
    java.ask("delete_share_offsets", group=group, topic=topic)
    assert java.ask("share_offsets", group=group) == []
    with closing(JavaSharer(java, group, topic, mode=EXPLICIT)) as member:
        assert take(member, 3, {}) == [Delivered(each, 1) for each in "abc"], "as a group that is new here"
        assert member.commit() == []
    java.ask("delete_share_group", group=group)
    assert group not in java.ask("list_groups")
