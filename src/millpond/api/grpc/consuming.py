"""Messages, and raw batches, from a place on: until the end there was, or for as long as the caller wants.

Invariant: no more is read ahead than one answer; the next is read when gRPC has taken what was written, which it does
only as the reader makes room. So a reader that is slow costs the broker a few MiB, however much waits for it.
Driven by the Messages servicer, one task for each call; that task ends with the call, by its deadline or because it was
cancelled, and holds nothing afterwards.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

from millpond.api.anywhere.reading import EARLIEST, LATEST, Place, Read, Reading
from millpond.api.anywhere.refusals import wrong
from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.api.grpc.raw_batches import next_offset
from millpond.broker.node import Node
from millpond.client.messages import Message
from millpond.model.errors import MillpondError, OffsetOutOfRange
from millpond.model.ids import TopicPartition
from millpond.model.limits import KIB
from millpond.protocol.records import Record

MESSAGES_PER_READ: Final = 1_000
"""They are taken out of their batches on the broker's loop, and others wait meanwhile."""
RESPONSE_BYTES_MAX: Final = 256 * KIB
"""Of keys and values in one answer, unless one message alone has more."""
WAIT_MS: Final = 30_000
"""For more, before it is looked again who leads."""
FAILURES_MAX: Final = 20
"""In a row, as while a partition's leader changes, before the caller hears of it."""
RETRY_SECONDS: Final = 0.25

Result = TypeVar("Result")
Write = Callable[[Result], Awaitable[None]]


class Consuming:
    def __init__(self, node: Node, reading: Reading) -> None:
        self._node = node
        self._reading = reading

    # Messages

    async def messages(self, request: wire.ConsumeRequest, write: Write[wire.ConsumeResponse]) -> None:
        positions = await self._positions(request)
        ends = None if request.follow else await self._ends(positions)
        left = request.count or None
        while positions := {at: each for at, each in positions.items() if ends is None or each < ends[at]}:
            count = MESSAGES_PER_READ if left is None else min(left, MESSAGES_PER_READ)
            places = [Place(at, offset) for at, offset in positions.items()]
            reads = await patiently(lambda: self._reading.read(places, count=count, wait_ms=WAIT_MS))  # noqa: B023
            for read in reads:
                for response in _responses(read, None if ends is None else ends[read.at]):
                    await write(response)
                    if left is not None:
                        left -= len(response.messages)
                # Who was served goes to the end of the line, so that a busy partition does not keep others waiting.
                del positions[read.at]
                positions[read.at] = read.next_offset
            if left == 0:
                return

    async def _positions(self, request: wire.ConsumeRequest) -> dict[TopicPartition, int]:
        _check_partition(request.partition)
        self._reading.check(TopicPartition(request.topic, request.partition))
        count = len(self._node.image.topics[request.topic].partitions)
        numbers = [request.partition] if request.HasField("partition") else range(count)
        if len(numbers) > 1 and request.start.WhichOneof("at") == "offset":
            raise wrong("start", "an offset is of one partition; name the partition, or start at a time")
        return {
            (at := TopicPartition(request.topic, number)): await self._start(at, request.start) for number in numbers
        }

    async def _start(self, at: TopicPartition, start: wire.Start) -> int:
        match start.WhichOneof("at"):
            case "offset":
                return _at_least_0("start.offset", start.offset)
            case "timestamp_ms":
                return await self._reading.offset_at(at, _at_least_0("start.timestamp_ms", start.timestamp_ms))
            case "latest" if start.latest:
                return await self._reading.offset_at(at, LATEST)
            case _:
                return await self._reading.offset_at(at, EARLIEST)

    async def _ends(self, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {at: await self._end(at, offset) for at, offset in positions.items()}

    async def _end(self, at: TopicPartition, offset: int) -> int:
        """Who starts behind it is told so, as who follows is: nothing would be read, and nothing said."""
        end = await self._reading.offset_at(at, LATEST)
        if offset > end:
            start = await self._reading.offset_at(at, EARLIEST)
            raise OffsetOutOfRange(f"offset {offset} is not in {at}, which has {start} to {end}")
        return end

    # Batches

    async def batches(self, request: wire.FetchBatchesRequest, write: Write[wire.FetchBatchesResponse]) -> None:
        _check_partition(request.partition)
        at = TopicPartition(request.topic, request.partition)
        self._reading.check(at)
        offset = await self._start(at, request.start)
        end = None if request.follow else await self._end(at, offset)
        while end is None or offset < end:
            place = Place(at, offset)
            found = await patiently(lambda: self._reading.batches(place, wait_ms=WAIT_MS))  # noqa: B023
            if len(found):
                offset = next_offset(found)
                answer = wire.FetchBatchesResponse(batches=bytes(found), next_offset=offset)
                del found  # the reader may be slow, and what was read belongs to a file that may be deleted meanwhile
                await write(answer)


async def patiently(work: Callable[[], Awaitable[Result]]) -> Result:
    failures = 0
    while True:
        try:
            return await work()
        except MillpondError as error:
            failures += 1
            if not error.retriable or failures >= FAILURES_MAX:
                raise
        await asyncio.sleep(RETRY_SECONDS)


def _responses(read: Read, end: int | None) -> Iterator[wire.ConsumeResponse]:
    answer, size = wire.ConsumeResponse(), 0
    for record in read.records:
        if end is not None and record.offset >= end:
            break
        more = len(record.key or b"") + len(record.value or b"")
        if size and size + more > RESPONSE_BYTES_MAX:
            answer.next_offset = record.offset
            yield answer
            answer, size = wire.ConsumeResponse(), 0
        fill(answer.messages.add(), record, *read.at)
        size += more
    if answer.messages:
        answer.next_offset = read.next_offset
        yield answer


def fill(message: wire.Message, record: Record | Message, topic: str, partition: int) -> None:
    message.topic = topic
    message.partition = partition
    message.offset = record.offset
    message.timestamp_ms = record.timestamp
    if record.key is not None:
        message.key = record.key
    if record.value is not None:
        message.value = record.value
    for name, value in record.headers:
        header = message.headers.add(name=name)
        if value is not None:
            header.value = value


def _check_partition(partition: int) -> None:
    _at_least_0("partition", partition)


def _at_least_0(field: str, number: int) -> int:
    if number < 0:
        raise wrong(field, f"{field} is {number}; it is at least 0")
    return number
