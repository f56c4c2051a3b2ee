"""CreatePartitions: topics grow.

Behaviour: each topic is decided for itself; an accepted one is durable, and its new partitions open, before it is
answered. Version notes: 2 is flexible, and otherwise all are the same.
"""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.metadata.controller import Grown, MorePartitions, create_partitions
from millpond.core.metadata.decisions import Refused
from millpond.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def answer(node: Node, request: CreatePartitionsRequest, context: Context) -> Awaitable[CreatePartitionsResponse]:
    return _create(node, request)


async def _create(node: Node, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    wanted = [_more(topic) for topic in request.topics]
    decision = await node.metadata.decide(
        lambda image: create_partitions(image, wanted, rng=node.rng, validate_only=request.validate_only)
    )
    results = {each.name: each for each in map(_result, decision.answers)}
    return CreatePartitionsResponse(results=list(results.values()))


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    placed = topic.assignments
    assignments = None if placed is None else tuple(tuple(each.broker_ids) for each in placed)
    return MorePartitions(name=topic.name, count=topic.count, assignments=assignments)


def _result(answer: Grown | Refused) -> CreatePartitionsTopicResult:
    if isinstance(answer, Refused):
        error = answer.error
        return CreatePartitionsTopicResult(name=answer.subject, error_code=error.kafka_code, error_message=str(error))
    return CreatePartitionsTopicResult(name=answer.name)
