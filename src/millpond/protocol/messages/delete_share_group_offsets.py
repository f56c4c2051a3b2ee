"""DeleteShareGroupOffsets: forget whole topics of a share group, which must be empty.

Behaviour: members that subscribe to such a topic later begin where the group's settings say.

Version notes:
    0  the only one, and flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, int16, int32, served, string, uuid, wire


@wire
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = string()


@wire
class DeleteShareGroupOffsetsRequest:
    api_key: ClassVar[int] = 92
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


@wire
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = string()
    topic_id: bytes = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@wire
class DeleteShareGroupOffsetsResponse:
    api_key: ClassVar[int] = 92
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic)
