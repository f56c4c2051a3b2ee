"""One end of a simulated TCP connection, as asyncio shows it to a protocol.

Invariant: a protocol sees `connection_made` once, then data, then at most one `eof_received`, then
`connection_lost` once; all of it as callbacks in the context of its own host, never from within a call
it makes itself (except `pause_writing`, as in asyncio). Memory is bounded for a writer that honours
`pause_writing`: its own buffer, and a window's worth beyond it.
Driven by the protocol above and by two flows below, one for each direction.
"""

import asyncio
import contextvars
import socket
from collections import deque
from collections.abc import Callable, Iterable

from millpond.model.ports import Buffer
from millpond.testing.flow import Flow, reset
from millpond.testing.hosts import Fate, Life
from millpond.testing.links import Links

READ_BYTES_MAX = 256 * 1024
HIGH_WATER_BYTES = 64 * 1024

Address = tuple[str, int]


class SimSocket:
    """What programs look at in a socket: its addresses. Options are accepted and mean nothing."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, name: Address, peer: Address | None = None) -> None:
        self._name = name
        self._peer = peer

    def getsockname(self) -> Address:
        return self._name

    def getpeername(self) -> Address:
        if self._peer is None:
            raise OSError("not connected")
        return self._peer

    def setsockopt(self, *option: object) -> None:
        return

    def fileno(self) -> int:
        return -1


class SimTransport(asyncio.Transport):
    def __init__(
        self,
        links: Links,
        *,
        life: Life | None,
        context: contextvars.Context,
        name: Address,
        peer: Address,
        forget: Callable[["SimTransport"], None],
    ) -> None:
        super().__init__({"sockname": name, "peername": peer, "socket": SimSocket(name, peer)})
        self._links = links
        self._loop = links.loop
        self._context = context
        self._forget = forget
        self.number: int
        self._other: SimTransport
        self._outgoing: Flow
        self._incoming: Flow
        self.life = life
        self.host = name[0]
        self.gone = False
        self.crashed = False
        self._protocol: asyncio.BaseProtocol | None = None
        self._closing = False
        self._end_written = False
        self._writing_paused = False
        self._drain_scheduled = False
        self._high_water = HIGH_WATER_BYTES
        self._low_water = HIGH_WATER_BYTES // 4
        self._inbox: deque[bytes] = deque()
        """In the kernel: arrived, and not yet read by the program. Empty bytes are the end of the stream."""
        self._reading = False
        self._read_scheduled = False

    def join(self, number: int, other: "SimTransport") -> None:
        """Ties both ends together; called once, on one of them."""
        self.number = other.number = number
        self._other, other._other = other, self
        self._outgoing = other._incoming = Flow(self._links, number, source=self, target=other)
        self._incoming = other._outgoing = Flow(self._links, number, source=other, target=self)

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._soon(protocol.connection_made, self)
        self._soon(self.resume_reading)

    def _soon(self, callback: Callable[..., object], *arguments: object) -> None:
        self._loop.call_soon(callback, *arguments, context=self._context)

    def _trace(self, kind: str, **fields: str) -> None:
        self._links.trace.record(kind, connection=self.number, host=self.host, **fields)

    # --- Reading ---------------------------------------------------------------------------------

    def arrive(self, data: bytes) -> None:
        self._inbox.append(data)
        self._schedule_read()

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._schedule_read()

    def _schedule_read(self) -> None:
        if self._inbox and self.is_reading() and not self._read_scheduled:
            self._read_scheduled = True
            self._soon(self._read)

    def _read(self) -> None:
        self._read_scheduled = False
        if not self._inbox or not self.is_reading():
            return
        if not self._inbox[0]:
            self._read_end()
            return
        pieces = [self._inbox.popleft()]
        size = len(pieces[0])
        while self._inbox and self._inbox[0] and size + len(self._inbox[0]) <= READ_BYTES_MAX:
            size += len(self._inbox[0])
            pieces.append(self._inbox.popleft())
        self._incoming.read(size)
        self._hand_over(b"".join(pieces))
        self._schedule_read()

    def _hand_over(self, data: bytes) -> None:
        try:
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                view = memoryview(data)
                while view:
                    room = memoryview(self._protocol.get_buffer(len(view)))
                    size = min(len(room), len(view))
                    if size == 0:
                        raise RuntimeError("get_buffer() returned an empty buffer")
                    room[:size] = view[:size]
                    self._protocol.buffer_updated(size)
                    view = view[size:]
            else:
                assert isinstance(self._protocol, asyncio.Protocol)
                self._protocol.data_received(data)
        except Exception as error:
            self._fail("a protocol failed to receive data", error)

    def _read_end(self) -> None:
        self._inbox.clear()
        assert isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        try:
            keep_open = self._protocol.eof_received()
        except Exception as error:
            self._fail("a protocol failed to receive the end of the stream", error)
            return
        if not keep_open:
            self.close()

    def _fail(self, message: str, error: Exception) -> None:
        self._loop.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )
        self.abort()

    # --- Writing ---------------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data: expecting a bytes-like instance, got {type(data).__name__}")
        if self._end_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or len(data) == 0:
            return
        self._outgoing.send(bytes(data))
        if self._outgoing.waiting_bytes > self._high_water and not self._writing_paused:
            self._writing_paused = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing and not self._end_written:
            self._end_written = True
            self._outgoing.end()

    def get_write_buffer_size(self) -> int:
        return self._outgoing.waiting_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water, self._high_water

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_water, self._low_water = high, low

    def drained(self) -> None:
        wanted = self._writing_paused or self._closing
        if wanted and not self.gone and not self._drain_scheduled:
            self._drain_scheduled = True
            self._soon(self._drain)

    def _drain(self) -> None:
        self._drain_scheduled = False
        if self.gone:
            return
        if self._writing_paused and self._outgoing.waiting_bytes <= self._low_water:
            self._writing_paused = False
            assert self._protocol is not None
            self._protocol.resume_writing()
        self._finish_closing()

    # --- The end ---------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Sends what is buffered first. Further bytes of the peer are not read any more."""
        if not self._closing:
            self._closing = True
            self._finish_closing()

    def _finish_closing(self) -> None:
        if not self._closing or self.gone or self._outgoing.waiting_bytes:
            return
        # As Linux does: closing a socket with unread bytes resets the connection, and may destroy what
        # the peer has not read yet.
        if any(self._inbox):
            self._send_reset()
        elif not self._end_written:
            self._outgoing.end()
        self._leave(None)

    def abort(self) -> None:
        if not self.gone:
            self._outgoing.discard_waiting()
            self._send_reset()
            self._leave(None)

    def lose(self, failure: OSError) -> None:
        if not self.gone:
            self._outgoing.drop()
            self._leave(failure)

    def crash(self, fate: Fate) -> None:
        """The process is gone and its protocol with it; only its kernel, if it lives, can still say so."""
        self.crashed = True
        self._outgoing.discard_waiting()
        if fate is Fate.KILLED and not self.gone:
            self._send_reset()
        self.vanish()

    def vanish(self) -> None:
        self.gone = self._closing = True
        self._inbox.clear()

    def _leave(self, failure: OSError | None) -> None:
        if failure is None:
            self._trace("close")
        else:
            self._trace("lose", why=type(failure).__name__)
        self.vanish()
        self._soon(self._tell_lost, failure)

    def _tell_lost(self, failure: OSError | None) -> None:
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(failure)
        finally:
            self._forget(self)

    def _send_reset(self) -> None:
        """Resets are not acknowledged and not repeated: a lost one leaves the peer half open."""
        if not self._links.lost(self.host, self._other.host):
            delay_seconds = self._links.delay_seconds(self.host, self._other.host)
            self._links.at(self._links.loop.true_time() + delay_seconds, self._reset_arrives)

    def _reset_arrives(self) -> None:
        if self._links.passes(self.host, self._other.host):
            self._other.lose(reset())

    # --- Protocols may change --------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol
