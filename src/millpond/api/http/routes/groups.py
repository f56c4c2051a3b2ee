"""/api/v1/groups: list, describe, lag in messages and in seconds, settings, reset offsets, delete."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from millpond.api.anywhere.reading import Place
from millpond.api.anywhere.refusals import Refusal
from millpond.api.http.forms import Offset, Partition, Timestamp, TopicName
from millpond.api.http.problems import Blames
from millpond.api.http.routes.topics import Alteration, ConfigInfo, alter_settings
from millpond.api.http.routing import Call, Route
from millpond.api.http.services import Services
from millpond.client.admin_groups import GroupDescription, PartitionLag, Target
from millpond.core.metadata.alterations import OfGroup
from millpond.core.metadata.broker_configs import layers
from millpond.core.metadata.configs import describe_group as describe_settings
from millpond.model.errors import GroupNotEmpty, GroupNotFound, InvalidSetting, MillpondError, OffsetOutOfRange
from millpond.model.ids import TopicPartition

LOOK_UPS_MAX: Final = 1_000
"""Of one question for lag: so many partitions are asked for the time of a message."""


class GroupSummary(Struct):
    group: str
    protocol: str
    """consumer or classic; share, where it is a queue's."""
    state: str


class GroupList(Struct):
    groups: list[GroupSummary]


class PartitionName(Struct, forbid_unknown_fields=True):
    topic: TopicName
    partition: Partition


class OffsetOf(PartitionName):
    offset: Offset


class MemberInfo(Struct):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned_partitions: list[PartitionName]


class GroupInfo(Struct):
    group: str
    state: str
    protocol: str
    assignor: str
    members: list[MemberInfo]


class LagOf(Struct):
    topic: str
    partition: int
    committed_offset: int | None
    """Null where a member has the partition, and nothing is committed of it yet; then nobody can say how far it is."""
    end_offset: int
    messages: int | None
    seconds: float | None
    """How long ago the next message was written; null where that could not be found out."""


class GroupLag(Struct):
    group: str
    messages: int
    """Of all partitions together of which something is committed."""
    seconds: float | None
    """Of the partition that is furthest behind."""
    partitions: list[LagOf]


class Reset(Struct, forbid_unknown_fields=True):
    to: Literal["earliest", "latest", "timestamp", "shift", "offsets"]
    timestamp: Timestamp | None = None
    """With `to` of timestamp: the first messages that are not older."""
    shift: Annotated[int, Meta(ge=-(2**53), le=2**53)] | None = None
    """With `to` of shift: so many messages on, or back."""
    offsets: list[OffsetOf] | None = None
    """With `to` of offsets."""
    topics: list[TopicName] | None = None
    """Those the group has committed offsets of, where it is left out."""
    dry_run: bool = False
    """Only says what would be."""


class Offsets(Struct):
    offsets: list[OffsetOf]


class DeletedGroup(Struct):
    deleted: str


class GroupSettings(Struct):
    group: str
    configs: dict[str, ConfigInfo]


async def list_groups(call: Call) -> GroupList:
    found = await call.services.neighbours.ask_groups(lambda groups: groups.listed())
    return GroupList([GroupSummary(each.group, each.protocol, each.state) for each in found.values()])


async def describe(call: Call) -> GroupInfo:
    found = await describe_group(call.services, call.names["group"])
    return GroupInfo(
        found.group,
        found.state,
        found.protocol,
        found.assignor,
        [
            MemberInfo(each.member_id, each.instance_id, each.client_id, each.host, named(each.assigned))
            for each in found.members
        ],
    )


async def describe_group(services: Services, group: str) -> GroupDescription:
    check_group(group)
    return await services.neighbours.ask_groups(lambda groups: groups.describe(group))


async def lag(call: Call) -> GroupLag:
    group = check_group(call.names["group"])
    found = await call.services.neighbours.ask_groups(lambda groups: groups.lag(group))
    now_ms = call.services.node.clock.wall_ms()
    lags = [await _lag(call.services, each, now_ms, number < LOOK_UPS_MAX) for number, each in enumerate(found)]
    known = [each.seconds for each in lags if each.seconds is not None]
    return GroupLag(group, sum(each.messages or 0 for each in lags), max(known, default=None if lags else 0.0), lags)


