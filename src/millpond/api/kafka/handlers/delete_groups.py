"""DeleteGroups: groups without members, with all their offsets, and where they are in queues."""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.broker.operations import share_offsets
from millpond.core.groups.errors import GroupError
from millpond.core.groups.requests import DeleteGroup, DeleteGroupResult
from millpond.model.errors import MillpondError
from millpond.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def answer(node: Node, request: DeleteGroupsRequest, context: Context) -> Awaitable[DeleteGroupsResponse]:
    asked = [
        (name, node.groups.ask(name, lambda token: DeleteGroup(token=token)))
        for name in dict.fromkeys(request.groups_names)
    ]
    return _response(node, asked)


async def _response(node: Node, asked: list[tuple[str, Awaitable[DeleteGroupResult]]]) -> DeleteGroupsResponse:
    results = [DeletableGroupResult(group_id=name, error_code=(await each).error) for name, each in asked]
    for result in results:
        # Of a group that nobody ever joined, its coordinator knows nothing, but there may be queues.
        is_unknown = result.error_code == GroupError.GROUP_ID_NOT_FOUND
        if is_unknown or not result.error_code:
            try:
                if await share_offsets.forget_all(node, result.group_id) and is_unknown:
                    result.error_code = GroupError.NONE
            except MillpondError as error:
                result.error_code = error.kafka_code
    return DeleteGroupsResponse(results=results)
