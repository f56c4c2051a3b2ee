"""What the connections of one server may use: bytes, frames, connections, time. Kafka's names are in the comments.

Frozen, and checked when made. Pure.
"""

from millpond.model.errors import InvalidSetting
from millpond.model.limits import GIB, KIB, MIB
from millpond.model.values import dataclass

FRAME_BYTES_WALL = 2 * GIB - 1
"""The length before a frame is a signed 32-bit number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimits:
    frame_bytes_max: int = (
        100 * MIB + 64 * KIB
    )  # socket.request.max.bytes, and some room for what is around the records
    memory_bytes_max: int = 512 * MIB  # queued.max.request.bytes
    """In partly received frames and unanswered requests, over all connections. What one read or one frame brings on
    top is let in: a server that waits for memory would otherwise wait for ever."""

    connections_max: int = 10_000  # max.connections
    connections_per_peer_max: int = 10_000  # max.connections.per.ip

    in_flight_max: int = 100
    """Requests of one connection that may wait for their answers; further ones stay unread."""
    write_buffer_bytes_max: int = 256 * KIB
    """Answers a peer has not taken yet; above it nothing more is read from that peer."""

    idle_seconds: float = 600.0  # connections.max.idle.ms
    frame_seconds: float = 30.0
    """From the first byte of a frame to its last."""
    write_seconds: float = 60.0
    """How long a peer that is owed answers may take next to nothing of them. What its kernel and ours took in the
    meantime counts as taken, so it can be twice as long."""

    def __post_init__(self) -> None:
        self._require("frame_bytes_max", self.frame_bytes_max, 1, FRAME_BYTES_WALL)
        self._require("memory_bytes_max", self.memory_bytes_max, 1, None)
        self._require("connections_max", self.connections_max, 1, None)
        self._require("connections_per_peer_max", self.connections_per_peer_max, 1, None)
        self._require("in_flight_max", self.in_flight_max, 1, None)
        self._require("write_buffer_bytes_max", self.write_buffer_bytes_max, 0, None)
        self._require("idle_seconds", self.idle_seconds, 0.001, None)
        self._require("frame_seconds", self.frame_seconds, 0.001, None)
        self._require("write_seconds", self.write_seconds, 0.001, None)

    @staticmethod
    def _require(name: str, value: float, least: float, most: float | None) -> None:
        if value < least or (most is not None and value > most):
            allowed = f"at least {least}" if most is None else f"{least} to {most}"
            raise InvalidSetting(f"{name} is {value}; allowed is {allowed}")
