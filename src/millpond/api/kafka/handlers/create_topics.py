"""CreateTopics: new topics, with partitions and settings.

Behaviour: each topic is decided for itself; an accepted one is durable, and its partitions open, before it is answered.
Version notes: from 5 the answer tells what the topic came to, its settings too; from 7 its id.
"""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.metadata.controller import Created, NewTopic, create_topics
from millpond.core.metadata.decisions import Refused
from millpond.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def answer(node: Node, request: CreateTopicsRequest, context: Context) -> Awaitable[CreateTopicsResponse]:
    return _create(node, request)


async def _create(node: Node, request: CreateTopicsRequest) -> CreateTopicsResponse:
    wanted = [_new_topic(topic) for topic in request.topics]
    decision = await node.metadata.decide(
        lambda image: create_topics(
            image, wanted, static=node.static, rng=node.rng, validate_only=request.validate_only
        )
    )
    results = {each.name: each for each in map(_result, decision.answers)}  # one for each name, however often it came
    return CreateTopicsResponse(topics=list(results.values()))


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        configs=tuple((each.name, each.value) for each in topic.configs),
    )


def _result(answer: Created | Refused) -> CreatableTopicResult:
    if isinstance(answer, Refused):
        error = answer.error
        return CreatableTopicResult(name=answer.subject, error_code=error.kafka_code, error_message=str(error))
    return CreatableTopicResult(
        name=answer.name,
        topic_id=answer.topic_id,
        error_message=None,
        num_partitions=answer.partitions,
        replication_factor=answer.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in answer.configs
        ],
    )
