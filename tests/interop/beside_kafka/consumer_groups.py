"""Groups of the consumer protocol (KIP-848): heartbeats in and out of order, and groups of the other kind."""

from typing import Any

from millpond.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from millpond.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from millpond.protocol.messages.delete_groups import DeleteGroupsRequest
from millpond.protocol.messages.describe_groups import DescribeGroupsRequest
from millpond.protocol.messages.list_groups import ListGroupsRequest
from tests.interop.beside_kafka.classic_groups import beat, commit, delete_offsets, join, join_request, leave, sync
from tests.interop.beside_kafka.sides import Side

FIRST, SECOND = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def heartbeat(group: str, member: str, epoch: int, **how: Any) -> ConsumerGroupHeartbeatRequest:  # noqa: ANN401
    names = {"topics": "subscribed_topic_names", "regex": "subscribed_topic_regex", "owned": "topic_partitions"}
    fields = {names.get(key, key): value for key, value in how.items()}
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **fields)


def joins(group: str, member: str, *topics: str, **how: Any) -> ConsumerGroupHeartbeatRequest:  # noqa: ANN401
    return heartbeat(group, member, 0, topics=list(topics), rebalance_timeout_ms=30_000, owned=[], **how)


def owned(topic_id: bytes, *partitions: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic_id, partitions=list(partitions))]


def wrong_requests(side: Side) -> None:
    topic = side.new_name()
    side.create(topic)
    group = side.new_name()
    side.ask("no group", joins("", FIRST, topic))
    side.ask("no member", joins(group, "", topic))
    side.ask("no member, version 0", joins(side.new_name(), "", topic), 0)
    side.ask("no subscription", heartbeat(group, FIRST, 0, rebalance_timeout_ms=1000, owned=[]))
    side.ask("empty subscription", joins(side.new_name(), FIRST))
    side.ask("no timeout", heartbeat(group, FIRST, 0, topics=[topic], owned=[]))
    side.ask("no partitions", heartbeat(side.new_name(), FIRST, 0, topics=[topic], rebalance_timeout_ms=1000))
    taken = heartbeat(group, FIRST, 0, topics=[topic], rebalance_timeout_ms=1000, owned=owned(b"\1" * 16, 0))
    side.ask("joins with partitions", taken)
    side.ask("an assignor nobody knows", joins(group, FIRST, topic, server_assignor="nobody"))
    side.ask("no instance", joins(group, FIRST, topic, instance_id=""))
    side.ask("no rack", joins(side.new_name(), FIRST, topic, rack_id=""))
    side.ask("epoch -3", heartbeat(group, FIRST, -3))
    side.ask("epoch -2 without an instance", heartbeat(group, FIRST, -2))
    side.ask("epoch -1, unknown group", heartbeat(group, FIRST, -1))
    side.ask("epoch 5, unknown group", heartbeat(group, FIRST, 5))
    side.ask("bad pattern", joins(group, FIRST, regex="("))
    side.ask("empty pattern", joins(side.new_name(), FIRST, topic, regex=""))
    only = heartbeat(side.new_name(), FIRST, 0, regex=f"{topic}.*", rebalance_timeout_ms=1000, owned=[])
    side.ask("pattern only", only)
    side.ask("an unknown topic", joins(side.new_name(), FIRST, "no-such"))
    side.ask("a bad topic", joins(side.new_name(), FIRST, "no topic!"))
    side.ask("an empty topic", joins(side.new_name(), FIRST, ""))


