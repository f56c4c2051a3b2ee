"""DeleteTopics: remove topics and all they hold.

Behaviour: each topic stands for itself. One that is not there is UNKNOWN_TOPIC_OR_PARTITION by name and
UNKNOWN_TOPIC_ID by id.

Version notes:
    1  throttling    4  flexible    5  error_message    6  names or ids, in `topics` instead of `topic_names`
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, int16, int32, served, string, uuid, wire


@wire
class DeleteTopicState:
    name: str | None = string(nullable_since=0, default=None)
    topic_id: bytes = uuid()


@wire
class DeleteTopicsRequest:
    api_key: ClassVar[int] = 20
    versions: ClassVar[range] = served(1, 6)
    flexible_since: ClassVar[int | None] = 4

    topic_names: list[str] = array(Kind.STRING, until=5)
    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    timeout_ms: int = int32()


@wire
class DeletableTopicResult:
    name: str | None = string(nullable_since=6)
    topic_id: bytes = uuid(since=6)
    error_code: int = int16()
    error_message: str | None = string(since=5, nullable_since=5, default=None)


@wire
class DeleteTopicsResponse:
    api_key: ClassVar[int] = 20
    versions: ClassVar[range] = served(1, 6)
    flexible_since: ClassVar[int | None] = 4

    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
