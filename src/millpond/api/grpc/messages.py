"""The Messages service: what each of its calls does, by those who know how.

Invariant: a call that ends, by its deadline, because it was cancelled or because its connection is gone, ends whatever
it started; only what is already on its way to disk goes on.
Driven by grpc.aio, one task for each call, on the broker's loop.
"""

import asyncio
from collections.abc import AsyncIterator

from millpond.api.grpc.calls import Calls
from millpond.api.grpc.consuming import Consuming
from millpond.api.grpc.failures import Context, Failed, end, failure_of
from millpond.api.grpc.in_order import Begin, InOrder, Request, Response
from millpond.api.grpc.members import Member
from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.api.grpc.proto.millpond.v1.messages_pb2_grpc import MessagesServicer
from millpond.api.grpc.raw_batches import RawBatches
from millpond.api.grpc.sending import Sending
from millpond.model.errors import InvalidRequest, MillpondError
from millpond.model.ids import TopicPartition


class Messages(MessagesServicer):
    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._sending = Sending(calls.node, calls.neighbours, calls.producing)
        self._batches = RawBatches(calls.node, calls.neighbours)
        self._consuming = Consuming(calls.node, calls.reading)
        self._loop = asyncio.get_running_loop()

    # Sending

    async def Produce(self, request: wire.ProduceRequest, context: Context) -> wire.ProduceResponse:  # noqa: N802
        async with self._calls.holding(request, context):
            sent = await (await self._sending.send(request.messages))
            if isinstance(sent, Failed):
                await end(context, sent)
            return wire.ProduceResponse(places=sent)

    async def ProduceStream(  # noqa: N802
        self, requests: AsyncIterator[wire.ProduceRequest], context: Context
    ) -> None:
        async def write(sent: list[wire.Place] | Failed) -> None:
            if isinstance(sent, Failed):
                await context.write(wire.ProduceStreamResponse(failure=sent.message()))
            else:
                await context.write(wire.ProduceStreamResponse(places=sent))

        async with self._calls.answering(context):
            await self._in_order(requests, lambda each: self._sending.send(each.messages)).run(write)

    async def ProduceBatches(  # noqa: N802
        self, requests: AsyncIterator[wire.ProduceBatchRequest], context: Context
    ) -> None:
        async def write(kept: int | MillpondError) -> None:
            if isinstance(kept, int):
                await context.write(wire.ProduceBatchResponse(base_offset=kept))
            else:
                await context.write(wire.ProduceBatchResponse(failure=failure_of(kept).message()))

        async with self._calls.answering(context):
            await self._in_order(requests, self._append).run(write)

    def _in_order(
        self, requests: AsyncIterator[Request], begin: Begin[Request, Response]
    ) -> InOrder[Request, Response]:
        return InOrder(requests, begin, self._calls.limits, self._calls.requests_memory)

    async def _append(self, request: wire.ProduceBatchRequest) -> "asyncio.Future[int | MillpondError]":
        if request.partition >= 0:
            return await self._batches.append(TopicPartition(request.topic, request.partition), request.batch)
        answer: asyncio.Future[int | MillpondError] = self._loop.create_future()
        answer.set_result(InvalidRequest(f"partition is {request.partition}; it is at least 0"))
        return answer

    # Reading

    async def Consume(self, request: wire.ConsumeRequest, context: Context) -> None:  # noqa: N802
        async with self._calls.answering(context):
            await self._consuming.messages(request, self._calls.writing(context.write))

    async def FetchBatches(self, request: wire.FetchBatchesRequest, context: Context) -> None:  # noqa: N802
        async with self._calls.answering(context):
            await self._consuming.batches(request, self._calls.writing(context.write))

    async def Subscribe(self, requests: AsyncIterator[wire.SubscribeRequest], context: Context) -> None:  # noqa: N802
        async with self._calls.answering(context):
            calls = self._calls
            member = Member(calls.kafka, calls.node.clock, calls.node.rng, calls.writing(context.write))
            await member.run(aiter(requests))
