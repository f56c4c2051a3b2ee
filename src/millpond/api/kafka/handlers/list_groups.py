"""ListGroups: all groups, by state and kind.

Version notes: from 4 the states can be filtered, from 5 the types.
"""

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.groups.descriptions import GroupType
from millpond.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def answer(node: Node, request: ListGroupsRequest, context: Context) -> ListGroupsResponse:
    asked = {name.lower() for name in request.types_filter}
    types = [each for each in GroupType if each.value in asked]
    if asked and not types:
        return ListGroupsResponse()
    listings = node.groups.listings(states=request.states_filter, types=types)
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
