"""JoinGroup: a member wants to be in the next generation of a classic group.

Behaviour: answered when the generation is there, which may take as long as the slowest member's rebalance timeout.
Version notes: below 4 a member without an id is taken at once; from 4 it is given one and asked to come again with it.
Version 0 has no rebalance timeout: its session timeout counts. From 9 the leader may be told not to assign.
"""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.classic_events import JoinGroup, JoinResult
from millpond.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)


def answer(node: Node, request: JoinGroupRequest, context: Context) -> Awaitable[JoinGroupResponse]:
    rebalance_timeout_ms = request.rebalance_timeout_ms if context.version >= 1 else request.session_timeout_ms
    asked = node.groups.ask(
        request.group_id,
        lambda token: JoinGroup(
            token=token,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocols=tuple((each.name, each.metadata) for each in request.protocols),
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            client_id=context.client_id or "",
            client_host=context.host,
            requires_known_member_id=context.version >= 4,
            can_skip_assignment=context.version >= 9,
        ),
    )
    return _response(asked, context)


async def _response(asked: Awaitable[JoinResult], context: Context) -> JoinGroupResponse:
    result = await asked
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol if context.version >= 7 else result.protocol or "",
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in result.members
        ],
    )
