"""RemoveRaftVoter: a broker no longer votes in the metadata quorum.

Version notes:
    0  flexible from the start
"""

from typing import ClassVar

from millpond.protocol.messages.fields import int16, int32, served, string, uuid, wire


@wire
class RemoveRaftVoterRequest:
    api_key: ClassVar[int] = 81
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    cluster_id: str | None = string(nullable_since=0, default=None)
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


@wire
class RemoveRaftVoterResponse:
    api_key: ClassVar[int] = 81
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
