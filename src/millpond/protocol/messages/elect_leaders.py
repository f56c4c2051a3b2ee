"""ElectLeaders: choose leaders anew.

Behaviour: election_type 0 prefers the first replica, 1 takes any replica where no in-sync one lives. Null
`topic_partitions` asks for all partitions.

Version notes:
    0  preferred elections only    1  election_type, an error for the whole    2  flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, int8, int16, int32, served, string, wire


@wire
class TopicPartitions:
    topic: str = string()
    partitions: list[int] = array(Kind.INT32)


@wire
class ElectLeadersRequest:
    api_key: ClassVar[int] = 43
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 2

    election_type: int = int8(since=1)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable_since=0)
    timeout_ms: int = int32(default=60000)


@wire
class PartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@wire
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@wire
class ElectLeadersResponse:
    api_key: ClassVar[int] = 43
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
