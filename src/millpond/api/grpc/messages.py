"""The Messages service: what each of its calls does, by those who know how.

Invariant: a call that ends, by its deadline, because it was cancelled or because its connection is gone, ends whatever
it started; only what is already on its way to disk goes on.
Driven by grpc.aio, one task for each call, on the broker's loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from millpond.api.anywhere.neighbours import Neighbours
from millpond.api.anywhere.producing import Producing
from millpond.api.anywhere.reading import Reading
from millpond.api.grpc.consuming import Consuming
from millpond.api.grpc.failures import Context, Failed, answering, end, failure_of
from millpond.api.grpc.in_order import InOrder
from millpond.api.grpc.limits import GrpcLimits
from millpond.api.grpc.members import Member
from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.api.grpc.proto.millpond.v1.messages_pb2_grpc import MessagesServicer
from millpond.api.grpc.raw_batches import RawBatches
from millpond.api.grpc.sending import Sending
from millpond.broker.node import Node
from millpond.model.addresses import Address
from millpond.model.errors import InvalidRequest, MillpondError
from millpond.model.ids import TopicPartition


class Messages(MessagesServicer):
    def __init__(
        self, node: Node, limits: GrpcLimits, *, kafka: Address, on_error: Callable[[BaseException], None]
    ) -> None:
        """`kafka` is where this broker's own Kafka port is reached."""
        self._node = node
        self._kafka = kafka
        self._limits = limits
        self._on_error = on_error
        self._neighbours = Neighbours(kafka, node.clock, node.rng)
        self._producing = Producing(node, self._neighbours, on_error=on_error)
        self._sending = Sending(self._producing, node.clock)
        self._batches = RawBatches(node, self._neighbours)
        self._consuming = Consuming(node, Reading(node, self._neighbours))
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        await self._producing.close()
        await self._neighbours.close()

    # Sending

    async def Produce(self, request: wire.ProduceRequest, context: Context) -> wire.ProduceResponse:  # noqa: N802
        async with answering(context, self._on_error):
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

        async with answering(context, self._on_error):
            await InOrder(requests, lambda each: self._sending.send(each.messages), self._limits).run(write)

    async def ProduceBatches(  # noqa: N802
        self, requests: AsyncIterator[wire.ProduceBatchRequest], context: Context
    ) -> None:
        async def write(kept: int | MillpondError) -> None:
            if isinstance(kept, int):
                await context.write(wire.ProduceBatchResponse(base_offset=kept))
            else:
                await context.write(wire.ProduceBatchResponse(failure=failure_of(kept).message()))

        async with answering(context, self._on_error):
            await InOrder(requests, self._append, self._limits).run(write)

    async def _append(self, request: wire.ProduceBatchRequest) -> "asyncio.Future[int | MillpondError]":
        if request.partition >= 0:
            return await self._batches.append(TopicPartition(request.topic, request.partition), request.batch)
        answer: asyncio.Future[int | MillpondError] = self._loop.create_future()
        answer.set_result(InvalidRequest(f"partition is {request.partition}; it is at least 0"))
        return answer

    # Reading

    async def Consume(self, request: wire.ConsumeRequest, context: Context) -> None:  # noqa: N802
        async with answering(context, self._on_error):
            await self._consuming.messages(request, context.write)

    async def FetchBatches(self, request: wire.FetchBatchesRequest, context: Context) -> None:  # noqa: N802
        async with answering(context, self._on_error):
            await self._consuming.batches(request, context.write)

    async def Subscribe(self, requests: AsyncIterator[wire.SubscribeRequest], context: Context) -> None:  # noqa: N802
        async with answering(context, self._on_error):
            await Member(self._kafka, self._node.clock, self._node.rng, context.write).run(aiter(requests))
