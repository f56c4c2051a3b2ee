"""AddRaftVoter: a broker votes in the metadata quorum from now on.

Version notes:
    0  flexible from the start    1  whether to wait until the change is committed
"""

from typing import ClassVar

from millpond.protocol.messages.fields import array, boolean, int16, int32, served, string, uint16, uuid, wire


@wire
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@wire
class AddRaftVoterRequest:
    api_key: ClassVar[int] = 80
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = 0

    cluster_id: str | None = string(nullable_since=0, default=None)
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean(since=1, default=True)


@wire
class AddRaftVoterResponse:
    api_key: ClassVar[int] = 80
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
