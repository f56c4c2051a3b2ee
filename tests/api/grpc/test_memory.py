"""Memory of all calls together: bounded, in turns, and told when there is none."""

import asyncio
from typing import Any

import grpc
import pytest

from millpond.api.anywhere.refusals import Refusal
from millpond.api.grpc import limits
from millpond.api.grpc.memory import Memory
from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.model.limits import KIB, MIB
from millpond.testing.broker import InProcessBroker
from tests.api.grpc.asking import SECONDS_MAX, Door


def test_room_is_had_in_the_order_of_asking() -> None:
    async def scenario() -> None:
        memory = Memory(100, wait_seconds=SECONDS_MAX)
        await memory.take(60)
        large, small = asyncio.ensure_future(memory.take(50)), asyncio.ensure_future(memory.take(10))
        await asyncio.sleep(0)
        assert (memory.held_bytes, memory.waiting_bytes) == (60, 60), "what is small does not overtake"
        memory.give(60)
        await asyncio.gather(large, small)
        assert (memory.held_bytes, memory.waiting_bytes) == (60, 0)

    asyncio.run(scenario())


def test_one_alone_always_has_room_and_too_many_who_wait_are_told() -> None:
    async def scenario() -> None:
        memory = Memory(100, wait_seconds=SECONDS_MAX)
        await memory.take(1_000)
        waiting = asyncio.ensure_future(memory.take(80))
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="ask again"):
            await memory.take(30)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (memory.held_bytes, memory.waiting_bytes) == (1_000, 0)
        memory.give(1_000)
        assert memory.held_bytes == 0

    asyncio.run(scenario())


def test_who_waits_too_long_is_told() -> None:
    async def scenario() -> None:
        memory = Memory(100, wait_seconds=0)
        await memory.take(100)
        with pytest.raises(Refusal, match="ask again"):
            await memory.take(1)
        assert (memory.held_bytes, memory.waiting_bytes) == (100, 0)

    asyncio.run(scenario())


def _begun(reader: Any) -> grpc.StatusCode | None:  # noqa: ANN401
    try:
        next(reader)
    except grpc.RpcError as error:
        return error.code()
    return None


def test_who_gives_up_leaves_its_place_to_the_next() -> None:
    async def scenario() -> None:
        memory = Memory(100, wait_seconds=SECONDS_MAX)
        await memory.take(100)
        first, second = asyncio.ensure_future(memory.take(60)), asyncio.ensure_future(memory.take(40))
        await asyncio.sleep(0)
        first.cancel()
        memory.give(100)  # before the first had its turn to go
        await second
        await asyncio.gather(first, return_exceptions=True)
        assert (memory.held_bytes, memory.waiting_bytes) == (40, 0)

    asyncio.run(scenario())


def test_slow_readers_together_hold_no_more_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    few = limits.GrpcLimits(answers_bytes_max=600 * KIB, memory_wait_seconds=0.2)
    monkeypatch.setattr(limits, "GrpcLimits", lambda: few)
    with InProcessBroker(grpc=True) as broker, grpc.insecure_channel(broker.grpc_address) as channel:
        door = Door(channel)
        for _ in range(20):
            door.produce(*[wire.NewMessage(topic="large", value=bytes(100 * KIB))] * 8)
        server = broker.broker._doors.grpc._server  # type: ignore[union-attr]
        memory = server.calls.answers_memory  # type: ignore[union-attr]
        readers = [door.messages.Consume(wire.ConsumeRequest(topic="large"), timeout=SECONDS_MAX) for _ in range(12)]
        codes = [_begun(reader) for reader in readers]  # each is begun, and then nobody reads on
        assert set(codes) == {None, grpc.StatusCode.UNAVAILABLE}
        assert 0 < memory.held_bytes <= few.answers_bytes_max
        for reader in readers:
            reader.cancel()
        while memory.held_bytes:
            pass
        assert sum(len(each.messages) for each in door.messages.Consume(wire.ConsumeRequest(topic="large"))) == 160


def test_requests_that_are_answered_are_no_longer_held() -> None:
    with InProcessBroker(grpc=True) as broker, grpc.insecure_channel(broker.grpc_address) as channel:
        door = Door(channel)
        door.produce(wire.NewMessage(topic="small", value=bytes(MIB // 2)))
        requests = [wire.ProduceRequest(messages=[wire.NewMessage(topic="small", value=bytes(KIB))])] * 50
        assert len(list(door.messages.ProduceStream(iter(requests), timeout=SECONDS_MAX))) == 50
        memory = broker.broker._doors.grpc._server.calls.requests_memory  # type: ignore[union-attr]
        while memory.held_bytes or memory.waiting_bytes:
            pass
