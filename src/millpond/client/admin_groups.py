"""Groups, as an operator looks after them: list, describe, lag, reset, delete.

Each call is one try: admin.py, which drives this, tries again.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, TypeVar

from millpond.client.ages import written_at
from millpond.client.cluster import Cluster
from millpond.client.offsets import EARLIEST, LATEST, offsets_at
from millpond.client.refusals import NEW_COORDINATOR_CODES, refusal
from millpond.model.errors import GroupNotEmpty, GroupNotFound, MalformedMessage, OffsetOutOfRange, WrongUse
from millpond.model.ids import Offset, TopicPartition
from millpond.model.values import dataclass
from millpond.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from millpond.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from millpond.protocol.messages.consumer_protocol import decode_assignment
from millpond.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from millpond.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from millpond.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from millpond.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millpond.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from millpond.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

Target = Literal["earliest", "latest"] | Mapping[str, int] | Mapping[TopicPartition, int]
UNKNOWN_MEMBER_ID: Final = 25
GROUP_ID_NOT_FOUND: Final = 69

Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class MemberInfo:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupListing:
    group: str
    state: str
    protocol: str
    """consumer, share or classic."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group: str
    state: str
    protocol: Literal["consumer", "share", "classic"]
    assignor: str
    members: list[MemberInfo]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    at: TopicPartition
    committed: Offset | None
    """None where a member has the partition, and nothing is committed of it yet."""
    start: Offset
    """What lies before it is gone, and not waited for."""
    end: Offset
    seconds: float | None
    """The age of the oldest message that is not committed; 0 where all are, None where nobody could say."""

    @property
    def messages(self) -> int | None:
        """None where nothing is committed: where a member begins then, only it knows."""
        return None if self.committed is None else max(0, self.end - max(self.committed, self.start))


