"""CreateTopics: make topics.

Behaviour: each topic stands for itself: some may fail. A replica assignment given by hand comes with -1 for
`num_partitions` and `replication_factor`. `validate_only` checks and creates nothing.

Version notes:
    2  throttling    4  -1 means the broker's default    5  flexible; the response has partitions and configuration
    6  an error for a throttled change    7  topic ids in the response
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, boolean, int8, int16, int32, served, string, uuid, wire


@wire
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = array(Kind.INT32)


@wire
class CreatableTopicConfig:
    name: str = string()
    value: str | None = string(nullable_since=0)


@wire
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@wire
class CreateTopicsRequest:
    api_key: ClassVar[int] = 19
    versions: ClassVar[range] = served(2, 7)
    flexible_since: ClassVar[int | None] = 5

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


@wire
class CreatableTopicConfigs:
    name: str = string()
    value: str | None = string(nullable_since=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


@wire
class CreatableTopicResult:
    name: str = string()
    topic_id: bytes = uuid(since=7)
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    topic_config_error_code: int = int16(since=5, tag=0)
    num_partitions: int = int32(since=5, default=-1)
    replication_factor: int = int16(since=5, default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, since=5, nullable_since=5)


@wire
class CreateTopicsResponse:
    api_key: ClassVar[int] = 19
    versions: ClassVar[range] = served(2, 7)
    flexible_since: ClassVar[int | None] = 5

    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
