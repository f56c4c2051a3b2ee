"""ListConfigResources: which topics and brokers there are to configure, and which groups are.

Behaviour: no types ask for all. Types that have nothing here are empty; a type nobody knows is refused.
Version notes: 0 asks for client metrics only, and there are none.
"""

from millpond.api.kafka.context import Context
from millpond.api.kafka.handlers.alter_configs import ResourceType
from millpond.broker.node import Node
from millpond.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_UNSUPPORTED_VERSION = 35
_WITHOUT_RESOURCES = {8, 16}
"""Loggers, client metrics."""


def answer(node: Node, request: ListConfigResourcesRequest, context: Context) -> ListConfigResourcesResponse:
    if context.version == 0:
        return ListConfigResourcesResponse()
    known = {*ResourceType, *_WITHOUT_RESOURCES}
    types = set(request.resource_types) or known
    if not types <= known:
        return ListConfigResourcesResponse(error_code=_UNSUPPORTED_VERSION)
    resources = []
    if ResourceType.TOPIC in types:
        resources += [(ResourceType.TOPIC, name) for name in sorted(node.image.topics)]
    if ResourceType.BROKER in types:
        resources += [(ResourceType.BROKER, str(broker.broker)) for broker in node.image.live_brokers()]
    if ResourceType.GROUP in types:
        resources += [(ResourceType.GROUP, group) for group in sorted(node.image.group_configs)]
    return ListConfigResourcesResponse(
        config_resources=[ConfigResource(resource_name=name, resource_type=kind) for kind, name in resources]
    )
