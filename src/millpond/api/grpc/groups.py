"""The Groups service: list, describe, lag, reset, delete. Any broker asks the group's coordinator."""

from millpond.api.anywhere.refusals import wrong
from millpond.api.grpc.calls import Calls
from millpond.api.grpc.failures import Context
from millpond.api.grpc.proto.millpond.v1 import groups_pb2 as wire
from millpond.api.grpc.proto.millpond.v1 import messages_pb2
from millpond.api.grpc.proto.millpond.v1.groups_pb2_grpc import GroupsServicer
from millpond.client.admin_groups import Target
from millpond.model.errors import GroupNotFound
from millpond.model.ids import TopicPartition


class Groups(GroupsServicer):
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def ListGroups(  # noqa: N802
        self, request: wire.ListGroupsRequest, context: Context
    ) -> wire.ListGroupsResponse:
        async with self._calls.answering(context):
            found = await self._calls.neighbours.ask_groups(lambda groups: groups.listed())
            summaries = [
                wire.GroupSummary(group=each.group, state=each.state, protocol=each.protocol) for each in found.values()
            ]
            return wire.ListGroupsResponse(groups=summaries)

    async def DescribeGroup(self, request: wire.DescribeGroupRequest, context: Context) -> wire.Group:  # noqa: N802
        async with self._calls.answering(context):
            group = _named(request.group)
            found = await self._calls.neighbours.ask_groups(lambda groups: groups.describe(group))
            members = [
                wire.GroupMember(
                    member_id=each.member_id,
                    instance_id=each.instance_id,
                    client_id=each.client_id,
                    host=each.host,
                    assigned=[messages_pb2.Partition(topic=at.topic, partition=at.partition) for at in each.assigned],
                )
                for each in found.members
            ]
            return wire.Group(
                group=found.group, state=found.state, protocol=found.protocol, assignor=found.assignor, members=members
            )

    async def GetLag(self, request: wire.GetLagRequest, context: Context) -> wire.GroupLag:  # noqa: N802
        async with self._calls.answering(context):
            group = _named(request.group)
            found = await self._calls.neighbours.ask_groups(lambda groups: groups.lag(group))
            known = [each.seconds for each in found if each.seconds is not None]
            return wire.GroupLag(
                messages=sum(each.messages or 0 for each in found),
                seconds=max(known, default=None if found else 0.0),
                partitions=[
                    wire.PartitionLag(
                        topic=each.at.topic,
                        partition=each.at.partition,
                        committed_offset=each.committed,
                        end_offset=each.end,
                        messages=each.messages,
                        seconds=each.seconds,
                    )
                    for each in found
                ],
            )

    async def ResetOffsets(  # noqa: N802
        self, request: wire.ResetOffsetsRequest, context: Context
    ) -> wire.ResetOffsetsResponse:
        async with self._calls.answering(context):
            group, target = _named(request.group), _target(request)
            if request.WhichOneof("to") == "offsets":
                for each in request.offsets.offsets:
                    self._calls.reading.check(TopicPartition(each.topic, each.partition))
            for topic in request.topics:
                self._calls.reading.check(TopicPartition(topic, 0))
            offsets = await self._calls.neighbours.ask_groups(
                lambda groups: groups.reset(group, target, topics=request.topics or None, dry_run=request.dry_run)
            )
            return wire.ResetOffsetsResponse(
                offsets=[
                    messages_pb2.Committed(topic=at.topic, partition=at.partition, offset=offset)
                    for at, offset in sorted(offsets.items())
                ]
            )

    async def DeleteGroup(  # noqa: N802
        self, request: wire.DeleteGroupRequest, context: Context
    ) -> wire.DeleteGroupResponse:
        async with self._calls.answering(context):
            group = _named(request.group)
            await self._calls.neighbours.ask_groups(lambda groups: groups.delete(group))
            return wire.DeleteGroupResponse()


def _named(group: str) -> str:
    if not group:
        raise GroupNotFound("the group has no name; give it one")
    return group


def _target(request: wire.ResetOffsetsRequest) -> Target:
    match request.WhichOneof("to"):
        case "earliest" if request.earliest:
            return "earliest"
        case "latest" if request.latest:
            return "latest"
        case "timestamp_ms" if request.timestamp_ms >= 0:
            return {"timestamp": request.timestamp_ms}
        case "shift":
            return {"shift": request.shift}
        case "offsets" if request.offsets.offsets:
            for each in request.offsets.offsets:
                if each.offset < 0 or each.partition < 0:
                    raise wrong(
                        "offsets", f"offsets has {each.topic}-{each.partition} at {each.offset}; both are at least 0"
                    )
            return {TopicPartition(each.topic, each.partition): each.offset for each in request.offsets.offsets}
    raise wrong(
        "to", "where to is not said; give earliest, latest, a timestamp_ms of at least 0, a shift, or some offsets"
    )
