"""One direction of a simulated TCP connection.

Invariant: bytes arrive in the order written, each once, in pieces of any size; those the receiver's
program has not read yet never exceed the link's window. When nothing gets through for too long, the
sender's end dies, and the receiver is not told: it finds out when it sends something itself.

What a link loses or a partition holds back is sent again, later and later, and everything behind it
waits: reordering within a connection is seen as delay only. An acknowledgement needs the way back to
be open, so a one-way cut kills a connection whose bytes do arrive.
Driven by `SimTransport` on both ends and by timers on the wire.
"""

import asyncio
import errno
from collections import deque
from typing import Protocol

from millpond.testing.links import Links

SEGMENT_BYTES_MAX = 64 * 1024
LOSSES_IN_A_ROW_MAX = 8


class End(Protocol):
    """What a flow asks of the sockets at its two ends."""

    host: str
    gone: bool
    """The socket is closed: bytes that arrive here are answered with a reset."""
    crashed: bool
    """The process behind it is gone, and will not send anything again."""

    def arrive(self, data: bytes) -> None:
        """Bytes have reached this end's kernel, or the end of the stream when there are none."""

    def drained(self) -> None:
        """Less than before waits to be sent."""

    def lose(self, failure: OSError) -> None:
        """The connection is no more."""


class Flow:
    def __init__(self, links: Links, number: int, *, source: End, target: End) -> None:
        self._links = links
        self._number = number
        self._source = source
        self._target = target
        self._waiting: deque[bytes | memoryview] = deque()
        self.waiting_bytes = 0
        """In the sender's buffer, not yet on the wire."""
        self._window_used = 0
        self._window_owed = 0
        """Read by the receiver's program while the way back was closed: the sender does not know yet."""
        self._unacknowledged = False
        """Something arrived while the way back was closed."""
        self._segments: deque[tuple[float, bytes]] = deque()
        """On the wire: when each could arrive, were it not for those before it. An empty one ends the stream."""
        self._ending = False
        self._timer: asyncio.TimerHandle | None = None
        self._silent_since: float | None = None
        self._retransmit_seconds = 0.0

    def send(self, data: bytes) -> None:
        self._waiting.append(data)
        self.waiting_bytes += len(data)
        self._pump()

    def end(self) -> None:
        """Lets the receiver see the end of the stream after everything sent before."""
        self._ending = True
        self._pump()

    def read(self, size: int) -> None:
        """The receiver's program has taken this many bytes out of its kernel."""
        self._window_owed += size
        if self._links.passes(self._target.host, self._source.host):
            self._open_window()
        elif self._timer is None:
            self._wait_in_silence()

    def discard_waiting(self) -> None:
        self._waiting.clear()
        self.waiting_bytes = 0

    def drop(self) -> None:
        """Forgets everything, on the wire too."""
        self.discard_waiting()
        self._segments.clear()
        self._unacknowledged = False
        self._window_owed = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- Sending ---------------------------------------------------------------------------------

    def _pump(self) -> None:
        conditions = self._links.conditions(self._source.host, self._target.host)
        while self._waiting and self._window_used < conditions.window_bytes:
            room = min(conditions.window_bytes - self._window_used, SEGMENT_BYTES_MAX)
            self._launch(self._cut(room, conditions.fragment_chance))
        if self._ending and not self._waiting:
            self._ending = False
            self._launch(b"")

    def _cut(self, size_max: int, fragment_chance: float) -> bytes:
        head = self._waiting.popleft()
        size = min(len(head), size_max)
        if size > 1 and self._links.rng.random() < fragment_chance:
            size = self._links.rng.randrange(1, size)
        if size < len(head):
            self._waiting.appendleft(memoryview(head)[size:])
            head = head[:size]
        self.waiting_bytes -= size
        return bytes(head)  # the very bytes that were sent, where they go in one piece

    def _launch(self, segment: bytes) -> None:
        links = self._links
        conditions = links.conditions(self._source.host, self._target.host)
        arrival = links.loop.true_time() + links.draw_delay_seconds(conditions)
        retransmit_seconds = conditions.retransmit_ms_min / 1000
        for _ in range(LOSSES_IN_A_ROW_MAX):
            if links.rng.random() >= conditions.loss_chance:
                break
            arrival += retransmit_seconds
            retransmit_seconds *= 2
        self._window_used += len(segment)
        self._segments.append((arrival, segment))
        if self._timer is None:
            self._timer = links.at(arrival, self._tick)

    # --- On the wire -----------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = None
        links, source, target = self._links, self._source, self._target
        forth = links.passes(source.host, target.host)
        back = links.passes(target.host, source.host)
        due = bool(self._segments) and self._segments[0][0] <= links.loop.true_time()
        if due and forth:
            if target.gone and source.crashed:
                self.drop()  # nobody is there to read it, and nobody to be told
                return
            if target.gone and back:
                self._refuse()
                return
            self._unacknowledged = not back
            if not target.gone:
                self._deliver()
        elif due and source.crashed:
            self.drop()  # nobody is left to send it again
            return
        if back:
            self._unacknowledged = False
            self._open_window()
        if not source.crashed and (self._unacknowledged or self._window_owed or (due and not forth)):
            self._wait_in_silence()
            return
        self._silent_since = None
        if self._segments and self._timer is None:
            self._timer = links.at(self._segments[0][0], self._tick)

    def _deliver(self) -> None:
        now = self._links.loop.true_time()
        while self._segments and self._segments[0][0] <= now:
            _, segment = self._segments.popleft()
            self._links.trace.record(
                "deliver" if segment else "end",
                segment,
                connection=self._number,
                source=self._source.host,
                target=self._target.host,
                bytes=len(segment),
            )
            self._target.arrive(segment)

    def _refuse(self) -> None:
        """The receiver's socket is closed: its kernel answers with a reset, except to a mere end of stream."""
        only_the_end = not any(segment for _, segment in self._segments)
        self.drop()
        if not only_the_end:
            delay_seconds = self._links.delay_seconds(self._target.host, self._source.host)
            self._links.at(self._links.loop.true_time() + delay_seconds, self._source.lose, reset())

    def _open_window(self) -> None:
        if self._window_owed:
            self._window_used -= self._window_owed
            self._window_owed = 0
            self._pump()
            self._source.drained()

    def _wait_in_silence(self) -> None:
        """Tries again after a pause that doubles, or gives the connection up when it was silent for too long."""
        now = self._links.loop.true_time()
        conditions = self._links.conditions(self._source.host, self._target.host)
        if self._silent_since is None:
            self._silent_since = now
            self._retransmit_seconds = conditions.retransmit_ms_min / 1000
        gives_up_at = self._silent_since + conditions.give_up_ms / 1000
        if now >= gives_up_at:
            self.drop()
            self._source.lose(timed_out())
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._links.at(min(now + self._retransmit_seconds, gives_up_at), self._tick)
        self._retransmit_seconds *= 2


def reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


def timed_out() -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, "Connection timed out")
