"""DescribeLogDirs: how many bytes each partition has on disk.

Behaviour: null asks for all partitions. There is one directory; a partition that is not here is left out.
Version notes: the size of the volume, from 4 on, is not known here and told as -1.
"""

from millpond.api.kafka.context import Context
from millpond.broker.drivers.partition import Partition
from millpond.broker.node import Node
from millpond.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def answer(node: Node, request: DescribeLogDirsRequest, context: Context) -> DescribeLogDirsResponse:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in _wanted(node, request):
        topics.setdefault(partition.at.topic, []).append(
            DescribeLogDirsPartition(
                partition_index=partition.at.partition, partition_size=partition.log.size_bytes(), offset_lag=0
            )
        )
    directory = DescribeLogDirsResult(
        log_dir=node.partitions.data_directory,
        topics=[DescribeLogDirsTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    return DescribeLogDirsResponse(results=[directory])


def _wanted(node: Node, request: DescribeLogDirsRequest) -> list[Partition]:
    if request.topics is None:
        return sorted(node.partitions, key=lambda partition: partition.at)
    named = {(topic.topic, number): None for topic in request.topics for number in topic.partitions}
    found = (node.partitions.named(topic, number) for topic, number in named)
    return [partition for partition in found if partition is not None]
