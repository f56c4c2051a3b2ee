"""Redis Streams as a queue: a consumer group, each message acknowledged and left in the stream.

What was received is acknowledged in one write with asking for more, so that nobody waits twice.
"""

import re

from bench.broker.driving import MARK, MESSAGE, connect, receive
from bench.broker.peers.redis import command
from bench.broker.processes import NotReady
from bench.queues.flowing import Stream

_GROUP = b"bench"
_WAIT_MS = b"500"
_NOTHING = (b"*-1\r\n", b"$-1\r\n", b"_\r\n")
_COUNT = re.compile(rb"\A\*1\r\n\*2\r\n\$\d+\r\n[^\r]+\r\n\*(\d+)\r\n")
_ID = re.compile(rb"\r\n(\d+-\d+)\r\n\*2\r\n")
_MESSAGE_END = MESSAGE[-8:] + b"\r\n"


def make_group(port: int, queue: str) -> None:
    with connect(port) as connection:
        connection.sendall(command(b"XGROUP", b"CREATE", queue.encode(), _GROUP, b"$", b"MKSTREAM"))
        said = receive(connection)
    if not said.startswith(b"+OK"):
        raise NotReady(said.decode(errors="replace"))


class RedisReceiver:
    def __init__(self, stream: Stream, queue: str, name: str, *, at_once: int) -> None:
        """Use `open`."""
        self._stream = stream
        self._queue = queue.encode()
        who = (b"GROUP", _GROUP, name.encode(), b"COUNT", b"%d" % at_once, b"BLOCK", _WAIT_MS)
        self._read = command(b"XREADGROUP", *who, b"STREAMS", self._queue, b">")
        self._held: list[bytes] = []
        """Of what was received, and not acknowledged, the ids."""

    @classmethod
    async def open(cls, port: int, queue: str, name: str, *, at_once: int) -> "RedisReceiver":
        return cls(await Stream.over(connect(port)), queue, name, at_once=at_once)

    async def turn(self) -> int:
        held, self._held = self._held, []
        self._stream.write(command(b"XACK", self._queue, _GROUP, *held) + self._read if held else self._read)
        data = await self._stream.read()
        if held:
            while b"\r\n" not in data:
                data += await self._stream.read()
            said, _, data = data.partition(b"\r\n")
            if said != b":%d" % len(held):
                raise NotReady(f"{said!r} came for {len(held)} acknowledgements")
            data = data or await self._stream.read()
        if data not in _NOTHING:
            while not _is_whole(data):
                data += await self._stream.read()
            self._held = _ID.findall(data)
        return len(held)

    async def finish(self) -> None:
        assert not self._held, "every acknowledgement was answered"

    def close(self) -> None:
        self._stream.close()


def _is_whole(data: bytes) -> bool:
    if data.startswith(b"-"):
        raise NotReady(data.decode(errors="replace"))
    found = _COUNT.match(data)
    return found is not None and data.count(MARK) == int(found[1]) and data.endswith(_MESSAGE_END)
