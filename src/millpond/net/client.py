"""One connection to another server: frames out, frames in.

    connection = await open_connection(host, port, on_frame=..., on_lost=..., frame_bytes_max=...)
    connection.send([b"...", b"..."])

Invariant: frames are handed over in the order they came, and none after `on_lost`, which is called once.
Driven by the event loop, as an asyncio protocol, and by broker/drivers/links.py; runs on asyncio, uvloop and the
simulator's loop alike.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from millpond.model.ports import Buffer
from millpond.net.frames import SCRATCH_BYTES, BadFrameLength, FrameReader


class ClientConnection(asyncio.BufferedProtocol):
    def __init__(
        self, *, on_frame: Callable[[memoryview], None], on_lost: Callable[[], None], frame_bytes_max: int
    ) -> None:
        """Use `open_connection`."""
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._reader = FrameReader(bytearray(SCRATCH_BYTES), frame_bytes_max=frame_bytes_max)
        self._transport: asyncio.Transport
        self._lost = False

    @property
    def is_closing(self) -> bool:
        return self._lost or self._transport.is_closing()

    @property
    def peer(self) -> tuple[str, int]:
        """Where it leads, as the kernel knows it: an address and not a name."""
        host, port, *_ = self._transport.get_extra_info("peername") or ("", 0)
        return host, port

    @property
    def unsent_bytes(self) -> int:
        """What the peer and the network have not taken yet."""
        return self._transport.get_write_buffer_size()

    def send(self, pieces: Sequence[Buffer]) -> None:
        """Whole frames, with their lengths. Nothing happens where the connection is gone."""
        if not self.is_closing:
            self._transport.writelines(pieces)

    def abort(self) -> None:
        """`on_lost` follows soon."""
        self._transport.abort()

    # The event loop's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by name

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.arrived(nbytes)
        try:
            while not self._lost and (frame := self._reader.next_frame()) is not None:
                self._on_frame(frame)
        except BadFrameLength:
            self._transport.abort()
        self._reader.settle()

    def eof_received(self) -> None:
        """The transport closes itself then."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._on_lost()


async def open_connection(
    host: str,
    port: int,
    *,
    on_frame: Callable[[memoryview], None],
    on_lost: Callable[[], None],
    frame_bytes_max: int,
) -> ClientConnection:
    """Raises OSError where nobody answers there; how long to try is the caller's to say."""
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: ClientConnection(on_frame=on_frame, on_lost=on_lost, frame_bytes_max=frame_bytes_max), host, port
    )
    return connection