async def _lag(services: Services, found: PartitionLag, now_ms: int, looks: bool) -> LagOf:
    seconds: float | None = 0.0 if found.messages == 0 else None
    if found.messages and looks:
        assert found.committed is not None
        try:
            reads = await services.reading.read([Place(found.at, found.committed)], count=1, wait_ms=0)
            if reads and reads[0].records and reads[0].records[0].timestamp >= 0:
                seconds = max(0, now_ms - reads[0].records[0].timestamp) / 1000
        except MillpondError:
            pass  # what retention has removed, or nobody leads: the rest is worth telling
    return LagOf(*found.at, found.committed, found.end, found.messages, seconds)


async def reset(call: Call) -> Offsets:
    group, wish = check_group(call.names["group"]), call.body
    target = _target(wish)
    if isinstance(target, dict) and wish.offsets is not None:
        for at in target:
            call.services.reading.check(at)
    for topic in wish.topics or ():
        call.services.reading.check(TopicPartition(topic, 0))
    offsets = await call.services.neighbours.ask_groups(
        lambda groups: groups.reset(group, target, topics=wish.topics, dry_run=wish.dry_run)
    )
    return Offsets([OffsetOf(*at, offset) for at, offset in sorted(offsets.items())])


def _target(wish: Reset) -> Any:  # noqa: ANN401
    given: dict[str, Any] = {"timestamp": wish.timestamp, "shift": wish.shift, "offsets": wish.offsets}
    for name, value in given.items():
        if (value is None) == (wish.to == name):
            said = "is missing" if value is None else "is given"
            raise Refusal(400, "invalid_field", f"to is {wish.to!r}, and {name} {said}", field=name)
    target: Target
    match wish.to:
        case "timestamp" | "shift":
            target = {str(wish.to): given[wish.to]}
        case "offsets":
            target = {TopicPartition(each.topic, each.partition): each.offset for each in wish.offsets or ()}
            if not target:
                raise Refusal(400, "invalid_field", "offsets is empty; name at least one", field="offsets")
        case _:
            target = wish.to
    return target


async def delete(call: Call) -> DeletedGroup:
    group = check_group(call.names["group"])
    await call.services.neighbours.ask_groups(lambda groups: groups.delete(group))
    return DeletedGroup(group)


async def settings(call: Call) -> GroupSettings:
    """Of a group that nobody has seen yet, too."""
    node, group = call.services.node, check_group(call.names["group"])
    found = describe_settings(node.image.configs_of_group(group), layers(node.image, node.static))
    return GroupSettings(group, {each.name: ConfigInfo(each.value, each.is_default) for each in found})


async def alter(call: Call) -> GroupSettings:
    await alter_settings(call.services.node, OfGroup(check_group(call.names["group"])), call.body)
    return await settings(call)


def check_group(group: str) -> str:
    """What has no name cannot be there."""
    if not group:
        raise GroupNotFound("the group has no name; give it one")
    return group


def named(places: list[TopicPartition]) -> list[PartitionName]:
    return [PartitionName(*at) for at in sorted(places)]


_ALL, _ONE = "/api/v1/groups", "/api/v1/groups/{group}"
_BLAMES: Final[Blames] = {GroupNotFound: "group", GroupNotEmpty: "group", InvalidSetting: "configs"}

ROUTES = (
    Route(method="GET", path=_ALL, summary="List groups, those of queues too", handler=list_groups, answer=GroupList),
    Route(
        method="GET",
        path=_ONE,
        summary="Describe a group and its members",
        handler=describe,
        answer=GroupInfo,
        blames=_BLAMES,
    ),
    Route(
        method="GET",
        path=f"{_ONE}/lag",
        summary="How far a group is behind, in messages and in seconds",
        handler=lag,
        answer=GroupLag,
        blames=_BLAMES,
    ),
    Route(
        method="GET",
        path=f"{_ONE}/configs",
        summary="Settings of a group, such as those of a queue group",
        handler=settings,
        answer=GroupSettings,
        blames=_BLAMES,
    ),
    Route(
        method="PATCH",
        path=_ONE,
        summary="Change settings of a group, whether it is there yet or not",
        handler=alter,
        body=Alteration,
        answer=GroupSettings,
        blames=_BLAMES,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/offsets",
        summary="Let a group go on elsewhere; only while nobody is in it",
        handler=reset,
        body=Reset,
        answer=Offsets,
        blames={**_BLAMES, OffsetOutOfRange: "offsets"},
    ),
    Route(
        method="DELETE",
        path=_ONE,
        summary="Delete a group and its offsets; only while nobody is in it",
        handler=delete,
        answer=DeletedGroup,
        blames=_BLAMES,
    ),
)
