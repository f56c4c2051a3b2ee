"""Groups of the classic protocol: joined, synced, left and described, in every state, and by the wrong people."""

from typing import Any

from millpond.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from millpond.protocol.messages.delete_groups import DeleteGroupsRequest
from millpond.protocol.messages.describe_groups import DescribeGroupsRequest
from millpond.protocol.messages.find_coordinator import FindCoordinatorRequest
from millpond.protocol.messages.heartbeat import HeartbeatRequest
from millpond.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millpond.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from millpond.protocol.messages.list_groups import ListGroupsRequest
from millpond.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millpond.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from millpond.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from millpond.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.interop.beside_kafka.sides import Side

MEMBER_ID_REQUIRED = 79
MEMBERS_MAX = 3
"""As both brokers are told."""


def subscription(*topics: str) -> bytes:
    return encode_subscription(ConsumerProtocolSubscription(topics=list(topics)), 1)


def join_request(group: str, member: str = "", *assignors: str, topic: str = "t", **how: Any) -> JoinGroupRequest:  # noqa: ANN401
    protocols = [JoinGroupRequestProtocol(name=each, metadata=subscription(topic)) for each in assignors or ("range",)]
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type="consumer",
        protocols=protocols,
    )
    for field, value in how.items():
        setattr(request, field, value)
    return request


def join(side: Side, label: str, group: str, *assignors: str, who: str = "", **how: Any) -> str:  # noqa: ANN401
    """Returns the member's id; alone in its group, it leads."""
    first = side.ask("", join_request(group, "", *assignors, **how), who=who)
    member: str = first.member_id
    if first.error_code == MEMBER_ID_REQUIRED:
        side.ask(label, join_request(group, member, *assignors, **how), who=who)
    else:
        side.write(label, first)
    return member


def sync(group: str, member: str, generation: int, **how: Any) -> SyncGroupRequest:  # noqa: ANN401
    given = [SyncGroupRequestAssignment(member_id=each, assignment=b"mine") for each in how.pop("given", ())]
    fields = {"protocol_type": "consumer", "protocol_name": "range", **how}
    return SyncGroupRequest(group_id=group, generation_id=generation, member_id=member, assignments=given, **fields)


def beat(group: str, member: str, generation: int, **how: Any) -> HeartbeatRequest:  # noqa: ANN401
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, **how)


def joining(side: Side) -> None:
    group = side.new_name()
    side.ask("without an id", join_request(side.new_name()))
    side.ask("without an id, version 3", join_request(side.new_name()), 3)
    side.ask("an id nobody gave out", join_request(side.new_name(), "stranger"))
    side.ask("no group", join_request(""))
    side.ask("session too short", join_request(group, session_timeout_ms=10))
    side.ask("session too long", join_request(group, session_timeout_ms=2_000_000_000))
    side.ask("no protocols", join_request(group, protocols=[]))
    side.ask("no protocol type", join_request(group, protocol_type=""))
    side.ask("negative rebalance timeout", join_request(side.new_name(), rebalance_timeout_ms=-5))
    member = join(side, "first", group, "range", "roundrobin")
    side.ask("another protocol", join_request(group, "", "sticky"))
    side.ask("another protocol type", join_request(group, protocol_type="connect"))
    side.ask("an unknown id, group in use", join_request(group, "stranger"))
    side.ask("heartbeat before syncing", beat(group, member, 1))
    side.ask("sync", sync(group, member, 1, given=[member]))
    side.ask("sync again", sync(group, member, 1))
    side.ask("sync, older generation", sync(group, member, 0))
    side.ask("sync, newer generation", sync(group, member, 2))
    side.ask("sync, stranger", sync(group, "stranger", 1))
    side.ask("sync, other protocol", sync(group, member, 1, protocol_name="sticky"))
    side.ask("sync, other type", sync(group, member, 1, protocol_type="connect"))
    side.ask("sync, no type", sync(group, member, 1, protocol_type=None, protocol_name=None))
    side.ask("sync, no group", sync("", member, 1))
    side.ask("sync, unknown group", sync(side.new_name(), member, 1))
    for label, name, who, generation in (
        ("in order", group, member, 1),
        ("older", group, member, 0),
        ("newer", group, member, 2),
        ("stranger", group, "stranger", 1),
        ("no member", group, "", 1),
        ("unknown group", "no-such-group", member, 1),
        ("no group", "", member, 1),
    ):
        side.ask(f"heartbeat, {label}", beat(name, who, generation))
    side.ask("heartbeat, instance", beat(group, member, 1, group_instance_id="i"))
    side.ask("leader joins again", join_request(group, member, "range", "roundrobin"))
    side.ask("and again before syncing", join_request(group, member, "range", "roundrobin"))
    side.ask("then the old generation syncs", sync(group, member, 1))
    side.ask("describe before syncing", DescribeGroupsRequest(groups=[group]))
    leave(side, "leave, stranger", group, "stranger")
    leave(side, "leave", group, member)
    leave(side, "leave again", group, member)
    side.ask("heartbeat after leaving", beat(group, member, 2))
    side.ask("join with the old id", join_request(group, member))
    side.ask("describe when empty", DescribeGroupsRequest(groups=[group]))


