"""The Java client: groups of the classic protocol, eager and cooperative, and of `group.protocol=consumer`."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.comings_and_goings import PARTITIONS, Leaver, come_and_go
from tests.interop.facts import new_name, until
from tests.interop.flowing_group import Member, Story
from tests.interop.foreign_client import ForeignClient, ForeignMember, Refused
from tests.interop.test_java_records import new_topic, produce

pytestmark = pytest.mark.slow
ASSIGNORS = "org.apache.kafka.clients.consumer."
PROTOCOLS: dict[str, dict[str, object]] = {
    "range": {"partition.assignment.strategy": f"{ASSIGNORS}RangeAssignor", "heartbeat.interval.ms": 200},
    "cooperative-sticky": {
        "partition.assignment.strategy": f"{ASSIGNORS}CooperativeStickyAssignor",
        "heartbeat.interval.ms": 200,
    },
    "consumer": {"group.protocol": "consumer"},
}
BOTH = ("cooperative-sticky", "consumer")
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def join(java: ForeignClient, group: str, topic: str, protocol: str, **settings: object) -> str:
    """A consumer's name; it is a member once it polls."""
    name = new_name("member")
    dotted = {key.replace("_", "."): value for key, value in settings.items()}
    java.ask("open", name=name, settings={"group.id": group, **PROTOCOLS[protocol], **dotted})
    java.ask("subscribe", name=name, topic=topic)
    return name


def wait_shares(java: ForeignClient, members: list[str], sizes: list[int]) -> list[list[int]]:
    shares: list[list[int]] = []
    for _ in until(lambda: [len(share) for share in shares] == sizes, what=f"shares of {sizes}"):
        for member in members:
            java.ask("poll", name=member)
        shares[:] = [java.ask("assignment", name=member) for member in members]
    assert sorted(number for share in shares for number in share) == list(range(sum(sizes)))
    return shares


def values_of(records: list[dict[str, Any]]) -> list[str]:
    return [each["value"] for each in records]


@every_protocol
def test_members_come_and_go_while_messages_flow(
    broker: BrokerProcess, java: ForeignClient, protocol: str, record_property: Callable[[str, object], None]
) -> None:
    topic = new_topic(java, partitions=PARTITIONS)
    settings = {"group.id": new_name("group"), **PROTOCOLS[protocol]}
    happened = come_and_go(broker, topic, lambda name, story: ForeignMember(java, name, topic, story, settings))
    record_property("figure", f"Java, {protocol}: {happened.figures()}")
    if protocol != "range":
        happened.left.check_only_what_moves_is_touched(leaver="cy")
        happened.joined.check_only_what_moves_is_touched()


def test_members_of_two_clients_share_a_group_while_messages_flow(broker: BrokerProcess, java: ForeignClient) -> None:
    topic, group = new_topic(java, partitions=PARTITIONS), new_name("group")

    def join_either(name: str, story: Story) -> Leaver:
        if name in ("ada", "cy"):
            return ForeignMember(java, name, topic, story, {"group.id": group, "group.protocol": "consumer"})
        return Member(broker, name, topic, story, group_id=group, group_protocol="consumer")

    come_and_go(broker, topic, join_either)


@every_protocol
def test_two_members_share_the_partitions_and_one_inherits(java: ForeignClient, protocol: str) -> None:
    topic, group = new_topic(java, partitions=4), new_name("group")
    members = [join(java, group, topic, protocol) for _ in range(2)]
    wait_shares(java, members, [2, 2])
    java.ask("close", name=members[0])
    wait_shares(java, members[1:], [4])
    java.ask("close", name=members[1])


@every_protocol
def test_a_group_goes_on_where_it_stopped(java: ForeignClient, protocol: str) -> None:
    topic, group = new_topic(java), new_name("group")
    produce(java, topic, [{"value": str(number)} for number in range(10)])
    first = join(java, group, topic, protocol)
    java.receive(first, 10)
    java.ask("commit", name=first, offsets=[[topic, 0, 7, "half way"]])
    java.ask("close", name=first)
    second = join(java, group, topic, protocol)
    assert values_of(java.receive(second, 3)) == ["7", "8", "9"]
    assert java.ask("committed", name=second, partitions=[[topic, 0]]) == {f"{topic}-0": [7, "half way"]}
    java.ask("close", name=second)


@every_protocol
def test_a_member_that_leaves_commits_by_itself_where_asked(java: ForeignClient, protocol: str) -> None:
    topic, group = new_topic(java), new_name("group")
    produce(java, topic, [{"value": "a"}, {"value": "b"}])
    first = join(java, group, topic, protocol, enable_auto_commit=True)
    java.receive(first, 2)
    java.ask("close", name=first)
    produce(java, topic, [{"value": "c"}])
    second = join(java, group, topic, protocol)
    assert values_of(java.receive(second, 1)) == ["c"]
    java.ask("close", name=second)


