"""DeleteGroups: groups without members, with all their offsets."""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.requests import DeleteGroup, DeleteGroupResult
from millpond.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def answer(node: Node, request: DeleteGroupsRequest, context: Context) -> Awaitable[DeleteGroupsResponse]:
    asked = [(name, node.groups.ask(name, lambda token: DeleteGroup(token=token))) for name in request.groups_names]
    return _response(asked)


async def _response(asked: list[tuple[str, Awaitable[DeleteGroupResult]]]) -> DeleteGroupsResponse:
    results = [DeletableGroupResult(group_id=name, error_code=(await each).error) for name, each in asked]
    return DeleteGroupsResponse(results=results)
