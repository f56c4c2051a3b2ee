"""What Kafka refuses, the Java client is told by Kafka's own name for it; and topics that change under its feet."""

import pytest

from tests.interop.facts import new_name
from tests.interop.foreign_client import ForeignClient, Refused
from tests.interop.test_java_groups import BOTH, join, wait_shares
from tests.interop.test_java_records import BASE_MS, new_topic, produce, read

pytestmark = pytest.mark.slow
YEAR_2100_MS = 4_102_444_800_000


def configured_topic(java: ForeignClient, **configs: str) -> str:
    topic = new_name("java-topic")
    dotted = {name.replace("_", "."): value for name, value in configs.items()}
    java.ask("create_topic", topic=topic, partitions=1, configs=dotted)
    return topic


def test_a_topic_is_described_page_by_page(java: ForeignClient) -> None:
    topic = new_topic(java, partitions=5)
    seen = java.ask("describe_topic", topic=topic, page=2)
    assert [each["partition"] for each in seen["partitions"]] == list(range(5))


def test_more_copies_than_brokers_are_refused(java: ForeignClient) -> None:
    with pytest.raises(Refused, match="InvalidReplicationFactorException"):
        java.ask("create_topic", topic=new_name("java-topic"), partitions=1, replicas=3)


def test_a_consumer_reads_a_topic_that_was_made_anew(java: ForeignClient) -> None:
    topic, name = new_topic(java), new_name("reader")
    produce(java, topic, [{"value": "old"}] * 3)
    java.ask("open", name=name, settings={"metadata.max.age.ms": 200})
    java.ask("assign", name=name, partitions=[[topic, 0]])
    java.receive(name, 3)
    java.ask("delete_topic", topic=topic)
    java.ask("create_topic", topic=topic, partitions=1)
    produce(java, topic, [{"value": "new"}])
    assert [each["value"] for each in java.receive(name, 1)] == ["new"]
    java.ask("close", name=name)


def test_the_broker_stamps_where_its_topic_says_so(java: ForeignClient) -> None:
    topic = configured_topic(java, message_timestamp_type="LogAppendTime")
    produce(java, topic, [{"value": "x", "timestamp": BASE_MS}])
    (found,) = read(java, topic, 1)
    assert found["timestamp_type"] == "LogAppendTime"
    assert found["timestamp"] > BASE_MS


def test_a_message_from_the_far_future_is_refused(java: ForeignClient) -> None:
    assert produce(java, new_topic(java), [{"value": "x", "timestamp": YEAR_2100_MS}]) == ["InvalidTimestampException"]


def test_a_compacted_topic_takes_no_message_without_a_key(java: ForeignClient) -> None:
    topic = configured_topic(java, cleanup_policy="compact")
    assert produce(java, topic, [{"value": "x"}]) == ["InvalidRecordException"]
    assert produce(java, topic, [{"key": "k", "value": "x"}]) == [[0, 0]]


def test_a_commit_that_cannot_be_kept_is_refused(java: ForeignClient) -> None:
    topic, name = new_topic(java), new_name("reader")
    java.ask("open", name=name, settings={"group.id": new_name("group"), "default.api.timeout.ms": 2_000})
    with pytest.raises(Refused, match="OffsetMetadataTooLarge"):
        java.ask("commit", name=name, offsets=[[topic, 0, 1, "x" * 5_000]])
    java.ask("commit", name=name, offsets=[[topic, 0, 1, "x" * 4_096]])
    java.ask("close", name=name)


def test_a_group_without_a_name_commits_nothing(java: ForeignClient) -> None:
    topic, name = new_topic(java), new_name("reader")
    java.ask("open", name=name)
    with pytest.raises(Refused, match="InvalidGroupIdException"):
        java.ask("commit", name=name, offsets=[[topic, 0, 1]])
    java.ask("close", name=name)


def test_the_broker_assigns_with_the_assignor_that_is_asked_for(java: ForeignClient) -> None:
    topic, group = new_topic(java, partitions=3), new_name("group")
    member = join(java, group, topic, "consumer", group_remote_assignor="range")
    wait_shares(java, [member], [3])
    assert java.ask("describe_group", group=group)["assignor"] == "range"
    java.ask("close", name=member)


def test_an_assignor_nobody_has_is_refused(java: ForeignClient) -> None:
    member = join(java, new_name("group"), new_topic(java), "consumer", group_remote_assignor="unheard-of")
    with pytest.raises(Refused, match="UnsupportedAssignorException"):
        java.receive(member, 1)
    java.ask("close", name=member)


def test_a_pattern_that_is_none_is_refused(java: ForeignClient) -> None:
    name = new_name("member")
    java.ask("open", name=name, settings={"group.id": new_name("group"), "group.protocol": "consumer"})
    java.ask("subscribe", name=name, pattern="(", by_broker=True)
    with pytest.raises(Refused, match="InvalidRegularExpression"):
        java.receive(name, 1)
    java.ask("close", name=name)


def test_assignors_that_have_none_in_common_do_not_meet(java: ForeignClient) -> None:
    topic, group = new_topic(java), new_name("group")
    member = join(java, group, topic, "range")
    wait_shares(java, [member], [1])
    other = join(java, group, topic, "cooperative-sticky")
    with pytest.raises(Refused, match="InconsistentGroupProtocolException"):
        java.receive(other, 1)
    for each in (member, other):
        java.ask("close", name=each)


@pytest.mark.parametrize("protocol", BOTH)
def test_two_members_cannot_have_the_same_name(java: ForeignClient, protocol: str) -> None:
    topic, group = new_topic(java), new_name("group")
    first = join(java, group, topic, protocol, group_instance_id="only")
    wait_shares(java, [first], [1])
    second = join(java, group, topic, protocol, group_instance_id="only")
    refusal = "UnreleasedInstanceIdException" if protocol == "consumer" else "FencedInstanceIdException"
    with pytest.raises(Refused, match=refusal):
        wait_shares(java, [second, first], [1, 1])
    for each in (first, second):
        java.ask("close", name=each)


def test_a_group_of_the_new_protocol_is_no_classic_one(java: ForeignClient) -> None:
    topic = new_topic(java)
    groups = {protocol: new_name("group") for protocol in BOTH}
    members = [join(java, groups[protocol], topic, protocol) for protocol in BOTH]
    for member in members:
        wait_shares(java, [member], [1])
    assert java.ask("describe_classic_group", group=groups["cooperative-sticky"]) == ["Stable", "cooperative-sticky"]
    with pytest.raises(Refused, match="GroupIdNotFoundException"):
        java.ask("describe_classic_group", group=groups["consumer"])
    for member in members:
        java.ask("close", name=member)
