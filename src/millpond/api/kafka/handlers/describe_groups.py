"""DescribeGroups: classic groups with their members.

Version notes: to 5 a group nobody knows is Dead without an error; from 6 it is not found (69).
"""

from millpond.api.kafka.allowed import GROUP, if_asked
from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.descriptions import ClassicDescription
from millpond.core.groups.errors import GroupError
from millpond.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def answer(node: Node, request: DescribeGroupsRequest, context: Context) -> DescribeGroupsResponse:
    groups = [_described(node, name, context) for name in request.groups]
    for group in groups:
        if not group.error_code:
            group.authorized_operations = if_asked(request.include_authorized_operations, GROUP)
    return DescribeGroupsResponse(groups=groups)


def _described(node: Node, name: str, context: Context) -> DescribedGroup:
    group = node.groups.describe(name)
    if not isinstance(group, ClassicDescription):
        error = GroupError.GROUP_ID_NOT_FOUND if context.version >= 6 else GroupError.NONE
        return DescribedGroup(group_id=name, group_state="Dead", error_code=error)
    return DescribedGroup(
        group_id=name,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata,
                member_assignment=each.assignment,
            )
            for each in group.members
        ],
    )
