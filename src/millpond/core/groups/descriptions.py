"""Groups as an operator sees them: listings and descriptions, copied out of the machines. Pure values."""

from enum import Enum

from millpond.core.groups.classic import ClassicGroup
from millpond.core.groups.classic import State as ClassicState
from millpond.core.groups.consumer import ConsumerGroup
from millpond.core.groups.records import ConsumerMemberRecord, ShareMemberRecord
from millpond.core.groups.share import ShareGroup
from millpond.core.groups.share_assignor import NAME as SHARE_ASSIGNOR
from millpond.core.groups.subscriptions import CONSUMER
from millpond.model.values import dataclass


class GroupType(Enum):
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class GroupListing:
    group: str
    type: GroupType
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class ClassicMemberDescription:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicDescription:
    group: str
    state: str
    protocol_type: str
    protocol: str
    """Empty until a generation has agreed on one."""
    generation: int
    members: tuple[ClassicMemberDescription, ...]


@dataclass(frozen=True, slots=True)
class ConsumerDescription:
    group: str
    state: str
    epoch: int
    """Of the group and of its target: they change together."""
    assignor: str
    members: tuple[ConsumerMemberRecord, ...]


@dataclass(frozen=True, slots=True)
class ShareDescription:
    group: str
    state: str
    epoch: int
    """Of the group and of its target: they change together."""
    assignor: str
    members: tuple[ShareMemberRecord, ...]


Machine = ClassicGroup | ConsumerGroup | ShareGroup
Description = ClassicDescription | ConsumerDescription | ShareDescription


def listing_of(group: Machine) -> GroupListing:
    if isinstance(group, ShareGroup):
        return GroupListing(group.group_id, GroupType.SHARE, GroupType.SHARE.value, group.state.value)
    if isinstance(group, ConsumerGroup):
        return GroupListing(group.group_id, GroupType.CONSUMER, CONSUMER, group.state.value)
    return GroupListing(group.group_id, GroupType.CLASSIC, group.protocol_type or "", group.state.value)


def description_of(group: Machine) -> Description:
    if isinstance(group, ShareGroup):
        sharing = tuple(member.record(group.group_id) for member in group.members.values())
        return ShareDescription(group.group_id, group.state.value, group.epoch, SHARE_ASSIGNOR, sharing)
    if isinstance(group, ConsumerGroup):
        members = tuple(member.record(group.group_id) for member in group.members.values())
        return ConsumerDescription(group.group_id, group.state.value, group.epoch, group.assignor, members)
    # Until a generation is settled, what members said and were given belongs to no agreed protocol.
    settled = group.state is ClassicState.STABLE
    return ClassicDescription(
        group=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol or "") if settled else "",
        generation=group.generation,
        members=tuple(
            ClassicMemberDescription(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.metadata_for(group.protocol) if settled else b"",
                each.assignment if settled else b"",
            )
            for each in group.members
        ),
    )