def leave(side: Side, label: str, group: str, *members: str, instance: str | None = None) -> None:
    leaving = [MemberIdentity(member_id=each, group_instance_id=instance) for each in members]
    side.ask(label, LeaveGroupRequest(group_id=group, members=leaving))


def rebalancing(side: Side) -> None:
    group, topic = side.new_name(), side.new_name()
    side.create(topic)
    first = join(side, "first", group, who="a", topic=topic)
    side.ask("first syncs", sync(group, first, 1, given=[first]), who="a")
    second = side.ask("second", join_request(group, topic=topic), who="b").member_id
    side.ask("first is not told yet", beat(group, first, 1), who="a")
    side.send(join_request(group, second, topic=topic), who="b")
    side.ask("", DescribeGroupsRequest(groups=["x"]), who="c")
    while side.peer("c").ask(DescribeGroupsRequest(groups=[group]), 5).groups[0].group_state == "Stable":
        pass
    side.ask("first is told", beat(group, first, 1), who="a")
    side.ask("commit meanwhile", commit(group, first, 1, topic=topic), who="a")
    side.ask("sync meanwhile", sync(group, first, 1), who="a")
    side.ask("describe meanwhile", DescribeGroupsRequest(groups=[group]), who="c")
    side.ask("offset deletion meanwhile", delete_offsets(group, topic), who="c")
    side.ask("first joins again", join_request(group, first, topic=topic), who="a")
    side.receive("second is in", join_request(group, topic=topic), who="b")
    side.ask("commit before syncing", commit(group, first, 2, topic=topic), who="a")
    side.ask("heartbeat before syncing", beat(group, first, 2), who="a")
    side.send(sync(group, second, 2), who="b")
    side.ask("first syncs again", sync(group, first, 2, given=[first, second]), who="a")
    side.receive("second syncs", sync(group, second, 2), who="b")
    side.ask("follower joins again", join_request(group, second, topic=topic), who="b")
    third = side.ask("", join_request(group, topic=topic), who="c").member_id
    side.ask("a third is only promised", DescribeGroupsRequest(groups=[group]), who="d")
    side.ask("a fourth is too many", join_request(group, topic=topic), who="d")
    leave(side, "the promised one leaves", group, third)
    leave(side, "both leave", group, first, second)
    side.ask("nobody is left", DescribeGroupsRequest(groups=[group]))


