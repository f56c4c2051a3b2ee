"""RabbitMQ's quorum queue: messages are pushed, so many at most unacknowledged, and acknowledged all up to one.

Acknowledgements are not answered; a run ends with a request that is, behind them.
"""

from bench.broker.driving import MarkCounter, connect
from bench.broker.peers import amqp
from bench.queues.flowing import Stream


class RabbitReceiver:
    def __init__(self, stream: Stream, early: bytes, *, unacknowledged_max: int) -> None:
        """Use `open`."""
        self._stream = stream
        self._unacknowledged_max = unacknowledged_max
        self._counter = MarkCounter()
        self._counter.add(early)
        self._acknowledged = 0

    @classmethod
    async def open(cls, port: int, queue: str, *, at_once: int) -> "RabbitReceiver":
        unacknowledged_max = 1 if at_once == 1 else 2 * at_once
        channel = amqp.Channel(connect(port))
        early = amqp.consume(channel, queue, unacknowledged_max=unacknowledged_max)
        return cls(await Stream.over(channel.socket), early, unacknowledged_max=unacknowledged_max)

    async def turn(self) -> int:
        while self._counter.count == self._acknowledged:
            self._counter.add(await self._stream.read())
        # A channel numbers what it delivers from one on.
        self._stream.write(amqp.acknowledgement(self._counter.count))
        count, self._acknowledged = self._counter.count - self._acknowledged, self._counter.count
        return count

    async def finish(self) -> None:
        request, answer = amqp.barrier(self._unacknowledged_max)
        self._stream.write(request)
        data = b""
        while answer not in data:
            data += await self._stream.read()

    def close(self) -> None:
        self._stream.close()
