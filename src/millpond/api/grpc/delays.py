"""The Delays service: messages that wait until they are due. Any broker asks whoever leads their partition."""

from millpond.api.anywhere import delays
from millpond.api.anywhere.delays import PAGE_DEFAULT, PAGE_MAX
from millpond.api.anywhere.refusals import check
from millpond.api.grpc.calls import Calls
from millpond.api.grpc.failures import Context
from millpond.api.grpc.proto.millpond.v1 import delays_pb2 as wire
from millpond.api.grpc.proto.millpond.v1.delays_pb2_grpc import DelaysServicer


class Delays(DelaysServicer):
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def ListDelays(  # noqa: N802
        self, request: wire.ListDelaysRequest, context: Context
    ) -> wire.ListDelaysResponse:
        async with self._calls.answering(context):
            count = request.count if request.HasField("count") else PAGE_DEFAULT
            partition = request.partition if request.HasField("partition") else None
            check("count", count, least=1, most=PAGE_MAX)
            check("partition", partition, least=0, most=2**31 - 1)
            page = await delays.page(
                self._calls.neighbours,
                self._calls.reading,
                request.topic,
                partition=partition,
                after=request.after,
                count=count,
            )
            return wire.ListDelaysResponse(
                pending=page.pending,
                messages=[
                    wire.DelayedMessage(
                        message_id=each.message_id,
                        partition=each.at.partition,
                        offset=each.offset,
                        deliver_at_ms=each.due_ms,
                        is_recurring=each.is_recurring,
                    )
                    for each in page.messages
                ],
                next=page.messages[-1].cursor if len(page.messages) == count else None,
            )

    async def CancelDelay(  # noqa: N802
        self, request: wire.CancelDelayRequest, context: Context
    ) -> wire.CancelDelayResponse:
        async with self._calls.answering(context):
            await self._alter(request.message_id, None)
            return wire.CancelDelayResponse()

    async def RescheduleDelay(  # noqa: N802
        self, request: wire.RescheduleDelayRequest, context: Context
    ) -> wire.RescheduleDelayResponse:
        async with self._calls.answering(context):
            check("deliver_at_ms", request.deliver_at_ms, least=0, most=2**63 - 1)
            await self._alter(request.message_id, request.deliver_at_ms)
            return wire.RescheduleDelayResponse()

    async def _alter(self, message_id: str, due_ms: int | None) -> None:
        await delays.alter(self._calls.neighbours, self._calls.reading, message_id, due_ms)
