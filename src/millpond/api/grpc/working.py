"""One consumer of a queue, as long as its call lasts: given messages as it has room, it says what became of each.

Invariants: no more messages are with it than it allows, and none is leased for it before the last answer was taken by
gRPC, which takes it only as the reader makes room. What it was given and did not settle is given back when the call
ends, for whatever reason; a message whose time is up is no longer with it. Requests are answered in their order.
Driven by the Queues servicer, one for each call.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final

from millpond.api.anywhere import queues
from millpond.api.anywhere.refusals import check, wrong
from millpond.api.grpc.consuming import patiently
from millpond.api.grpc.proto.millpond.v1 import queues_pb2 as wire
from millpond.api.grpc.queue_messages import check_error, filled, settled
from millpond.broker.node import Node
from millpond.model.errors import MillpondError
from millpond.model.limits import RECEIPTS_MAX, RECEIVE_MESSAGES_MAX, RECEIVE_WAIT_MS_MAX

PER_DELIVERY_MAX: Final = 100
"""So that a consumer with much room is not given all of it at once."""

Write = Callable[[wire.WorkResponse], Awaitable[None]]


class Worker:
    def __init__(self, node: Node, write: Write) -> None:
        self._node = node
        self._unguarded = write
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._held: dict[str, float] = {}
        """Receipts, and when their time is up."""
        self._changed = asyncio.Event()
        self._topic = self._group = ""
        self._unsettled_max = 0
        self._visibility_ms: int | None = None

    async def run(self, requests: AsyncIterator[wire.WorkRequest]) -> None:
        self._begin(await anext(requests, None))
        delivering = self._loop.create_task(self._deliver())
        settling = self._loop.create_task(self._settle(requests))
        try:
            done, _ = await asyncio.wait((delivering, settling), return_when=asyncio.FIRST_COMPLETED)
            for work in done:
                work.result()
        finally:
            for work in (delivering, settling):
                work.cancel()
            await asyncio.gather(delivering, settling, return_exceptions=True)
            await self._give_back()

    def _begin(self, first: wire.WorkRequest | None) -> None:
        if first is None or first.WhichOneof("what") != "begin":
            raise wrong("begin", "the first request is no begin; say which topic and which group")
        begin = first.begin
        self._topic, self._group = begin.topic, begin.group
        queues.find_queue(self._node, begin.topic)
        queues.check_group(begin.group)
        self._unsettled_max = begin.unsettled_max if begin.HasField("unsettled_max") else queues.RECEIVE_DEFAULT
        check("unsettled_max", self._unsettled_max, least=1, most=RECEIVE_MESSAGES_MAX)
        self._visibility_ms = begin.visibility_ms if begin.HasField("visibility_ms") else None

    async def _write(self, response: wire.WorkResponse) -> None:
        async with self._turn:
            await self._unguarded(response)

    # Messages

    async def _deliver(self) -> None:
        while True:
            room = await self._wait_room()
            handfuls = await patiently(lambda: self._receive(room))  # noqa: B023
            if not handfuls:
                continue
            until = self._loop.time() + self._lock_ms / 1000
            delivery = filled(self._topic, handfuls)
            self._held.update((each.receipt, until) for each in delivery.messages)
            await self._write(wire.WorkResponse(delivery=delivery))

    async def _receive(self, room: int) -> list[queues.Handful]:
        return await queues.receive(
            self._node,
            self._topic,
            self._group,
            count=min(room, PER_DELIVERY_MAX),
            wait_ms=RECEIVE_WAIT_MS_MAX,
            visibility_ms=self._visibility_ms,
        )

    @property
    def _lock_ms(self) -> int:
        return self._visibility_ms or self._node.queues.config(self._group).lock_ms

    async def _wait_room(self) -> int:
        while True:
            self._forget_late()
            room = self._unsettled_max - len(self._held)
            if room > 0:
                return room
            self._changed.clear()
            try:
                async with asyncio.timeout_at(min(self._held.values())):
                    await self._changed.wait()
            except TimeoutError:
                pass  # one's time is up

    def _forget_late(self) -> None:
        now = self._loop.time()
        for receipt in [receipt for receipt, until in self._held.items() if until <= now]:
            del self._held[receipt]

    # What became of them

    async def _settle(self, requests: AsyncIterator[wire.WorkRequest]) -> None:
        async for request in requests:
            await self._write(wire.WorkResponse(settled=await self._settled(request)))

    async def _settled(self, request: wire.WorkRequest) -> wire.Settled:
        node, topic, group = self._node, self._topic, self._group
        match request.WhichOneof("what"):
            case "ack":
                receipts = request.ack.receipts
                settlement = await queues.acknowledge(node, topic, group, receipts)
                self._forget(receipts)
            case "nack":
                nack, receipts = request.nack, request.nack.receipts
                delay_ms = nack.delay_ms if nack.HasField("delay_ms") else None
                settlement = await queues.give_back(
                    node, topic, group, receipts, delay_ms=delay_ms, error=check_error(nack.error)
                )
                self._forget(receipts)
            case "extend":
                span_ms, receipts = request.extend.visibility_ms, request.extend.receipts
                settlement = await queues.extend(node, topic, group, receipts, visibility_ms=span_ms)
                self._keep(receipts, self._loop.time() + span_ms / 1000)
            case _:
                raise wrong("begin", "a consumer begins once; after that it settles, or ends the call")
        return settled(receipts, settlement)

    def _forget(self, receipts: Iterable[str]) -> None:
        for receipt in receipts:
            self._held.pop(receipt, None)
        self._changed.set()

    def _keep(self, receipts: Sequence[str], until: float) -> None:
        self._held.update((receipt, until) for receipt in receipts if receipt in self._held)
        self._changed.set()

    async def _give_back(self) -> None:
        """As if each had been given back: so a consumer that dies of its messages does not get them for ever."""
        self._forget_late()
        held = list(self._held)
        try:
            for start in range(0, len(held), RECEIPTS_MAX):
                part = held[start : start + RECEIPTS_MAX]
                await queues.give_back(
                    self._node, self._topic, self._group, part, delay_ms=None, error="the call ended"
                )
        except MillpondError:
            pass  # their time will be up
