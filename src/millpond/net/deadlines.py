"""When a connection has had its time: idle, slow to send, or slow to read.

Invariant: moving a deadline costs an assignment. The timer that looks at them is the connection's, and is set anew
only when it would ring too late.
Pure: the caller passes the time. Driven by connection.py.
"""

from millpond.net.facts import CloseReason
from millpond.net.limits import NetworkLimits


class Deadlines:
    __slots__ = ("_limits", "active_at", "frame_since", "write_since")

    def __init__(self, limits: NetworkLimits, now: float) -> None:
        self._limits = limits
        self.active_at = now
        """When the last whole frame came, or the last answer went."""
        self.frame_since: float | None = None
        """When a frame that is not whole yet began."""
        self.write_since: float | None = None
        """Since when the peer has taken too little of what it is owed."""

    def next_at(self) -> float:
        limits = self._limits
        at = self.active_at + limits.idle_seconds
        if self.frame_since is not None:
            at = min(at, self.frame_since + limits.frame_seconds)
        if self.write_since is not None:
            at = min(at, self.write_since + limits.write_seconds)
        return at

    def passed(self, now: float) -> CloseReason | None:
        limits = self._limits
        if self.write_since is not None and self.write_since + limits.write_seconds <= now:
            return CloseReason.SLOW_READER
        if self.frame_since is not None and self.frame_since + limits.frame_seconds <= now:
            return CloseReason.SLOW_SENDER
        if self.active_at + limits.idle_seconds <= now:
            return CloseReason.IDLE
        return None
