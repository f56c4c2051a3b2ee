"""What the calls of the gRPC door may use: bytes, calls, time.

Frozen. Pure. Made by app, and smaller by tests.
"""

from millpond.model.limits import KIB, MIB
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcLimits:
    calls_max: int = 512
    """At a time, over all connections; beyond that, a call is answered with RESOURCE_EXHAUSTED."""
    calls_per_connection_max: int = 128
    """Beyond that, a client's own library makes its calls wait."""
    request_bytes_max: int = 4 * MIB
    response_bytes_max: int = 64 * MIB
    """A batch is given whole, and a topic may allow large ones."""
    metadata_bytes_max: int = 16 * KIB
    in_flight_bytes_max: int = 4 * MIB
    """Of a stream's requests that are not answered yet; where there are more, no further one is read."""
    in_flight_max: int = 256
    """The same, in requests."""
    requests_bytes_max: int = 256 * MIB
    """Of requests that are not answered yet, over all calls; as much again may wait for room."""
    answers_bytes_max: int = 256 * MIB
    """Of answers that their readers have not taken yet, over all calls; as much again may wait for room."""
    memory_wait_seconds: float = 10.0
    """For room, before a call is told that the broker is busy."""
    grace_seconds: float = 1.0
    """For what was asked before the door is shut."""

    def options(self) -> list[tuple[str, int]]:
        return [
            ("grpc.max_concurrent_streams", self.calls_per_connection_max),
            ("grpc.max_receive_message_length", self.request_bytes_max),
            ("grpc.max_send_message_length", self.response_bytes_max),
            ("grpc.max_metadata_size", self.metadata_bytes_max),
            ("grpc.so_reuseport", 0),  # an address that is taken is an error, and not shared
        ]
