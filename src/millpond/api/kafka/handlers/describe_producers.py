"""DescribeProducers: the idempotent producers that partitions remember.

Behaviour: each with its newest batch. There are no transactions yet, so none has begun one.
"""

from millpond.api.kafka.context import Context
from millpond.broker.drivers.partition import Partition
from millpond.broker.node import Node
from millpond.model.errors import UnknownTopicOrPartition
from millpond.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_NO_COORDINATOR = -1


def answer(node: Node, request: DescribeProducersRequest, context: Context) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_partition(node, topic.name, number) for number in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _partition(node: Node, topic: str, number: int) -> PartitionResponse:
    partition = node.partitions.named(topic, number)
    if partition is None:
        error = UnknownTopicOrPartition(f"{topic}-{number} is not on this broker")
        return PartitionResponse(partition_index=number, error_code=error.kafka_code, error_message=str(error))
    return PartitionResponse(partition_index=number, active_producers=_producers(partition))


def _producers(partition: Partition) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=epoch,
            last_sequence=newest.last_sequence,
            last_timestamp=newest.timestamp,
            coordinator_epoch=_NO_COORDINATOR,
        )
        for producer_id, epoch, newest in partition.log.producers.newest()
    ]