class Groups:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def _ask(self, group: str, request: Message, response_class: type[Response]) -> Response:
        return await self._cluster.ask_coordinator(group, request, response_class)

    def _check(self, group: str, code: int, reason: str | None = None) -> None:
        if code in NEW_COORDINATOR_CODES:
            self._cluster.forget_coordinator(group)
        if code:
            raise refusal(code, reason, of=f"group {group}")

    async def listed(self) -> dict[str, GroupListing]:
        await self._cluster.refresh()
        found: dict[str, GroupListing] = {}
        for node in list(self._cluster.view.brokers):
            answer = await self._cluster.ask(ListGroupsRequest(), ListGroupsResponse, node=node)
            if answer.error_code:
                raise refusal(answer.error_code, None, of=f"groups of broker {node}")
            for each in answer.groups:
                # A broker that is too old to tell knows one kind only.
                found[each.group_id] = GroupListing(
                    each.group_id, each.group_state, each.group_type.lower() or "classic"
                )
        return dict(sorted(found.items()))

    async def describe(self, group: str) -> GroupDescription:
        answer = await self._ask(group, ConsumerGroupDescribeRequest(group_ids=[group]), ConsumerGroupDescribeResponse)
        (described,) = answer.groups
        if described.error_code == GROUP_ID_NOT_FOUND:
            return await self._describe_share(group) or await self._describe_classic(group)
        self._check(group, described.error_code, described.error_message)
        return GroupDescription(
            group,
            described.group_state,
            "consumer",
            described.assignor_name,
            [
                MemberInfo(
                    each.member_id,
                    each.instance_id,
                    each.client_id,
                    each.client_host,
                    [
                        TopicPartition(topic.topic_name, number)
                        for topic in each.assignment.topic_partitions
                        for number in topic.partitions
                    ],
                )
                for each in described.members
            ],
        )

    async def _describe_share(self, group: str) -> GroupDescription | None:
        answer = await self._ask(group, ShareGroupDescribeRequest(group_ids=[group]), ShareGroupDescribeResponse)
        (described,) = answer.groups
        if described.error_code == GROUP_ID_NOT_FOUND:
            return None
        self._check(group, described.error_code, described.error_message)
        members = [
            MemberInfo(
                each.member_id,
                None,
                each.client_id,
                each.client_host,
                [
                    TopicPartition(topic.topic_name, number)
                    for topic in each.assignment.topic_partitions
                    for number in topic.partitions
                ],
            )
            for each in described.members
        ]
        return GroupDescription(group, described.group_state, "share", described.assignor_name, members)

    async def _describe_classic(self, group: str) -> GroupDescription:
        answer = await self._ask(group, DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse)
        (described,) = answer.groups
        self._check(group, described.error_code, described.error_message)
        if described.group_state == "Dead":
            raise GroupNotFound(f"group {group}: there is no such group")
        return GroupDescription(
            group,
            described.group_state,
            "classic",
            described.protocol_data,
            [
                MemberInfo(
                    each.member_id,
                    each.group_instance_id,
                    each.client_id,
                    each.client_host,
                    _classic(each.member_assignment),
                )
                for each in described.members
            ],
        )

    async def offsets(self, group: str) -> dict[TopicPartition, Offset]:
        return await self._committed(group) or await self._share_offsets(group)

    async def _committed(self, group: str) -> dict[TopicPartition, Offset]:
        asked = OffsetFetchRequestGroup(group_id=group, topics=None)
        request = OffsetFetchRequest(group_id=group, topics=None, groups=[asked])
        answer = await self._ask(group, request, OffsetFetchResponse)
        self._check(group, answer.groups[0].error_code if answer.groups else answer.error_code)
        topics: list[Any] = list(answer.groups[0].topics if answer.groups else answer.topics)
        return {
            TopicPartition(topic.name, part.partition_index): Offset(part.committed_offset)
            for topic in topics
            for part in topic.partitions
            if part.committed_offset >= 0
        }

    async def _share_offsets(self, group: str) -> dict[TopicPartition, Offset]:
        """Where a share group is: the first message of each partition that it is not done with."""
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
        answer = await self._ask(
            group, DescribeShareGroupOffsetsRequest(groups=[asked]), DescribeShareGroupOffsetsResponse
        )
        (found,) = answer.groups
        if found.error_code == GROUP_ID_NOT_FOUND:
            return {}
        self._check(group, found.error_code, found.error_message)
        return {
            TopicPartition(topic.topic_name, part.partition_index): Offset(part.start_offset)
            for topic in found.topics
            for part in topic.partitions
            if not part.error_code and part.start_offset >= 0
        }

    async def lag(self, group: str) -> list[PartitionLag]:
        committed = await self.offsets(group)
        described = await self.describe(group)  # raises where there is no such group
        begun = {at for member in described.members for at in member.assigned} - committed.keys()
        places = sorted({*committed, *begun})
        starts = await offsets_at(self._cluster, dict.fromkeys(places, EARLIEST))
        ends = await offsets_at(self._cluster, dict.fromkeys(places, LATEST))
        unread = {at: max(offset, starts[at]) for at, offset in committed.items()}
        behind = {at: offset for at, offset in unread.items() if offset < ends[at]}
        written = await written_at(self._cluster, behind)
        now_ms = self._cluster.settings.wall_ms()

        def seconds(at: TopicPartition) -> float | None:
            if at not in behind:
                return 0.0 if at in committed else None
            return max(0, now_ms - written[at]) / 1000 if at in written else None

        return [PartitionLag(at, committed.get(at), starts[at], ends[at], seconds(at)) for at in places]

    async def reset(
        self, group: str, to: Target, *, topics: Collection[str] | None, dry_run: bool
    ) -> dict[TopicPartition, Offset]:
        wanted = await self._wanted(group, to, topics)
        if not dry_run and wanted:
            move = self._move_share if await self._describe_share(group) is not None else self._commit
            await move(group, wanted)
        return wanted

    async def _wanted(self, group: str, to: Target, topics: Collection[str] | None) -> dict[TopicPartition, Offset]:
        committed = await self.offsets(group)
        if topics is None:
            places = list(committed)
        else:
            found = [await self._cluster.topic(name) for name in topics]
            places = [TopicPartition(each.name, number) for each in found for number in range(len(each.partitions))]
        if not isinstance(to, str) and to and all(isinstance(key, TopicPartition) for key in to):
            named = {at: Offset(offset) for at, offset in to.items() if isinstance(at, TopicPartition)}
            return await self._within(named)
        if not places:
            raise WrongUse(f"group {group} has committed nothing; say with topics which partitions are meant")
        match to:
            case "earliest":
                return await offsets_at(self._cluster, dict.fromkeys(places, EARLIEST))
            case "latest":
                return await offsets_at(self._cluster, dict.fromkeys(places, LATEST))
            case {"timestamp": int(moment)}:
                return await offsets_at(self._cluster, dict.fromkeys(places, max(0, moment)))
            case {"shift": int(step)}:
                return await self._shifted(places, committed, step)
        raise WrongUse(
            f"to is {to!r}; it is 'earliest', 'latest', {{'timestamp': milliseconds}}, {{'shift': messages}}, or "
            "offsets by partition"
        )

    async def _shifted(
        self, places: Collection[TopicPartition], committed: Mapping[TopicPartition, Offset], step: int
    ) -> dict[TopicPartition, Offset]:
        """Never beyond what is there."""
        starts = await offsets_at(self._cluster, dict.fromkeys(places, EARLIEST))
        ends = await offsets_at(self._cluster, dict.fromkeys(places, LATEST))
        return {at: Offset(min(max(committed.get(at, starts[at]) + step, starts[at]), ends[at])) for at in places}

    async def _within(self, wanted: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
        """A group that is moved behind the end would seem to have read all, and lose its place at its next fetch."""
        starts = await offsets_at(self._cluster, dict.fromkeys(wanted, EARLIEST))
        ends = await offsets_at(self._cluster, dict.fromkeys(wanted, LATEST))
        for at, offset in wanted.items():
            if not starts[at] <= offset <= ends[at]:
                raise OffsetOutOfRange(f"offset {offset} is not in {at}, which has {starts[at]} to {ends[at]}")
        return dict(wanted)

    async def _move_share(self, group: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
        for at, offset in offsets.items():
            wish = AlterShareGroupOffsetsRequestPartition(partition_index=at.partition, start_offset=offset)
            topics.setdefault(at.topic, []).append(wish)
        request = AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[
                AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=each) for name, each in topics.items()
            ],
        )
        answer = await self._ask(group, request, AlterShareGroupOffsetsResponse)
        self._check(group, answer.error_code, answer.error_message)
        for topic in answer.responses:
            for part in topic.partitions:
                self._check(group, part.error_code, part.error_message)

    async def _commit(self, group: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for at, offset in offsets.items():
            wish = OffsetCommitRequestPartition(
                partition_index=at.partition, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(at.topic, []).append(wish)
        request = OffsetCommitRequest(
            group_id=group,
            topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        answer = await self._ask(group, request, OffsetCommitResponse)
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code == UNKNOWN_MEMBER_ID:
                    raise GroupNotEmpty(f"group {group} has members; stop them before its offsets are reset")
                self._check(group, part.error_code)

    async def delete(self, group: str) -> None:
        answer = await self._ask(group, DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse)
        for each in answer.results:
            self._check(group, each.error_code)


def _classic(data: bytes) -> list[TopicPartition]:
    """What the leader of a classic group assigned; nothing where it speaks a protocol of its own."""
    try:
        assignment = decode_assignment(data)
    except MalformedMessage:
        return []
    return [TopicPartition(each.topic, number) for each in assignment.assigned_partitions for number in each.partitions]