def static_members(side: Side) -> None:
    group, topic = side.new_name(), side.new_name()
    side.create(topic)
    first = side.ask("a static member", join_request(group, group_instance_id="i")).member_id
    side.ask("syncs", sync(group, first, 1, given=[first], group_instance_id="i"))
    again = side.ask("comes back without an id", join_request(group, group_instance_id="i")).member_id
    side.ask("the old one beats", beat(group, first, 1, group_instance_id="i"))
    side.ask("the old one without its name", beat(group, first, 1))
    side.ask("the old one joins", join_request(group, first, group_instance_id="i"))
    side.ask("the old one syncs", sync(group, first, 1, group_instance_id="i"))
    side.ask("the old one commits", commit(group, first, 1, topic=topic, group_instance_id="i"))
    side.ask("the new one syncs", sync(group, again, 1, group_instance_id="i"))
    side.ask("the new one beats", beat(group, again, 1, group_instance_id="i"))
    side.ask("unknown name", beat(group, again, 1, group_instance_id="j"))
    changed = side.ask("comes back with another topic", join_request(group, group_instance_id="i", topic="u")).member_id
    side.ask("describe", DescribeGroupsRequest(groups=[group]))
    leave(side, "leave by an unknown name", group, "", instance="j")
    leave(side, "leave by name and a wrong id", group, "stranger", instance="i")
    leave(side, "leave by name", group, "", instance="i")
    side.ask("after it left", beat(group, changed, 1, group_instance_id="i"))
    side.ask("joins with an id never met", join_request(group, "stranger", group_instance_id="i"))


def commit(group: str, member: str = "", generation: int = -1, *, topic: str = "t", **how: Any) -> OffsetCommitRequest:  # noqa: ANN401
    part = OffsetCommitRequestPartition(
        partition_index=how.pop("partition", 0),
        committed_offset=how.pop("offset", 5),
        committed_metadata=how.pop("metadata", "note"),
    )
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[part])]
    return OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=topics, **how
    )


def delete_offsets(group: str, *topics: str, partition: int = 0) -> OffsetDeleteRequest:
    parts = [OffsetDeleteRequestPartition(partition_index=partition)]
    return OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=each, partitions=parts) for each in topics]
    )


def fetch_offsets(
    group: str,
    topics: list[str] | None,
    version: int,
    **who: Any,  # noqa: ANN401
) -> OffsetFetchRequest:
    """To version 7 of one group, since then of several."""
    if version < 8:
        asked = None if topics is None else [OffsetFetchRequestTopic(name=e, partition_indexes=[0, 7]) for e in topics]
        return OffsetFetchRequest(group_id=group, topics=asked)
    wanted = None if topics is None else [OffsetFetchRequestTopics(name=e, partition_indexes=[0, 7]) for e in topics]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted, **who)])


def committing(side: Side) -> None:
    topic = side.new_name()
    side.create(topic, partitions=2)
    group, busy = side.new_name(), side.new_name()

    def put(label: str, request: OffsetCommitRequest, version: int = 9) -> None:
        side.ask(label, request, version)

    def get(label: str, name: str, topics: list[str] | None, version: int = 9, **who: Any) -> None:  # noqa: ANN401
        side.ask(label, fetch_offsets(name, topics, version, **who), version)

    get("fetch, unknown group", side.new_name(), [topic])
    get("fetch all, unknown group", side.new_name(), None)
    get("fetch, unknown group, old", side.new_name(), [topic], 5)
    get("fetch, no group", "", [topic])
    get("fetch, unknown group by a member", side.new_name(), [topic], member_id="m", member_epoch=3)
    put("no members", commit(group, topic=topic))
    put("no members, a generation", commit(group, "", 3, topic=topic))
    put("no members, a member", commit(group, "stranger", 1, topic=topic))
    put("unknown group, a member", commit(side.new_name(), "stranger", 1, topic=topic))
    put("unknown group, a member without a generation", commit(side.new_name(), "stranger", -1, topic=topic))
    put("no group", commit("", topic=topic))
    put("unknown topic", commit(group, topic="no-such"))
    put("unknown partition", commit(group, topic=topic, partition=9))
    put("negative offset", commit(group, topic=topic, offset=-1))
    put("long note", commit(group, topic=topic, metadata="x" * 5000))
    put("null note", commit(group, topic=topic, metadata=None))
    put("version 2", commit(group, topic=topic), 2)
    put("instance", commit(group, topic=topic, group_instance_id="i"))
    get("fetch", group, [topic])
    get("fetch all", group, None)
    get("fetch unknown topic", group, ["no-such"])
    get("fetch, version 1", group, [topic], 1)
    get("fetch all, version 2", group, None, 2)
    get("fetch as a stranger", group, [topic], member_id="m", member_epoch=3)
    put("negative offset again", commit(group, topic=topic, offset=-1))
    get("fetch after a negative offset", group, [topic])
    member = join(side, "", busy, topic=topic)
    put("before syncing", commit(busy, member, 1, topic=topic))
    side.ask("", sync(busy, member, 1, given=[member]))
    put("in order", commit(busy, member, 1, topic=topic))
    put("older", commit(busy, member, 0, topic=topic))
    put("newer", commit(busy, member, 2, topic=topic))
    put("stranger", commit(busy, "stranger", 1, topic=topic))
    put("nobody while somebody is there", commit(busy, "", -1, topic=topic))
    put("member without a generation", commit(busy, member, -1, topic=topic))
    side.ask("delete what is read", delete_offsets(busy, topic, "other"))
    side.ask("delete", delete_offsets(group, topic))
    side.ask("delete again", delete_offsets(group, topic))
    side.ask("delete, unknown partition", delete_offsets(group, topic, partition=9))
    side.ask("delete, unknown topic", delete_offsets(group, "no-such"))
    side.ask("delete, unknown group", delete_offsets(side.new_name(), topic))
    side.ask("delete, no group", delete_offsets("", topic))


