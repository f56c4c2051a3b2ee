"""The Queues service: what each of its calls does. Any broker answers; leases are kept by whoever leads a partition."""

from collections.abc import AsyncIterator, Sequence

from millpond.api.anywhere import dead_letters, queues
from millpond.api.grpc.calls import Calls
from millpond.api.grpc.consuming import fill
from millpond.api.grpc.failures import Context, end
from millpond.api.grpc.proto.millpond.v1 import queues_pb2 as wire
from millpond.api.grpc.proto.millpond.v1.queues_pb2_grpc import QueuesServicer
from millpond.api.grpc.queue_messages import check_error, filled, record_of, settled
from millpond.api.grpc.sending import failure_in
from millpond.api.grpc.working import Worker


class Queues(QueuesServicer):
    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._node = calls.node

    # In

    async def Send(self, request: wire.SendRequest, context: Context) -> wire.SendResponse:  # noqa: N802
        calls, name = self._calls, request.topic
        async with calls.holding(request, context):
            queues.check_count(len(request.messages))
            now_ms = self._node.clock.wall_ms()
            caps = queues.caps_of(self._node)
            outgoing = [
                record_of(number, each, now_ms=now_ms, caps=caps) for number, each in enumerate(request.messages)
            ]
            shipment = await queues.send(
                self._node,
                calls.neighbours,
                calls.producing,
                name,
                [record for record, _ in outgoing],
                delayed_by=next((field for _, field in outgoing if field is not None), None),
            )
            if shipment.errors:
                await end(context, failure_in(shipment))
            return wire.SendResponse(
                messages=[
                    wire.SentMessage(message_id=f"{name}/{partition}/{offset}", partition=partition, offset=offset)
                    for partition, offset in shipment.places
                ]
            )

    # Out

    async def Receive(self, request: wire.ReceiveRequest, context: Context) -> wire.ReceiveResponse:  # noqa: N802
        async with self._calls.answering(context):
            handfuls = await queues.receive(
                self._node,
                request.topic,
                request.group,
                count=request.max if request.HasField("max") else queues.RECEIVE_DEFAULT,
                wait_ms=request.wait_ms,
                visibility_ms=request.visibility_ms if request.HasField("visibility_ms") else None,
            )
            return filled(request.topic, handfuls)

    async def Work(self, requests: AsyncIterator[wire.WorkRequest], context: Context) -> None:  # noqa: N802
        async with self._calls.answering(context):
            await Worker(self._node, self._calls.writing(context.write)).run(aiter(requests))

    # What became of them

    async def Ack(self, request: wire.AckRequest, context: Context) -> wire.Settled:  # noqa: N802
        async with self._calls.holding(request, context):
            return settled(request.receipts, await queues.acknowledge(self._node, *_whose(request)))

    async def Nack(self, request: wire.NackRequest, context: Context) -> wire.Settled:  # noqa: N802
        delay_ms = request.delay_ms if request.HasField("delay_ms") else None
        async with self._calls.holding(request, context):
            settlement = await queues.give_back(
                self._node, *_whose(request), delay_ms=delay_ms, error=check_error(request.error)
            )
            return settled(request.receipts, settlement)

    async def Extend(self, request: wire.ExtendRequest, context: Context) -> wire.Settled:  # noqa: N802
        async with self._calls.holding(request, context):
            settlement = await queues.extend(self._node, *_whose(request), visibility_ms=request.visibility_ms)
            return settled(request.receipts, settlement)

    # Letters, and numbers

    async def ListDeadLetters(  # noqa: N802
        self, request: wire.ListDeadLettersRequest, context: Context
    ) -> wire.ListDeadLettersResponse:
        async with self._calls.answering(context):
            page = await dead_letters.page(
                self._node,
                self._calls.reading,
                request.topic,
                request.group if request.HasField("group") else None,
                count=request.count if request.HasField("count") else dead_letters.LETTERS_DEFAULT,
                after=request.after if request.HasField("after") else None,
            )
            answer = wire.ListDeadLettersResponse(topic=page.topic, next=page.next)
            for each in page.letters:
                letter = answer.letters.add(
                    message_id=each.message_id,
                    origin=each.origin,
                    group=each.group or "",
                    attempts=each.attempts or 0,
                    error=each.error or "",
                )
                fill(letter.message, each.record, *each.at)
            return answer

    async def Redrive(self, request: wire.RedriveRequest, context: Context) -> wire.RedriveResponse:  # noqa: N802
        async with self._calls.answering(context):
            count_max = request.max if request.HasField("max") else dead_letters.REDRIVE_MAX
            redriven = await dead_letters.redrive(
                self._node, self._calls.producing, request.topic, request.group, count_max=count_max
            )
            return wire.RedriveResponse(redriven=redriven)

    async def GetStats(self, request: wire.GetStatsRequest, context: Context) -> wire.QueueStats:  # noqa: N802
        async with self._calls.answering(context):
            parts = [
                wire.PartitionDepth(
                    partition=each.partition,
                    ready=each.ready,
                    in_flight=each.leased,
                    waiting=each.waiting,
                    dying=each.doomed,
                    start_offset=each.start,
                    end_offset=each.end,
                )
                for each in await queues.depths(self._node, request.topic, request.group)
            ]
            return wire.QueueStats(
                ready=sum(each.ready for each in parts),
                in_flight=sum(each.in_flight for each in parts),
                waiting=sum(each.waiting for each in parts),
                dying=sum(each.dying for each in parts),
                partitions=parts,
            )


def _whose(request: wire.AckRequest | wire.NackRequest | wire.ExtendRequest) -> tuple[str, str, Sequence[str]]:
    return request.topic, request.group, request.receipts
