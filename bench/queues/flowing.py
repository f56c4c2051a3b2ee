"""Messages through one queue: some send, as many receive and acknowledge, until all that was sent is done with.

Invariant: a run ends when every message that was sent is acknowledged, as certainly as the server can tell.
One loop drives all of it, for every server the same.
"""

import asyncio
import socket
import time
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from bench.broker.driving import ANSWER_SECONDS_MAX, RECEIVE_BYTES, Conversation

UNDERWAY_MAX: Final = 20_000
"""Messages that were sent and not yet acknowledged; whoever sends waits while there are more."""


class Sender(Protocol):
    async def send(self, count: int) -> None:
        """Returns when all of them are confirmed."""

    def close(self) -> None: ...


class Receiver(Protocol):
    async def turn(self) -> int:
        """Receives some messages, perhaps none, and acknowledges; how many it is done with."""

    async def finish(self) -> None:
        """Returns when the server has taken in all acknowledgements."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Flowed:
    messages: int
    seconds: float


class Stream:
    """The bytes of a connection that was made and greeted before."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, connection: socket.socket) -> "Stream":
        connection.setblocking(False)
        return cls(*await asyncio.open_connection(sock=connection, limit=RECEIVE_BYTES))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def read(self) -> bytes:
        data = await self._reader.read(RECEIVE_BYTES)
        if not data:
            raise EOFError("the server closed the connection")
        return data

    def close(self) -> None:
        self._writer.close()


class ConversationSender:
    def __init__(self, conversation: Conversation, stream: Stream, *, request_messages: int) -> None:
        """Use `open`."""
        self._conversation = conversation
        self._stream = stream
        self._request_messages = request_messages

    @classmethod
    async def open(cls, conversation: Conversation, *, request_messages: int = 1) -> "ConversationSender":
        return cls(conversation, await Stream.over(conversation.socket), request_messages=request_messages)

    async def send(self, count: int) -> None:
        talk = self._conversation
        left = requests = count // self._request_messages
        whole, rest = divmod(requests * talk.request_bytes, len(talk.requests))
        self._stream.write(talk.requests * whole + talk.requests[:rest])
        while left > 0:
            left -= talk.answered(await self._stream.read())

    def close(self) -> None:
        self._stream.close()


class Flow:
    def __init__(self, *, at_once: int, seconds: float) -> None:
        self._at_once = at_once
        self._seconds = seconds
        self._sent = self._done = 0
        self._moved = asyncio.Event()

    async def run(self, senders: Sequence[Sender], receivers: Sequence[Receiver]) -> Flowed:
        began = time.perf_counter()
        receiving = [asyncio.create_task(self._receive(each)) for each in receivers]
        sending = [self._send(each, began + self._seconds) for each in senders]
        try:
            await _unless_one_ends(receiving, self._pass_all(sending))
        finally:
            for task in receiving:
                task.cancel()
            await asyncio.gather(*receiving, return_exceptions=True)
        await asyncio.gather(*(each.finish() for each in receivers))
        return Flowed(self._done, time.perf_counter() - began)

    async def _pass_all(self, sending: Iterable[Coroutine[None, None, None]]) -> None:
        await asyncio.gather(*sending)
        while self._done < self._sent:
            try:
                await asyncio.wait_for(self._next_move(), ANSWER_SECONDS_MAX)
            except TimeoutError:
                raise TimeoutError(f"{self._sent - self._done:,} of {self._sent:,} messages did not come") from None

    async def _send(self, sender: Sender, deadline: float) -> None:
        while time.perf_counter() < deadline:
            while self._sent - self._done >= UNDERWAY_MAX:
                await self._next_move()
            self._sent += self._at_once
            await sender.send(self._at_once)

    async def _receive(self, receiver: Receiver) -> None:
        while True:
            done = await receiver.turn()
            self._done += done
            self._moved.set()

    def _next_move(self) -> Coroutine[None, None, bool]:
        """To be awaited. Counts from the call on: between a look at what is done and a later one, none is missed."""
        self._moved.clear()
        return self._moved.wait()


async def _unless_one_ends(endless: Iterable["asyncio.Task[None]"], work: Coroutine[None, None, None]) -> None:
    """Does the work; those who never end by themselves end only with an error, which is raised."""
    working = asyncio.create_task(work)
    done, _ = await asyncio.wait([working, *endless], return_when=asyncio.FIRST_COMPLETED)
    working.cancel()
    for each in done:
        each.result()
