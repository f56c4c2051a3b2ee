"""What needs virtual time, a bad network or many peers."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.net.answers import Answer, Later
from millpond.net.connection import Connection
from millpond.net.facts import CloseReason
from millpond.net.limits import NetworkLimits
from millpond.net.server import FrameServer, Handle
from millpond.testing.links import Conditions
from millpond.testing.simulation import Simulation, simulate
from tests.net.peers import NORMAL, Client, Desk, Errors, echo, framed, run, serving, until


async def serve_on_host(sim: Simulation, handle: Handle, limits: NetworkLimits = NORMAL) -> FrameServer:
    async def start() -> FrameServer:
        server = FrameServer(handle, limits, on_error=Errors().take)
        await server.start("0.0.0.0", 9092)
        return server

    return await sim.host("server").run(start())


async def on_client(sim: Simulation, program: Coroutine[Any, Any, None]) -> None:
    await sim.host("client").run(program)


@settings(max_examples=25)
@given(st.integers(0, 1 << 30), st.lists(st.binary(min_size=1, max_size=2_000), min_size=1, max_size=30), st.data())
def test_whatever_the_network_does_to_the_bytes_answers_equal_requests(
    seed: int, bodies: list[bytes], data: st.DataObject
) -> None:
    late = data.draw(st.lists(st.booleans(), min_size=len(bodies), max_size=len(bodies)))

    async def scenario(sim: Simulation) -> None:
        sim.network.set_conditions(Conditions(fragment_chance=0.9, loss_chance=0.05))
        which = iter(late)

        async def later(frame: memoryview) -> Answer:
            await asyncio.sleep(sim.rng.random())
            return [frame]

        def handle(frame: memoryview, connection: Connection) -> Answer | Later:
            return later(frame) if next(which) else [frame]

        server = await serve_on_host(sim, handle, NetworkLimits(in_flight_max=4, memory_bytes_max=3_000))

        async def ask() -> None:
            async with await Client.connect(server, host="server") as client:
                client.send(*bodies)
                async with asyncio.timeout(3_000):
                    assert await client.reader.readexactly(len(framed(*bodies))) == framed(*bodies)

        await on_client(sim, ask())
        await until(lambda: server.memory_bytes == 0)

    simulate(seed, scenario)


def test_bytes_that_arrive_one_by_one_make_the_same_frames() -> None:
    async def scenario(sim: Simulation) -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            for byte in framed(b"one", b"second", b"3"):
                client.writer.write(bytes([byte]))
                await asyncio.sleep(1)
            assert [await client.receive() for _ in range(3)] == [b"one", b"second", b"3"]

    simulate(1, scenario)


def test_an_idle_connection_is_closed_after_its_time_and_not_before() -> None:
    async def scenario(sim: Simulation) -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            for _ in range(3):
                await asyncio.sleep(500)
                client.send(b"still here")
                assert await client.receive() == b"still here"
            last = sim.loop.time()
            assert await client.wait_end(1_000) == b""
            assert 599 < sim.loop.time() - last < 602
            assert server.facts.closes[CloseReason.IDLE] == 1

    simulate(1, scenario)


def test_a_connection_that_waits_for_an_answer_is_not_idle(desk: Desk) -> None:
    async def scenario(sim: Simulation) -> None:
        async with serving(desk.handle) as server, await Client.connect(server) as client:
            client.send(b"long poll")
            await asyncio.sleep(5_000)
            desk.answer(b"long poll")
            answered = sim.loop.time()
            assert await client.receive() == b"long poll"
            await client.wait_end(1_000)
            assert sim.loop.time() - answered > 599
            assert server.facts.closes[CloseReason.IDLE] == 1

    simulate(1, scenario)


@pytest.mark.parametrize("begun", [b"\0", framed(b"x" * 100_000)[:50_000], framed(b"whole") + b"\0\0\0\5h"])
def test_a_frame_that_does_not_come_to_its_end_closes_the_connection(begun: bytes) -> None:
    async def scenario(sim: Simulation) -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            client.writer.write(begun)
            began = sim.loop.time()
            await client.wait_end(1_000)
            assert 29.9 < sim.loop.time() - began < 31
            assert server.facts.closes[CloseReason.SLOW_SENDER] == 1

    simulate(1, scenario)


def test_a_trickle_of_bytes_does_not_prolong_a_frames_time() -> None:
    async def scenario(sim: Simulation) -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            client.writer.write(framed(b"x" * 1_000)[:4])
            while server.facts.connections_open or not server.facts.connections_total:
                client.writer.write(b"x")
                await asyncio.sleep(0.5)
            assert sim.loop.time() < 32
            assert server.facts.closes[CloseReason.SLOW_SENDER] == 1

    simulate(1, scenario)


def test_a_frame_held_back_by_us_has_its_time_anew(desk: Desk) -> None:
    async def scenario(sim: Simulation) -> None:
        limits = NetworkLimits(in_flight_max=1)
        async with serving(desk.handle, limits) as server, await Client.connect(server) as client:
            client.writer.write(framed(b"1", b"2", b"3")[:-1])
            await asyncio.sleep(1_000)
            desk.answer(b"1")
            await until(lambda: b"2" in desk.open)
            desk.answer(b"2")
            await asyncio.sleep(20)
            client.writer.write(b"3")
            await until(lambda: b"3" in desk.open)
            desk.answer(b"3")
            assert [await client.receive() for _ in range(3)] == [b"1", b"2", b"3"]
            assert server.facts.connections_open == 1

    simulate(1, scenario)


def test_a_peer_that_reads_nothing_is_cut_off_after_its_time() -> None:
    async def scenario(sim: Simulation) -> None:
        handle: Handle = lambda frame, connection: [bytes(1_000_000)]  # noqa: E731
        async with serving(handle) as server, await Client.connect(server, buffer_bytes=1_000) as client:
            client.send(b"all of it")
            await until(lambda: server.facts.connections_open == 1)
            await asyncio.sleep(125)
            assert server.facts.closes[CloseReason.SLOW_READER] == 1
            assert server.facts.connections_open == 0

    simulate(1, scenario)


def test_a_peer_on_a_thin_line_that_reads_on_is_served() -> None:
    async def scenario(sim: Simulation) -> None:
        handle: Handle = lambda frame, connection: [bytes(5_000_000)]  # noqa: E731
        async with serving(handle) as server, await Client.connect(server, buffer_bytes=1_000) as client:
            client.send(b"all of it")
            for _ in range(50):
                await client.reader.readexactly(100_000)
                await asyncio.sleep(20)
            assert sim.loop.time() > 900
            assert server.facts.connections_open == 1

    simulate(1, scenario)


def test_a_peer_that_is_told_to_go_and_does_not_read_is_cut_off_as_well() -> None:
    def handle(frame: memoryview, connection: Connection) -> Answer:
        connection.close()
        return [bytes(200_000)]

    async def scenario(sim: Simulation) -> None:
        async with serving(handle) as server, await Client.connect(server, buffer_bytes=1_000) as client:
            client.send(b"x")
            await asyncio.sleep(125)
            assert server.facts.closes[CloseReason.CLOSED_HERE] == 1
            assert server.facts.connections_open == 0

    simulate(1, scenario)


@pytest.mark.parametrize("seed", range(4))
def test_memory_stays_within_its_budget_and_everybody_is_answered_in_the_end(seed: int) -> None:
    budget_bytes, frame_bytes, peers = 1_000_000, 300_000, 20
    limits = NetworkLimits(memory_bytes_max=budget_bytes, frame_bytes_max=frame_bytes, frame_seconds=1_000)
    most: list[int] = []

    async def scenario(sim: Simulation) -> None:
        async def later(frame: memoryview) -> Answer:
            most.append(server.memory_bytes)
            await asyncio.sleep(0.1 + sim.rng.random())
            return [frame[:1]]

        async def ask() -> None:
            async with await Client.connect(server) as client:
                client.send(*([b"x" * frame_bytes] * 3))
                async with asyncio.timeout(1_000):
                    assert await client.reader.readexactly(15) == framed(b"x", b"x", b"x")

        async with serving(lambda frame, connection: later(frame), limits) as server:
            await asyncio.gather(*(ask() for _ in range(peers)))
            assert server.facts.closes[CloseReason.SLOW_SENDER] == 0
        assert len(most) == 3 * peers
        assert budget_bytes / 2 < max(most) < budget_bytes + frame_bytes + peers * 64 * 1024

    simulate(seed, scenario)


def test_half_sent_frames_cannot_fill_the_memory_for_ever() -> None:
    limits = NetworkLimits(memory_bytes_max=100_000)

    async def scenario(sim: Simulation) -> None:
        async with serving(echo, limits) as server:
            hoarders = [await Client.connect(server) for _ in range(10)]
            for client in hoarders:
                client.writer.write(framed(b"x" * 90_000)[:60_000])
            await until(lambda: server.memory_bytes > 100_000)
            async with await Client.connect(server) as honest:
                honest.send(b"small")
                assert await honest.receive() == b"small"
                honest.send(b"y" * 200_000)
                async with asyncio.timeout(100):
                    assert await honest.reader.readexactly(200_004) == framed(b"y" * 200_000)
            for client in hoarders:
                await client.wait_end(1_000)
                client.writer.close()
            assert server.facts.closes[CloseReason.SLOW_SENDER] == 10

    simulate(1, scenario)


def test_a_thousand_connections_each_get_their_own_answers() -> None:
    async def scenario(sim: Simulation) -> None:
        async def ask(number: int) -> None:
            async with await Client.connect(server) as client:
                gate.arrive()
                await gate.open.wait()
                client.send(b"%d" % number)
                assert await client.receive() == b"%d" % number

        async with serving(echo) as server:
            gate = Gate(1_000)
            await asyncio.gather(*(ask(number) for number in range(1_000)))
            await until(lambda: server.facts.connections_open == 0)
            assert server.facts.connections_total == 1_000
            assert server.facts.closes[CloseReason.PEER_CLOSED] == 1_000

    simulate(1, scenario)


class Gate:
    """Opens when so many have come."""

    def __init__(self, count: int) -> None:
        self.missing = count
        self.open = asyncio.Event()

    def arrive(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.open.set()


def test_handlers_are_cancelled_when_a_partition_outlasts_the_connection(desk: Desk) -> None:
    async def scenario(sim: Simulation) -> None:
        server = await serve_on_host(sim, desk.handle)

        async def ask() -> None:
            async with await Client.connect(server, host="server") as client:
                client.send(b"1", b"2")
                await until(lambda: len(desk.open) == 2)
                sim.network.partition("client", "server")
                desk.answer(b"1")
                await asyncio.sleep(200)

        await on_client(sim, ask())
        assert desk.cancelled == [b"2"]
        assert server.facts.closes[CloseReason.CONNECTION_FAILED] == 1

    simulate(1, scenario)


def test_a_short_partition_delays_answers_and_loses_none() -> None:
    async def scenario(sim: Simulation) -> None:
        server = await serve_on_host(sim, echo)

        async def ask() -> None:
            async with await Client.connect(server, host="server") as client:
                sim.network.partition("client", "server")
                client.send(b"1", b"2")
                await asyncio.sleep(5)
                sim.network.heal()
                assert [await client.receive(), await client.receive()] == [b"1", b"2"]

        await on_client(sim, ask())

    simulate(1, scenario)


def test_handlers_are_cancelled_when_the_peer_is_killed(desk: Desk) -> None:
    async def scenario(sim: Simulation) -> None:
        server = await serve_on_host(sim, desk.handle)

        async def ask() -> None:
            client = await Client.connect(server, host="server")
            client.send(b"x")
            await client.receive()

        sim.host("client").spawn(ask())
        await until(lambda: bool(desk.open))
        sim.host("client").kill()
        await until(lambda: desk.cancelled == [b"x"])
        assert server.facts.closes[CloseReason.CONNECTION_FAILED] == 1

    simulate(1, scenario)


def test_requests_set_no_timers() -> None:
    async def scenario(sim: Simulation) -> None:
        set_timers: list[object] = []
        call_at = sim.loop.call_at

        async with serving(echo) as server, await Client.connect(server) as client:
            (connection,) = server.connections

            def counting(when: float, callback: Any, *args: Any, **options: Any) -> asyncio.TimerHandle:  # noqa: ANN401
                if getattr(callback, "__self__", None) is connection:
                    set_timers.append(callback)
                return call_at(when, callback, *args, **options)

            sim.loop.call_at = counting  # type: ignore[method-assign]
            for _ in range(100):
                client.writer.write(framed(b"x" * 100)[:50])
                await asyncio.sleep(0.01)
                client.writer.write(framed(b"x" * 100)[50:])
                await client.receive()
            assert len(set_timers) == 1  # sooner, for the first frame that came in two pieces

    simulate(1, scenario)


def test_random_peers_leave_nothing_behind() -> None:
    """Some vanish, some send rubbish, some are patient: afterwards no memory is held and no connection open."""

    async def scenario() -> None:
        rng = random.Random(7)

        async def later(frame: memoryview) -> Answer:
            await asyncio.sleep(rng.random() * 100)
            return [frame]

        async def misbehave(server: FrameServer) -> None:
            client = await Client.connect(server)
            for _ in range(rng.randrange(1, 5)):
                client.writer.write(framed(rng.randbytes(rng.randrange(1, 50_000)))[: rng.randrange(1, 60_000)])
                await asyncio.sleep(rng.random())
            if rng.random() < 0.5:
                client.writer.transport.abort()
            else:
                client.writer.close()

        async with serving(lambda frame, _: later(frame), NetworkLimits(memory_bytes_max=100_000)) as server:
            await asyncio.gather(*(misbehave(server) for _ in range(50)))
            await asyncio.sleep(1_000)
            assert server.memory_bytes == 0
            assert server.facts.connections_open == 0

    for seed in range(5):
        run("simulated", scenario, seed=seed)


def test_a_frame_begun_while_the_peer_was_busy_reading_has_its_time_anew(desk: Desk) -> None:
    async def scenario(sim: Simulation) -> None:
        async with serving(desk.handle) as server, await Client.connect(server, buffer_bytes=1_000) as client:
            client.writer.write(framed(b"1", b"2")[:-1])
            await until(lambda: b"1" in desk.open)
            desk.answer(b"1", bytes(1_000_000))
            await asyncio.sleep(50)
            assert len(await client.receive()) == 1_000_000
            client.writer.write(b"2")
            await until(lambda: b"2" in desk.open)
            desk.answer(b"2")
            assert await client.receive() == b"2"
            assert server.facts.connections_open == 1

    simulate(1, scenario)


def test_answers_survive_a_peer_that_goes_on_sending_while_the_server_stops(desk: Desk) -> None:
    async def scenario(sim: Simulation) -> None:
        async with serving(desk.handle) as server, await Client.connect(server) as client:
            client.send(b"1")
            await until(lambda: b"1" in desk.open)
            stop = asyncio.create_task(server.stop(grace_seconds=60))
            client.send(b"too late")
            await asyncio.sleep(1)
            desk.answer(b"1")
            await stop
            await asyncio.sleep(1)
            assert await client.wait_end() == framed(b"1")
            assert desk.asked == [b"1"]

    simulate(1, scenario)


def test_a_peer_that_ends_its_stream_is_gone_even_if_it_does_not_read(desk: Desk) -> None:
    async def scenario(sim: Simulation) -> None:
        async with serving(desk.handle) as server, await Client.connect(server, buffer_bytes=1_000) as client:
            client.send(b"1", b"2")
            await until(lambda: len(desk.open) == 2)
            desk.answer(b"1", bytes(200_000))
            client.writer.write_eof()
            await until(lambda: desk.cancelled == [b"2"])
            await asyncio.sleep(125)
            assert server.facts.connections_open == 0
            assert server.facts.closes[CloseReason.PEER_CLOSED] == 1

    simulate(1, scenario)
