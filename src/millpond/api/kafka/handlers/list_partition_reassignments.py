"""ListPartitionReassignments: partitions that are on their way to other brokers."""

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.metadata.reassignments import list_reassignments
from millpond.model.ids import TopicPartition
from millpond.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def answer(
    node: Node, request: ListPartitionReassignmentsRequest, context: Context
) -> ListPartitionReassignmentsResponse:
    asked: set[TopicPartition] | None = None
    if request.topics is not None:
        asked = {TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes}
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for each in list_reassignments(node.image, asked):
        topics.setdefault(each.at.topic, []).append(
            OngoingPartitionReassignment(
                partition_index=each.at.partition,
                replicas=list(each.replicas),
                adding_replicas=list(each.adding),
                removing_replicas=list(each.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name=name, partitions=parts) for name, parts in topics.items()]
    )
