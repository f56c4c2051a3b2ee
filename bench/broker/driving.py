"""A client that costs next to nothing: requests encoded beforehand, connections driven by one loop.

    conversation   one connection, past its greeting: what to send, and how many answers some bytes hold
    drive          keeps `window` requests under way on each of some conversations, for a while

Invariant: a server is never owed more than it was asked, and every request sent is answered before `drive` returns.
The same loop drives every server, so what it costs is the same for all.
"""

import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.measuring import percentile

MARK = b"<<message>>"
"""Every message begins with it, so that messages in a stream can be counted without parsing it."""
MESSAGE_BYTES = 100
MESSAGE = MARK + b"." * (MESSAGE_BYTES - len(MARK))
RECEIVE_BYTES = 1 << 18
ANSWER_SECONDS_MAX = 30.0


class Conversation(Protocol):
    socket: socket.socket
    requests: bytes
    """Frames of one size, sent in turns."""
    request_bytes: int

    def answered(self, data: bytes) -> int:
        """How many requests these bytes complete; raises what the server refuses with."""


@dataclass(frozen=True, slots=True)
class Driven:
    requests: int
    seconds: float
    client_cpu_seconds: float
    ascending_seconds: list[float]
    """How long each took; empty where several were under way at once."""

    def microseconds(self, share: float) -> float:
        return percentile(self.ascending_seconds, share) * 1e6


def connect(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def repeated(request: bytes) -> bytes:
    """For a conversation that always asks the same."""
    return request * max(1, (1 << 16) // len(request))


def receive(connection: socket.socket) -> bytes:
    data = connection.recv(RECEIVE_BYTES)
    if not data:
        raise EOFError("the server closed the connection")
    return data


def drive(conversations: Sequence[Conversation], *, window: int, seconds: float, requests_max: int) -> Driven:
    lanes = {each.socket.fileno(): _Lane(each) for each in conversations}
    latencies: list[float] = []
    poll = select.epoll()
    for fileno in lanes:
        poll.register(fileno, select.EPOLLIN)
    sent = window * len(lanes)
    answered = 0
    cpu_began, began = time.process_time(), time.perf_counter()
    deadline = began + seconds
    try:
        for lane in lanes.values():
            lane.send(window)
        while answered < sent:
            ready = poll.poll(ANSWER_SECONDS_MAX)
            if not ready:
                raise TimeoutError(f"no answer within {ANSWER_SECONDS_MAX} s")
            for fileno, _ in ready:
                lane = lanes[fileno]
                count = lane.receive()
                if not count:
                    continue
                answered += count
                now = time.perf_counter()
                if window == 1:
                    latencies.append(now - lane.sent_at)
                if now < deadline and sent < requests_max:
                    lane.send(count)
                    sent += count
    finally:
        poll.close()
    ended = time.perf_counter()
    return Driven(answered, ended - began, time.process_time() - cpu_began, sorted(latencies))


class _Lane:
    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._position = 0
        self.sent_at = 0.0

    def send(self, count: int) -> None:
        talk = self._conversation
        self.sent_at = time.perf_counter()
        size = count * talk.request_bytes
        while size:
            piece = talk.requests[self._position : self._position + size]
            talk.socket.sendall(piece)
            self._position = (self._position + len(piece)) % len(talk.requests)
            size -= len(piece)

    def receive(self) -> int:
        return self._conversation.answered(receive(self._conversation.socket))


class MarkCounter:
    """Messages in a stream of bytes, wherever it is cut."""

    def __init__(self) -> None:
        self.count = 0
        self._rest = b""

    def add(self, data: bytes) -> None:
        joined = self._rest + data
        self.count += joined.count(MARK)
        self._rest = joined[1 - len(MARK) :]


def count_messages(connection: socket.socket, wanted: int, *, early: bytes = b"") -> None:
    """Returns when so many have come, those in `early` included, which came before."""
    counter = MarkCounter()
    counter.add(early)
    while counter.count < wanted:
        counter.add(receive(connection))
