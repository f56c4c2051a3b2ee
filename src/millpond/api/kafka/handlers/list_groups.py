"""ListGroups: all groups, by state and kind.

Version notes: from 4 the states can be filtered, from 5 the types.
"""

from collections.abc import Awaitable, Sequence

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.broker.operations import queue_groups
from millpond.core.groups.descriptions import GroupListing, GroupType
from millpond.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def answer(
    node: Node, request: ListGroupsRequest, context: Context
) -> ListGroupsResponse | Awaitable[ListGroupsResponse]:
    asked = {name.lower() for name in request.types_filter}
    types = [each for each in GroupType if each.value in asked]
    if asked and not types:
        return ListGroupsResponse()
    if queue_groups.has_queues(node):
        return _answer(node, request.states_filter, types)
    return _response(node.groups.listings(states=request.states_filter, types=types))


async def _answer(node: Node, states: Sequence[str], types: Sequence[GroupType]) -> ListGroupsResponse:
    return _response(await queue_groups.listings(node, states=states, types=types))


def _response(listings: Sequence[GroupListing]) -> ListGroupsResponse:
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=each.group,
                protocol_type=each.protocol_type,
                group_state=each.state,
                group_type=each.type.value,
            )
            for each in listings
        ]
    )
