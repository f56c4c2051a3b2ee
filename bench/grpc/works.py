"""What is measured of the gRPC door, each as a number of things to do and how to do them.

Driven by worker.py, in a process of its own.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, cast

import grpc

from bench.grpc.names import CONSUME, RAW_FETCH, RAW_PRODUCE, READS, STREAM_MANY, STREAM_ONE, UNARY
from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.api.grpc.proto.millpond.v1 import topics_pb2
from millpond.api.grpc.proto.millpond.v1.messages_pb2_grpc import MessagesStub
from millpond.api.grpc.proto.millpond.v1.topics_pb2_grpc import TopicsStub
from millpond.client.settings import machine_wall_ms
from millpond.model.ids import TimestampMs
from millpond.protocol.records import NewRecord, encode_batch, parse_header

VALUE: Final = b"x" * 100
BATCH_RECORDS: Final = 1_000
CALLS: Final = 64
"""Unary calls on their way at a time."""
IN_REQUEST: Final = 100

Work = Callable[[Any, str, int], Awaitable[int]]
"""With a stub, a topic and how many messages; returns how many it were."""


async def raw_produce(stub: Any, topic: str, count: int) -> int:  # noqa: ANN401
    now_ms = TimestampMs(machine_wall_ms())
    batch = bytes(encode_batch([NewRecord(VALUE, None, now_ms)] * BATCH_RECORDS))
    request = wire.ProduceBatchRequest(topic=topic, partition=0, batch=batch)

    async def requests() -> AsyncIterator[wire.ProduceBatchRequest]:
        for _ in range(count // BATCH_RECORDS):
            yield request

    kept = 0
    async for answer in stub.ProduceBatches(requests()):
        assert not answer.HasField("failure"), answer
        kept += BATCH_RECORDS
    return kept


async def raw_fetch(stub: Any, topic: str, count: int) -> int:  # noqa: ANN401
    done = 0
    while done < count:
        async for answer in stub.FetchBatches(wire.FetchBatchesRequest(topic=topic)):
            first = parse_header(answer.batches).base_offset
            done += answer.next_offset - first
    return done


async def unary_produce(stub: Any, topic: str, count: int) -> int:  # noqa: ANN401
    request = wire.ProduceRequest(messages=[wire.NewMessage(topic=topic, value=VALUE)])
    turns = iter(range(count))

    async def ask() -> None:
        for _ in turns:
            await stub.Produce(request)

    await asyncio.gather(*(ask() for _ in range(CALLS)))
    return count


def stream_produce(in_request: int) -> Work:
    async def work(stub: Any, topic: str, count: int) -> int:  # noqa: ANN401
        request = wire.ProduceRequest(messages=[wire.NewMessage(topic=topic, value=VALUE)] * in_request)

        async def requests() -> AsyncIterator[wire.ProduceRequest]:
            for _ in range(count // in_request):
                yield request

        kept = 0
        async for answer in stub.ProduceStream(requests()):
            assert not answer.HasField("failure"), answer
            kept += len(answer.places)
        return kept

    return work


async def consume(stub: Any, topic: str, count: int) -> int:  # noqa: ANN401
    done = 0
    while done < count:
        async for answer in stub.Consume(wire.ConsumeRequest(topic=topic, count=count - done)):
            done += len(answer.messages)
    return done


WORKS: Final[dict[str, Work]] = {
    RAW_PRODUCE: raw_produce,
    RAW_FETCH: raw_fetch,
    UNARY: unary_produce,
    STREAM_ONE: stream_produce(1),
    STREAM_MANY: stream_produce(IN_REQUEST),
    CONSUME: consume,
}


async def run(work: str, address: str, topic: str, count: int) -> tuple[int, float]:
    """How many it were, and how many seconds they took. A topic that is not read is made for it."""
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        if work not in READS:
            create = topics_pb2.CreateTopicRequest(name=topic, partitions=1)
            await cast("Any", TopicsStub(channel)).CreateTopic(create)
        began = time.perf_counter()
        done = await WORKS[work](MessagesStub(channel), topic, count)
        return done, time.perf_counter() - began
