"""The way of an acknowledgement through three brokers, with nothing on it: sockets, and a write and a sync at each.

A producer hands messages to a leader, which hands them on to two followers; each of the three writes them over zeros
and syncs them; when all have, the leader answers. What comes meanwhile is taken together. How long this takes is the
machine's own: how soon it wakes a process that sleeps, and how soon its disk answers.

Invariant: nothing that was started is left when `close` returns.
"""

import multiprocessing
import os
import select
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

FOLLOWERS = 2
_FILE_BYTES = 16 << 20
_RECEIVE_BYTES = 1 << 20
_TOTAL = Struct(">Q")
"""An answer: how many bytes were kept, of all that ever came."""


class BareChain:
    def __init__(self, directory: Path) -> None:
        self._producer, leader = _connected()
        self._kept_bytes = 0
        links = [_connected() for _ in range(FOLLOWERS)]
        # Started anew rather than forked: the client library under measurement has threads.
        processes = multiprocessing.get_context("spawn")
        self._processes = [
            processes.Process(target=_keep, args=(leader, directory / "leader", [up for up, _ in links])),
            *(
                processes.Process(target=_keep, args=(down, directory / f"follower-{number}", []))
                for number, (_, down) in enumerate(links)
            ),
        ]
        for process in self._processes:
            process.start()
        for each in (leader, *(end for link in links for end in link)):
            each.close()

    def close(self) -> None:
        self._producer.close()
        for process in self._processes:
            process.join()

    def times(self, message: bytes, *, messages_per_s: int, seconds: float, linger_ms: int) -> list[float]:
        """Seconds from when each message was due to its acknowledgement; they are sent every `linger_ms`."""
        wanted, sent = int(messages_per_s * seconds), 0
        times: list[float] = []
        begin = now = time.perf_counter()
        due = begin + linger_ms / 1000
        while len(times) < wanted:
            if now >= due and sent < wanted:
                fresh = min(int((now - begin) * messages_per_s), wanted) - sent
                self._producer.sendall(message * fresh)
                sent += fresh
                due = now + linger_ms / 1000
            readable, _, _ = select.select([self._producer], [], [], max(0.0, due - now))
            now = time.perf_counter()
            if readable:
                acknowledged = (_read_total(self._producer) - self._kept_bytes) // len(message)
                times += [now - begin - number / messages_per_s for number in range(len(times), acknowledged)]
        self._kept_bytes += wanted * len(message)
        return times


def _connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection as brokers have them."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        near = socket.create_connection(door.getsockname())
        far, _ = door.accept()
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


def _keep(upstream: socket.socket, path: Path, followers: Sequence[socket.socket]) -> None:
    """Until upstream has closed."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(file, bytes(_FILE_BYTES), 0)
    os.fsync(file)
    total = at = 0
    while data := upstream.recv(_RECEIVE_BYTES):
        for follower in followers:
            follower.sendall(data)
        at = at if at + len(data) <= _FILE_BYTES else 0
        at += os.pwrite(file, data, at)
        os.fdatasync(file)
        total += len(data)
        for follower in followers:
            while _read_total(follower) < total:
                pass
        upstream.sendall(_TOTAL.pack(total))


def _read_total(connection: socket.socket) -> int:
    """Raises struct.error when the other side has gone."""
    (total,) = _TOTAL.unpack(connection.recv(_TOTAL.size, socket.MSG_WAITALL))
    return int(total)
