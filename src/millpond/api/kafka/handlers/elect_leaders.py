"""ElectLeaders: leaders chosen anew, the preferred ones or any.

Behaviour: each partition is decided for itself. Where all are asked for, by null, those that stay as they are go
unmentioned; where one is named, it is told that nothing was needed.
Version notes: 0 has preferred elections only.
"""

from collections.abc import Awaitable

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.metadata.decisions import Decision, Refused
from millpond.core.metadata.elections import Elected, Election, elect_leaders
from millpond.core.metadata.image import Image
from millpond.model.errors import ElectionNotNeeded, InvalidRequest
from millpond.model.ids import TopicPartition
from millpond.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


def answer(
    node: Node, request: ElectLeadersRequest, context: Context
) -> Awaitable[ElectLeadersResponse] | ElectLeadersResponse:
    if request.election_type not in (Election.PREFERRED, Election.UNCLEAN):
        return ElectLeadersResponse(error_code=InvalidRequest.kafka_code)
    return _elect(node, request, Election(request.election_type))


async def _elect(node: Node, request: ElectLeadersRequest, kind: Election) -> ElectLeadersResponse:
    asked: list[TopicPartition] = []

    def rule(image: Image) -> Decision[Elected]:
        asked[:] = _every(image) if request.topic_partitions is None else _named(request)
        return elect_leaders(image, kind, asked)

    decision = await node.metadata.decide(rule)
    topics: dict[str, list[PartitionResult]] = {}
    for at, each in zip(asked, decision.answers, strict=True):
        error = each.error if isinstance(each, Refused) else None
        if request.topic_partitions is None and isinstance(error, ElectionNotNeeded):
            continue
        topics.setdefault(at.topic, []).append(
            PartitionResult(
                partition_id=at.partition,
                error_code=error.kafka_code if error else 0,
                error_message=str(error) if error else None,
            )
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=results) for topic, results in topics.items()
        ]
    )


def _every(image: Image) -> list[TopicPartition]:
    return [
        TopicPartition(name, number) for name, topic in image.topics.items() for number in range(len(topic.partitions))
    ]


def _named(request: ElectLeadersRequest) -> list[TopicPartition]:
    """Each once."""
    named = [
        TopicPartition(topic.topic, number) for topic in request.topic_partitions or () for number in topic.partitions
    ]
    return list(dict.fromkeys(named))
