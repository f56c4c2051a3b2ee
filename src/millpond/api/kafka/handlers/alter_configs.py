"""AlterConfigs: the settings of topics, groups and brokers, each resource as a whole.

Behaviour: what a resource does not name goes back to its default. Each resource is decided for itself, and changes
whole or not at all; broker "" stands for all brokers. A group need not exist yet. Loggers and client metrics have no
settings here. IncrementalAlterConfigs takes the same way through `alter`.
"""

from collections.abc import Awaitable, Sequence
from enum import IntEnum
from typing import NamedTuple

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.metadata.alterations import AlterConfigs, ConfigItem, OfGroup, Target, alter_configs
from millpond.core.metadata.commands import ALL_BROKERS
from millpond.core.metadata.decisions import Refused
from millpond.model.errors import InvalidRequest, RequestError
from millpond.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


class ResourceType(IntEnum):
    """Those that have settings here; Kafka numbers loggers (8) and client metrics (16) beside them."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Alteration(NamedTuple):
    resource_type: int
    resource_name: str
    items: tuple[ConfigItem, ...]


def answer(node: Node, request: AlterConfigsRequest, context: Context) -> Awaitable[AlterConfigsResponse]:
    wanted = [
        Alteration(
            each.resource_type,
            each.resource_name,
            tuple(ConfigItem(config.name, config.value) for config in each.configs),
        )
        for each in request.resources
    ]
    return _alter(node, wanted, validate_only=request.validate_only)


async def _alter(node: Node, wanted: list[Alteration], *, validate_only: bool) -> AlterConfigsResponse:
    errors = await alter(node, wanted, replace=True, validate_only=validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error.kafka_code if error else 0,
                error_message=str(error) if error else None,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each, error in zip(wanted, errors, strict=True)
        ]
    )


async def alter(
    node: Node, wanted: Sequence[Alteration], *, replace: bool, validate_only: bool
) -> list[RequestError | None]:
    """For each resource, why it stays as it was; None where it does not."""
    errors: dict[int, RequestError] = {}
    requests: dict[int, AlterConfigs] = {}
    for place, each in enumerate(wanted):
        try:
            target = target_of(each.resource_type, each.resource_name)
            requests[place] = AlterConfigs(target=target, items=each.items, replace=replace)
        except InvalidRequest as error:
            errors[place] = error
    decision = await node.metadata.decide(
        lambda image: alter_configs(image, [*requests.values()], static=node.static, validate_only=validate_only)
    )
    for place, answer in zip(requests, decision.answers, strict=True):
        if isinstance(answer, Refused):
            errors[place] = answer.error
    return [errors.get(place) for place in range(len(wanted))]


def target_of(resource_type: int, name: str) -> Target:
    """A topic or a group by its name, a broker by its number."""
    if resource_type == ResourceType.TOPIC:
        return name
    if resource_type == ResourceType.GROUP:
        return OfGroup(name)
    if resource_type != ResourceType.BROKER:
        raise InvalidRequest(
            f"resource type {resource_type} has no settings here; allowed are 2 (topic), 4 (broker), 32 (group)"
        )
    if name == "":
        return ALL_BROKERS
    if not (name.isascii() and name.isdigit() and len(name) <= 10):
        raise InvalidRequest(f"{name[:80]!r} is no broker; name one by its number, or all by an empty name")
    return int(name)
