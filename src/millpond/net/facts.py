"""What happened on one server's sockets, as plain numbers; telemetry renders them.

Written by connection.py and server.py on the loop, so nothing here is locked.
"""

from dataclasses import field
from enum import Enum

from millpond.model.values import dataclass


class CloseReason(Enum):
    PEER_CLOSED = "peer closed"
    CONNECTION_FAILED = "connection failed"
    """The network or the peer's machine: a reset, a timeout."""
    BAD_FRAME_LENGTH = "bad frame length"
    IDLE = "idle"
    SLOW_SENDER = "slow sender"
    SLOW_READER = "slow reader"
    HANDLER_FAILED = "handler failed"
    """A bug of ours, which `on_error` has seen."""
    CLOSED_HERE = "closed here"
    """Whoever handles requests said so."""
    STOPPED = "stopped"
    """The server went down."""


def _none_yet() -> dict[CloseReason, int]:
    return dict.fromkeys(CloseReason, 0)


@dataclass(slots=True)
class NetworkFacts:
    connections_open: int = 0
    connections_total: int = 0
    """Accepted since the start; refused ones are not among them."""
    connections_refused: int = 0
    frames_in: int = 0
    bytes_in: int = 0
    frames_out: int = 0
    bytes_out: int = 0
    """With lengths, as on the wire, in both directions."""
    closes: dict[CloseReason, int] = field(default_factory=_none_yet)
