"""Redis Streams, with its append-only file: synced before every answer, or once a second."""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from socket import socket

from bench.broker.driving import MARK, MESSAGE, MarkCounter, connect, receive, repeated
from bench.broker.figures import Durability
from bench.broker.peers.cache import DEBIAN_ROOT, HOW, library_path, program, said_by
from bench.broker.peers.pipelining import produce_pipelined
from bench.broker.processes import NotReady, ServerProcess, free_port
from bench.broker.systems import Run, timed_run

_READ_AT_ONCE = 5_000
_ENTRY_HEAD_BYTES_MAX = 80
_MESSAGE_END = MESSAGE[-8:] + b"\r\n"
_SYNC = {Durability.SYNCED: b"always", Durability.NOT_SYNCED: b"everysec"}


class RedisConversation:
    def __init__(self, port: int, queue: str) -> None:
        self.socket = connect(port)
        request = command(b"XADD", queue.encode(), b"*", b"v", MESSAGE)
        self.requests, self.request_bytes = repeated(request), len(request)
        self._lines = 0

    def answered(self, data: bytes) -> int:
        """An answer is two lines: the length of the new id, and the id."""
        if data.startswith(b"-"):
            raise NotReady(data.decode(errors="replace"))
        # A line's end may be cut in two; its second byte comes nowhere else.
        self._lines += data.count(b"\n")
        whole, self._lines = divmod(self._lines, 2)
        return whole


class RunningRedis:
    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        settings = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": directory,
            "appendonly": "yes",
            "appendfsync": "always",
            "auto-aof-rewrite-percentage": 0,
            "save": "",
        }
        options = [part for key, value in settings.items() for part in (f"--{key}", str(value))]
        self.process = ServerProcess([str(_server()), *options], directory, library_path())

    def make_queue(self, name: str, durability: Durability) -> None:
        with connect(self.port) as connection:
            connection.sendall(command(b"CONFIG", b"SET", b"appendfsync", _SYNC[durability]))
            said = receive(connection)
        if not said.startswith(b"+OK"):
            raise NotReady(said.decode(errors="replace"))

    def publisher(self, name: str, durability: Durability) -> RedisConversation:
        return RedisConversation(self.port, name)

    def produce_many(self, name: str, durability: Durability, count: int) -> list[Run]:
        return [produce_pipelined(lambda: self.publisher(name, durability), count, self.process)]

    def consume_many(self, name: str, count: int) -> list[Run]:
        return [timed_run("XREAD, 5,000 at a time", count, self.process, lambda: self._read(name, count))]

    def _read(self, name: str, wanted: int) -> None:
        last = b"0"
        with connect(self.port) as connection:
            for left in count(wanted, -_READ_AT_ONCE):
                if left <= 0:
                    return
                at_once = min(left, _READ_AT_ONCE)
                connection.sendall(command(b"XREAD", b"COUNT", b"%d" % at_once, b"STREAMS", name.encode(), last))
                last = _last_id(_answer_of(connection, at_once))

    def stop(self) -> None:
        self.process.stop()


class Redis:
    name = "Redis Streams"
    durabilities: Mapping[Durability, str] = {
        Durability.SYNCED: "appendfsync always",
        Durability.NOT_SYNCED: "appendfsync everysec",
    }

    def why_not_here(self) -> str | None:
        return None if _server() else f"not fetched: {HOW}"

    def version(self) -> str:
        return said_by(str(_server()), "--version").split()[2].removeprefix("v=")

    def start(self, directory: Path) -> RunningRedis:
        return RunningRedis(directory)


def _server() -> str | None:
    return program("redis-server", DEBIAN_ROOT / "usr" / "bin")


def command(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def _answer_of(connection: socket, messages: int) -> bytes:
    """It ends with the last message's end."""
    data = bytearray()
    counter = MarkCounter()
    while counter.count < messages or not data.endswith(_MESSAGE_END):
        piece = receive(connection)
        counter.add(piece)
        data += piece
    return bytes(data)


def _last_id(answer: bytes) -> bytes:
    """An entry is its id, then a list of its fields: `id, *2, $1, v, $100`, each a line, and then the message."""
    at = answer.rindex(MARK)
    return answer[at - _ENTRY_HEAD_BYTES_MAX : at].split(b"\r\n")[-6]
