"""What the connections of the HTTP door may use: bytes, connections, time.

Frozen. Pure. Made by app, and smaller by tests.
"""

from millpond.model.limits import KIB, MIB
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    connections_max: int = 1_024
    """Beyond that, whoever connects is answered with 503."""
    head_bytes_max: int = 16 * KIB
    """Of a request's line and headers."""
    body_bytes_max: int = 16 * MIB
    memory_bytes_max: int = 128 * MIB
    """In bodies that are not answered yet, over all connections; whoever brings more is answered with 503."""
    request_seconds: float = 30.0
    """From the first byte of a request to its last."""
    idle_seconds: float = 120.0
    """Between two requests of one connection."""
    write_seconds: float = 60.0
    """How long a peer may take nothing of what it is owed."""
    linger_seconds: float = 2.0
    """How long a refused peer may go on sending before it is cut off: so long it can read why."""
    grace_seconds: float = 2.0
    """For what was asked before the door is shut."""