@pytest.mark.parametrize(
    ("protocol", "by_broker"), [("cooperative-sticky", False), ("consumer", False), ("consumer", True)]
)
def test_a_topic_made_later_is_found_by_its_pattern(java: ForeignClient, protocol: str, by_broker: bool) -> None:
    early, name = new_topic(java), new_name("member")
    produce(java, early, [{"value": "early"}])
    settings = {"group.id": new_name("group"), "metadata.max.age.ms": 200, **PROTOCOLS[protocol]}
    java.ask("open", name=name, settings=settings)
    java.ask("subscribe", name=name, pattern=f"{early}(-late)?", by_broker=by_broker)
    assert values_of(java.receive(name, 1)) == ["early"]
    produce(java, f"{early}-late", [{"value": "late"}])
    assert values_of(java.receive(name, 1)) == ["late"]
    java.ask("close", name=name)


@pytest.mark.parametrize("protocol", BOTH)
def test_a_static_member_comes_back_to_its_partitions(java: ForeignClient, protocol: str) -> None:
    topic, group = new_topic(java, partitions=4), new_name("group")
    stays = join(java, group, topic, protocol, group_instance_id="stays")
    goes = join(java, group, topic, protocol, group_instance_id="goes")
    before = wait_shares(java, [stays, goes], [2, 2])
    java.ask("close", name=goes)
    back = join(java, group, topic, protocol, group_instance_id="goes")
    assert wait_shares(java, [stays, back], [2, 2]) == before
    for member in (stays, back):
        java.ask("close", name=member)


@every_protocol
def test_a_group_is_listed_described_and_deleted(java: ForeignClient, protocol: str) -> None:
    topic, group = new_topic(java, partitions=2), new_name("group")
    member = join(java, group, topic, protocol, client_id="reader")
    wait_shares(java, [member], [2])
    kind = "Consumer" if protocol == "consumer" else "Classic"
    assert java.ask("list_groups")[group] == [kind, "Stable", "consumer"]
    seen = java.ask("describe_group", group=group)
    assert (seen["type"], seen["state"]) == (kind, "Stable")
    assert [(client, sorted(numbers)) for client, numbers in seen["members"]] == [("reader", [0, 1])]
    assert seen["assignor"] == {"consumer": "uniform"}.get(protocol, protocol)
    with pytest.raises(Refused, match="GroupNotEmptyException"):
        java.ask("delete_group", group=group)
    java.ask("close", name=member)
    assert java.ask("describe_group", group=group)["state"] == "Empty"
    java.ask("delete_group", group=group)
    assert group not in java.ask("list_groups")
    for verb in ("describe_group", "delete_group"):
        with pytest.raises(Refused, match="GroupIdNotFoundException"):
            java.ask(verb, group=group)


@pytest.mark.parametrize("protocol", BOTH)
def test_an_administrator_moves_and_deletes_the_offsets_of_a_group(java: ForeignClient, protocol: str) -> None:
    topic, group = new_topic(java), new_name("group")
    at = f"{topic}-0"
    produce(java, topic, [{"value": str(number)} for number in range(6)])
    member = join(java, group, topic, protocol)
    java.receive(member, 6)
    java.ask("commit", name=member)
    assert java.ask("group_offsets", group=group) == {at: [6, ""]}
    with pytest.raises(Refused, match="GroupSubscribedToTopicException"):
        java.ask("delete_group_offsets", group=group, partitions=[[topic, 0]])
    with pytest.raises(Refused, match="UnknownMemberIdException"):
        java.ask("alter_group_offsets", group=group, offsets=[[topic, 0, 4]])
    java.ask("close", name=member)
    java.ask("alter_group_offsets", group=group, offsets=[[topic, 0, 4]])
    assert java.ask("group_offsets", group=group) == {at: [4, ""]}
    second = join(java, group, topic, protocol)
    assert values_of(java.receive(second, 2)) == ["4", "5"]
    java.ask("close", name=second)
    java.ask("delete_group_offsets", group=group, partitions=[[topic, 0]])
    assert java.ask("group_offsets", group=group) == {}


def test_an_administrator_removes_all_members(java: ForeignClient) -> None:
    topic, group = new_topic(java, partitions=2), new_name("group")
    member = join(java, group, topic, "range")
    wait_shares(java, [member], [2])
    java.ask("remove_members", group=group)
    assert java.ask("describe_group", group=group)["state"] == "Empty"
    wait_shares(java, [member], [2])
    java.ask("close", name=member)


def test_a_group_moves_from_the_classic_protocol_to_the_new_one(java: ForeignClient) -> None:
    topic, group = new_topic(java, partitions=2), new_name("group")
    produce(java, topic, [{"value": "a", "partition": 0}])
    old = join(java, group, topic, "range")
    java.receive(old, 1)
    java.ask("commit", name=old)
    java.ask("close", name=old)
    produce(java, topic, [{"value": "b", "partition": 0}])
    new = join(java, group, topic, "consumer")
    assert values_of(java.receive(new, 1)) == ["b"]
    assert java.ask("list_groups")[group] == ["Consumer", "Stable", "consumer"]
    java.ask("close", name=new)