def life(side: Side) -> None:
    topic = side.new_name()
    topic_id = side.create(topic, partitions=2)
    group = side.new_name()
    side.ask("first joins", joins(group, FIRST, topic))
    side.ask("first beats", heartbeat(group, FIRST, 1))
    side.ask("first owns", heartbeat(group, FIRST, 1, owned=owned(topic_id, 0, 1)))
    side.ask("first says all", heartbeat(group, FIRST, 1, topics=[topic], rebalance_timeout_ms=30_000, owned=[]))
    side.ask("epoch ahead", heartbeat(group, FIRST, 9))
    side.ask("stranger", heartbeat(group, SECOND, 1))
    side.ask("stranger leaves", heartbeat(group, SECOND, -1))
    side.ask("second joins", joins(group, SECOND, topic))
    side.ask("second beats", heartbeat(group, SECOND, 2))
    side.ask("describe meanwhile", ConsumerGroupDescribeRequest(group_ids=[group]))
    side.ask("first is told", heartbeat(group, FIRST, 1, owned=owned(topic_id, 0, 1)))
    side.ask("first beats again", heartbeat(group, FIRST, 1, owned=owned(topic_id, 0, 1)))
    side.ask("commit, epoch 1", commit(group, FIRST, 1, topic=topic), 9)
    side.ask("commit, epoch 0", commit(group, FIRST, 0, topic=topic), 9)
    side.ask("commit, epoch 2", commit(group, FIRST, 2, topic=topic), 9)
    side.ask("commit, stale, version 8", commit(group, FIRST, 0, topic=topic), 8)
    side.ask("commit, stranger", commit(group, "stranger", 1, topic=topic), 9)
    side.ask("commit, nobody", commit(group, "", -1, topic=topic), 9)
    side.ask("describe", ConsumerGroupDescribeRequest(group_ids=[group, "no-such", ""]))
    side.ask("describe as a classic one", DescribeGroupsRequest(groups=[group]))
    side.ask("describe as a classic one, old", DescribeGroupsRequest(groups=[group]), 5)
    side.ask("delete", DeleteGroupsRequest(groups_names=[group]))
    side.ask("delete offsets that are read", delete_offsets(group, topic, "other"))
    side.ask("a classic member joins", join_request(group, topic=topic))
    side.ask("a classic heartbeat", beat(group, FIRST, 1))
    side.ask("a classic sync", sync(group, FIRST, 1))
    listed = side.ask("", ListGroupsRequest(types_filter=["consumer"])).groups
    side.write("listed", [each for each in listed if each.group_id == group])
    side.ask("second joins anew", joins(group, SECOND, topic))
    side.ask("second leaves", heartbeat(group, SECOND, -1))
    side.ask("second leaves again", heartbeat(group, SECOND, -1))
    side.ask("first leaves", heartbeat(group, FIRST, -1))
    side.ask("nobody is left", ConsumerGroupDescribeRequest(group_ids=[group]))
    side.ask("commit when empty", commit(group, "", -1, topic=topic), 9)
    side.ask("delete when empty", DeleteGroupsRequest(groups_names=[group]))
    side.ask("describe the deleted", ConsumerGroupDescribeRequest(group_ids=[group]))


def crowds(side: Side) -> None:
    topic = side.new_name()
    side.create(topic, partitions=2)
    group = side.new_name()
    for number in range(4):
        side.ask(f"member {number}", joins(group, f"AAAAAAAAAAAAAAAAAAAA{number}A", topic))
    classic = side.new_name()
    member = join(side, "a classic group", classic, "nothing-known", topic=topic, protocol_type="connect")
    side.ask("", sync(classic, member, 1, given=[member], protocol_type="connect", protocol_name="nothing-known"))
    side.ask("joins a group that is no consumers'", joins(classic, FIRST, topic))
    side.ask("beats there", heartbeat(classic, FIRST, 3))
    side.ask("describes it", ConsumerGroupDescribeRequest(group_ids=[classic]))
    leave(side, "the classic member leaves", classic, member)
    side.ask("joins when it is empty", joins(classic, FIRST, topic))


def static_members(side: Side) -> None:
    topic = side.new_name()
    topic_id = side.create(topic, partitions=2)
    group = side.new_name()
    third = "AAAAAAAAAAAAAAAAAAAAAw"
    side.ask("joins", joins(group, FIRST, topic, instance_id="i"))
    side.ask("another of the name", joins(group, SECOND, topic, instance_id="i"))
    side.ask("beats under another name", heartbeat(group, FIRST, 1, instance_id="j"))
    side.ask("beats without its name", heartbeat(group, FIRST, 1))
    side.ask("another beats under the name", heartbeat(group, SECOND, 1, instance_id="i"))
    side.ask("goes for a while, by another", heartbeat(group, SECOND, -2, instance_id="i"))
    side.ask("goes for a while", heartbeat(group, FIRST, -2, instance_id="i"))
    side.ask("beats though away", heartbeat(group, FIRST, 1, instance_id="i"))
    side.ask("describe while away", ConsumerGroupDescribeRequest(group_ids=[group]))
    side.ask("delete while away", DeleteGroupsRequest(groups_names=[group]))
    side.ask("comes back", joins(group, SECOND, topic, instance_id="i"))
    side.ask("the old one beats", heartbeat(group, FIRST, 1, instance_id="i"))
    side.ask("owns", heartbeat(group, SECOND, 1, owned=owned(topic_id, 0, 1), instance_id="i"))
    side.ask("joins again itself", joins(group, SECOND, topic, instance_id="i"))
    side.ask("leaves", heartbeat(group, SECOND, -1, instance_id="i"))
    side.ask("another takes the name", joins(group, third, topic, instance_id="i"))


SCENES = {
    "consumer heartbeats that are wrong": wrong_requests,
    "consumer groups": life,
    "consumer groups beside classic ones": crowds,
    "static members of consumer groups": static_members,
}
