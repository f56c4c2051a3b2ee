"""AlterPartitionReassignments: partitions moved to other brokers.

Behaviour: each partition is decided for itself. The answer comes when the movement is in the metadata; it is done when
the new replicas are in sync.
Version notes: 1 can forbid a change of the number of replicas.
"""

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.reassignments import Reassign, reassign
from millpond.model.ids import TopicPartition
from millpond.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def answer(
    node: Node, request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    wanted = [
        Reassign(
            TopicPartition(topic.name, part.partition_index), None if part.replicas is None else tuple(part.replicas)
        )
        for topic in request.topics
        for part in topic.partitions
    ]
    allowed = request.allow_replication_factor_change
    decision = await node.metadata.decide(lambda image: reassign(image, wanted, allow_replication_change=allowed))
    errors = [each.error if isinstance(each, Refused) else None for each in decision.answers]
    answers = [
        ReassignablePartitionResponse(
            partition_index=each.at.partition,
            error_code=error.kafka_code if error else 0,
            error_message=str(error) if error else None,
        )
        for each, error in zip(wanted, errors, strict=True)
    ]
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed,
        responses=[
            ReassignableTopicResponse(name=topic.name, partitions=[answers.pop(0) for _ in topic.partitions])
            for topic in request.topics
        ],
    )
