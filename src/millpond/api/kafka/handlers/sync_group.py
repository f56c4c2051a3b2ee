"""SyncGroup: the leader hands in who gets what, and everybody learns their part.

Behaviour: the others are answered once the leader has been here.
"""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.classic_events import SyncGroup, SyncResult
from millpond.core.groups.errors import GroupError
from millpond.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_NAMES_PROTOCOL_SINCE = 5


def answer(node: Node, request: SyncGroupRequest, context: Context) -> Awaitable[SyncGroupResponse]:
    if context.version >= _NAMES_PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        return _refused()
    asked = node.groups.ask(
        request.group_id,
        lambda token: SyncGroup(
            token=token,
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments=tuple((each.member_id, each.assignment) for each in request.assignments),
        ),
    )
    return _response(asked)


async def _refused() -> SyncGroupResponse:
    return SyncGroupResponse(error_code=GroupError.INCONSISTENT_GROUP_PROTOCOL)


async def _response(asked: Awaitable[SyncResult]) -> SyncGroupResponse:
    result = await asked
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )
