"""DescribeConfigs: the settings of topics, groups and brokers, and where each value comes from.

Behaviour: no names, or none at all, ask for every setting; names that do not exist are left out. Broker "" is answered
with what was set for all brokers, and nothing else. A broker describes only itself. A group need not exist.
Version notes: from 3 each setting has its type and, where asked, its documentation.
"""

from collections.abc import Mapping

from millpond.api.kafka.context import Context
from millpond.api.kafka.handlers.alter_configs import ResourceType, target_of
from millpond.broker.node import Node
from millpond.core.metadata.alterations import OfGroup
from millpond.core.metadata.broker_configs import layers
from millpond.core.metadata.commands import ALL_BROKERS
from millpond.core.metadata.configs import ConfigEntry, describe_broker, describe_group, describe_shared, describe_topic
from millpond.model.errors import InvalidRequest, MillpondError, UnknownTopicOrPartition
from millpond.model.topic_names import check_topic_name
from millpond.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def answer(node: Node, request: DescribeConfigsRequest, context: Context) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_result(node, each, request) for each in request.resources])


def _result(node: Node, resource: DescribeConfigsResource, request: DescribeConfigsRequest) -> DescribeConfigsResult:
    try:
        entries = _entries(node, resource)
    except MillpondError as error:
        return DescribeConfigsResult(
            error_code=error.kafka_code,
            error_message=str(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            _config(each, synonyms=request.include_synonyms, documentation=request.include_documentation)
            for each in entries
        ],
    )


def _entries(node: Node, resource: DescribeConfigsResource) -> tuple[ConfigEntry, ...]:
    name, names = resource.resource_name, resource.configuration_keys or None
    image = node.image
    target = target_of(resource.resource_type, name)
    here = layers(image, _static(node), broker=node.node_id)
    if resource.resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        topic = image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}; create it first")
        return describe_topic(topic.configs, here, names)
    if isinstance(target, OfGroup):
        if not target.group:
            raise InvalidRequest("the group id is missing; name one")
        return describe_group(image.configs_of_group(target.group), layers(image, node.static), names)
    if target == ALL_BROKERS:
        return describe_shared(here, names)
    if target != node.node_id:
        raise InvalidRequest(f"this is broker {node.node_id}; ask broker {target} itself, or name none for all")
    return describe_broker(here, names)


def _static(node: Node) -> Mapping[str, str]:
    """With what the broker was told by other ways than its settings."""
    number = str(node.node_id)
    told = {"node.id": number, "broker.id": number, "log.dirs": node.partitions.data_directory}
    return {**node.static, **told}


def _config(entry: ConfigEntry, *, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    told = entry.synonyms if synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in told],
        config_type=entry.type,
        documentation=entry.documentation if documentation else None,
    )
