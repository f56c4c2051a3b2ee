"""IncrementalAlterConfigs: single settings of topics, groups and brokers; the others stay.

Behaviour: operation 0 sets, 1 goes back to the default, 2 adds to a list, 3 takes from it. Each resource is decided for
itself, and changes whole or not at all.
"""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.api.kafka.handlers.alter_configs import Alteration, alter
from millpond.broker.node import Node
from millpond.core.metadata.alterations import ConfigItem, ConfigOperation
from millpond.model.errors import InvalidRequest, RequestError
from millpond.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_OPERATIONS = {int(each) for each in ConfigOperation}


def answer(
    node: Node, request: IncrementalAlterConfigsRequest, context: Context
) -> Awaitable[IncrementalAlterConfigsResponse]:
    return _alter(node, request)


async def _alter(node: Node, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    known = [each for each in request.resources if _stranger(each) is None]
    wanted = [Alteration(each.resource_type, each.resource_name, _items(each)) for each in known]
    altered = iter(await alter(node, wanted, replace=False, validate_only=request.validate_only))
    return IncrementalAlterConfigsResponse(
        responses=[_response(each, _stranger(each) or next(altered)) for each in request.resources]
    )


def _stranger(resource: AlterConfigsResource) -> RequestError | None:
    for each in resource.configs:
        if each.config_operation not in _OPERATIONS:
            return InvalidRequest(
                f"operation {each.config_operation} on {each.name[:80]!r}; allowed are 0 (set), 1 (delete), 2 (append) "
                "and 3 (subtract)"
            )
    return None


def _items(resource: AlterConfigsResource) -> tuple[ConfigItem, ...]:
    return tuple(ConfigItem(each.name, each.value, ConfigOperation(each.config_operation)) for each in resource.configs)


def _response(resource: AlterConfigsResource, error: RequestError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.kafka_code if error else 0,
        error_message=str(error) if error else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
