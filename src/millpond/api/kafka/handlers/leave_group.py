"""LeaveGroup: members go, and what they owned is free at once.

Version notes: to 2 one member by its id; from 3 several, by id or instance id, each with an answer of its own.
"""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.classic_events import LeaveGroup, LeaveResult, Leaving
from millpond.core.groups.errors import GroupError
from millpond.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse


def answer(node: Node, request: LeaveGroupRequest, context: Context) -> Awaitable[LeaveGroupResponse]:
    members = tuple(Leaving(member_id=each.member_id, instance_id=each.group_instance_id) for each in request.members)
    if context.version <= 2:
        members = (Leaving(member_id=request.member_id),)
    asked = node.groups.ask(request.group_id, lambda token: LeaveGroup(token=token, members=members))
    return _response(asked, context)


async def _response(asked: Awaitable[LeaveResult], context: Context) -> LeaveGroupResponse:
    result = await asked
    error = result.error
    if context.version <= 2 and error == GroupError.NONE and result.members:
        error = result.members[0][1]
    return LeaveGroupResponse(
        error_code=error,
        members=[
            MemberResponse(member_id=each.member_id, group_instance_id=each.instance_id, error_code=code)
            for each, code in result.members
        ],
    )
