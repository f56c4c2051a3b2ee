"""NATS JetStream, on files: synced before every answer, or every two minutes, which is its default.

The setting is the server's, so each durability has a server of its own.
"""

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from socket import socket
from typing import Any

from bench.broker.driving import MESSAGE, MESSAGE_BYTES, connect, count_messages, receive, repeated
from bench.broker.figures import Durability
from bench.broker.peers.cache import CACHE, HOW, program, said_by
from bench.broker.peers.pipelining import produce_pipelined
from bench.broker.processes import NotReady, ServerProcess, free_port
from bench.broker.systems import Run, timed_run

BINARIES = CACHE / "nats"
_SYNC = {Durability.SYNCED: "always", Durability.NOT_SYNCED: "2m"}
_ACKNOWLEDGED = b'"seq":'
_numbers = count(1)
"""So that no two connections listen on the same subject."""


class NatsConversation:
    def __init__(self, port: int, queue: str) -> None:
        self.socket = greeted(port)
        inbox = b"inbox.%d" % next(_numbers)
        self.socket.sendall(b"SUB %b 1\r\n" % inbox)
        request = b"PUB %b %b %d\r\n%b\r\n" % (queue.encode(), inbox, MESSAGE_BYTES, MESSAGE)
        self.requests, self.request_bytes = repeated(request), len(request)
        self._rest = b""

    def answered(self, data: bytes) -> int:
        data = self._rest + data
        if b'"error"' in data or b"-ERR" in data:
            raise NotReady(data[:200].decode(errors="replace"))
        # Cut behind the last whole answer, so that nothing is counted twice.
        end = data.rfind(b"}\r\n") + 3 if b"}\r\n" in data else 0
        self._rest = data[end:]
        return data.count(_ACKNOWLEDGED, 0, end)


class RunningNats:
    def __init__(self, directory: Path, durability: Durability) -> None:
        self.port = free_port()
        settings = directory / "nats.conf"
        settings.write_text(
            f'listen: "127.0.0.1:{self.port}"\nmax_pending: 1GB\nping_interval: "1h"\n'
            f'jetstream {{ store_dir: "{directory}/data", sync_interval: "{_SYNC[durability]}", max_file: 4GB }}\n'
        )
        self.process = ServerProcess([str(_server()), "-c", str(settings)], directory)

    def make_queue(self, name: str, durability: Durability) -> None:
        with greeted(self.port) as connection:
            ask(connection, f"STREAM.CREATE.{name}", {"name": name, "subjects": [name], "storage": "file"})

    def publisher(self, name: str, durability: Durability) -> NatsConversation:
        return NatsConversation(self.port, name)

    def produce_many(self, name: str, durability: Durability, count: int) -> list[Run]:
        return [produce_pipelined(lambda: self.publisher(name, durability), count, self.process)]

    def consume_many(self, name: str, count: int) -> list[Run]:
        return [timed_run("pushed, not acknowledged", count, self.process, lambda: self._read(name, count))]

    def _read(self, name: str, count: int) -> None:
        with greeted(self.port) as connection:
            inbox = f"inbox.{next(_numbers)}"
            connection.sendall(f"SUB {inbox} 2\r\n".encode())
            consumer = {"deliver_subject": inbox, "deliver_policy": "all", "ack_policy": "none"}
            early = ask(connection, f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": consumer})
            count_messages(connection, count, early=early)

    def stop(self) -> None:
        self.process.stop()


class Nats:
    name = "NATS JetStream"

    def __init__(self, durability: Durability) -> None:
        self._durability = durability
        self.durabilities: Mapping[Durability, str] = {durability: f"sync_interval {_SYNC[durability]}"}

    def why_not_here(self) -> str | None:
        return None if _server() else f"not fetched: {HOW}"

    def version(self) -> str:
        return said_by(str(_server()), "--version").split()[-1].removeprefix("v")

    def start(self, directory: Path) -> RunningNats:
        return RunningNats(directory, self._durability)


def _server() -> str | None:
    return program("nats-server", BINARIES)


def greeted(port: int) -> socket:
    connection = connect(port)
    connection.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
    _receive_until(connection, b"PONG\r\n")
    return connection


def ask(connection: socket, subject: str, body: dict[str, Any]) -> bytes:
    """All that came with the answer."""
    inbox, payload = f"inbox.{next(_numbers)}", json.dumps(body)
    connection.sendall(f"SUB {inbox} 1\r\nPUB $JS.API.{subject} {inbox} {len(payload)}\r\n{payload}\r\n".encode())
    answer = _receive_until(connection, b"}\r\n")
    if b'"error"' in answer:
        raise NotReady(answer.decode(errors="replace"))
    return answer


def _receive_until(connection: socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        data += receive(connection)
    return data
