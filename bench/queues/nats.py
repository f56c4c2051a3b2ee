"""NATS JetStream as a queue: a stream that deletes what is acknowledged, and a consumer that is asked for messages.

Each message is acknowledged by itself, as work queues demand; of those that came together the last one's
acknowledgement is answered, and so tells of all. In the same write more is asked for, so that nobody waits twice.
"""

import re
from itertools import count

from bench.broker.driving import MESSAGE
from bench.broker.peers.nats import ask, greeted
from bench.queues.flowing import Stream

_DURABLE = "bench"
_WAIT_NS = 30_000_000_000
_EVENT = re.compile(
    rb"MSG \S+ 1 (\S+) %d\r\n%b\r\n|MSG \S+ 2 (0)\r\n\r\n|HMSG \S+ 1 \d+ \d+\r\n(NATS/1\.0 \d+)[^\n]*\r\n\r\n\r\n"
    % (len(MESSAGE), re.escape(MESSAGE))
)
"""A message and where it is acknowledged; an acknowledgement's answer; the end of a request for messages."""
_numbers = count(1)


def make_work_queue(port: int, queue: str) -> None:
    stream = {"name": queue, "subjects": [queue], "storage": "file", "retention": "workqueue"}
    consumer = {"durable_name": _DURABLE, "ack_policy": "explicit", "max_ack_pending": 100_000}
    with greeted(port) as connection:
        ask(connection, f"STREAM.CREATE.{queue}", stream)
    with greeted(port) as connection:
        ask(connection, f"CONSUMER.CREATE.{queue}.{_DURABLE}", {"stream_name": queue, "config": consumer})


class NatsReceiver:
    def __init__(self, stream: Stream, queue: str, *, at_once: int) -> None:
        """Use `open`."""
        self._stream = stream
        self._at_once = at_once
        number = next(_numbers)
        inbox, self._answers = f"received.{number}", b"answers.%d" % number
        stream.write(b"SUB %b 1\r\nSUB %b 2\r\n" % (inbox.encode(), self._answers))
        body = b'{"batch":%d,"expires":%d}' % (at_once, _WAIT_NS)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{queue}.{_DURABLE}"
        self._more = f"PUB {subject} {inbox} {len(body)}\r\n".encode() + body + b"\r\n"
        self._rest = b""
        self._asked = 0
        """Messages that were asked for and have not come."""
        self._unacknowledged: list[bytes] = []
        self._answered = 0

    @classmethod
    async def open(cls, port: int, queue: str, *, at_once: int) -> "NatsReceiver":
        return cls(await Stream.over(greeted(port)), queue, at_once=at_once)

    async def turn(self) -> int:
        self._stream.write(self._asking())
        while not self._unacknowledged:
            await self._take_in()
            if self._asked == 0 and not self._unacknowledged:
                return 0
        places, self._unacknowledged = self._unacknowledged, []
        *others, last = places
        self._stream.write(
            b"".join(b"PUB %b 4\r\n+ACK\r\n" % place for place in others)
            + b"PUB %b %b 4\r\n+ACK\r\n" % (last, self._answers)
            + self._asking()
        )
        answered = self._answered + 1
        while self._answered < answered:
            await self._take_in()
        return len(places)

    def _asking(self) -> bytes:
        """For more, unless all that was asked for is still to come."""
        if self._asked > 0:
            return b""
        self._asked = self._at_once
        return self._more

    async def _take_in(self) -> None:
        data = self._rest + await self._stream.read()
        end = 0
        for event in _EVENT.finditer(data):
            end = event.end()
            place, answer, _ = event.groups()
            if place is not None:
                self._unacknowledged.append(place)
                self._asked -= 1
            elif answer is not None:
                self._answered += 1
            else:
                self._asked = 0
        self._rest = data[end:]

    async def finish(self) -> None:
        """Every turn ends with an answer."""

    def close(self) -> None:
        self._stream.close()