def administering(side: Side) -> None:
    topic = side.new_name()
    side.create(topic)
    empty, busy, other = side.new_name(), side.new_name(), side.new_name()
    side.ask("", commit(empty, topic=topic), 9)
    member = join(side, "", busy, topic=topic)
    side.ask("", sync(busy, member, 1, given=[member]))
    lasting = join(side, "", other, topic=topic)
    # Kafka lists what its log has kept, and lets a member in before that.
    while all(each.group_id != other for each in side.ask("", ListGroupsRequest()).groups):
        pass

    def listed(label: str, **how: Any) -> None:  # noqa: ANN401
        answer = side.ask("", ListGroupsRequest(**how))
        mine = sorted(
            (each for each in answer.groups if each.group_id in (empty, busy, other)), key=lambda e: e.group_id
        )
        side.write(label, [answer.error_code, mine])

    listed("all")
    listed("stable", states_filter=["stable"])
    listed("empty or preparing", states_filter=["Empty", "PreparingRebalance"])
    listed("a state nobody knows", states_filter=["nonsense"])
    listed("classic", types_filter=["classic"])
    listed("consumer", types_filter=["Consumer"])
    listed("a type nobody knows", types_filter=["nonsense"])
    for version in (4, 5, 6):
        asked = DescribeGroupsRequest(groups=[empty, busy, other, "no-such", ""])
        side.ask(f"describe, version {version}", asked, version)
    allowed = DescribeGroupsRequest(groups=[empty], include_authorized_operations=True)
    side.ask("describe, what is allowed", allowed)
    side.ask("delete", DeleteGroupsRequest(groups_names=[empty, busy, "no-such", ""]))
    side.ask("delete twice", DeleteGroupsRequest(groups_names=[busy, busy]))
    leave(side, "leave", busy, member)
    side.ask("delete when empty", DeleteGroupsRequest(groups_names=[busy]))
    side.ask("describe the deleted", DescribeGroupsRequest(groups=[busy]), 5)
    leave(side, "leave unsynced", other, lasting)
    leave(side, "leave an unknown group", "no-such", lasting)
    leave(side, "leave no group", "", lasting)
    leave(side, "nobody leaves", other)
    for kind in (0, 1, 2, 9):
        answer = side.ask("", FindCoordinatorRequest(key_type=kind, coordinator_keys=[busy, ""]))
        codes = "closed" if answer is None else [each.error_code for each in answer.coordinators]
        side.write(f"coordinator of kind {kind}", codes)
    answer = side.ask("", FindCoordinatorRequest(key="", key_type=0), 3)
    side.write("coordinator, old, no key", answer.error_code)


SCENES = {
    "join group": joining,
    "rebalance": rebalancing,
    "static members": static_members,
    "commit": committing,
    "administer groups": administering,
}
