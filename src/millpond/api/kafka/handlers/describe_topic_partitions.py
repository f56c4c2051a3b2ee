"""DescribeTopicPartitions: topics and their partitions, in pages.

Behaviour: topics come by name; no names ask for all. A page holds as many partitions as the request allows, and never
more than `PARTITIONS_PER_PAGE_MAX`; where there are more, the cursor says from where to go on.
"""

from collections.abc import Iterable

from millpond.api.kafka.allowed import TOPIC
from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.metadata.image import Image, Topic
from millpond.model.errors import InvalidRequest, InvalidTopicName, UnknownTopicOrPartition
from millpond.model.topic_names import check_topic_name
from millpond.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

PARTITIONS_PER_PAGE_MAX = 2000


def answer(node: Node, request: DescribeTopicPartitionsRequest, context: Context) -> DescribeTopicPartitionsResponse:
    image, cursor = node.image, request.cursor
    asked = {each.name for each in request.topics}
    if cursor is not None and cursor.partition_index < 0:
        return DescribeTopicPartitionsResponse(topics=_refused(sorted(asked), InvalidRequest.kafka_code))
    names = sorted(asked or image.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    left = max(1, min(request.response_partition_limit, PARTITIONS_PER_PAGE_MAX))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if not left:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics += _refused([name], _why_missing(name))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        last = min(len(topic.partitions), first + left)
        response.topics.append(_topic(image, topic, range(first, last)))
        if last < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=last)
            break
        left -= max(0, last - first)
    return response


def _why_missing(name: str) -> int:
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        return error.kafka_code
    return UnknownTopicOrPartition.kafka_code


def _refused(names: Iterable[str], code: int) -> list[DescribeTopicPartitionsResponseTopic]:
    return [
        DescribeTopicPartitionsResponseTopic(name=name, error_code=code, topic_authorized_operations=TOPIC)
        for name in names
    ]


def _topic(image: Image, topic: Topic, numbers: range) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        topic_authorized_operations=TOPIC,
        partitions=[_partition(image, topic, number) for number in numbers],
    )


def _partition(image: Image, topic: Topic, number: int) -> DescribeTopicPartitionsResponsePartition:
    partition = topic.partitions[number]
    return DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=[],
        offline_replicas=[replica for replica in partition.replicas if not image.is_live(replica)],
    )
