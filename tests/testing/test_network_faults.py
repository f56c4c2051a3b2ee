"""Partitions, losses, hosts that go down, and datagrams: the simulated network in bad weather."""

import asyncio
import errno

import pytest

from millpond.testing.links import Conditions
from millpond.testing.simulation import Simulation, simulate
from tests.testing.peers import pair, serve

# --- Bad weather ---------------------------------------------------------------------------------


def test_bytes_stall_in_a_partition_and_arrive_when_it_heals() -> None:
    async def scenario(sim: Simulation) -> None:
        client, server = await pair(sim)
        sim.network.partition("client", ["server"])
        client.transport.write(b"patience")
        await asyncio.sleep(20)
        assert server.pieces == []
        sim.network.heal("client", "server")
        await asyncio.sleep(30)
        assert b"".join(server.pieces) == b"patience"
        assert client.events == server.events == ["made"]

    simulate(1, scenario)


def test_a_connection_silent_for_too_long_dies_at_the_end_that_sends() -> None:
    async def scenario(sim: Simulation) -> None:
        sim.network.set_conditions(Conditions(give_up_ms=5000), source="client", target="server")
        client, server = await pair(sim)
        sim.network.isolate("server")
        started = sim.loop.time()
        client.transport.write(b"hello?")
        await client.lost.wait()
        assert 5 <= sim.loop.time() - started < 5.5
        assert isinstance(client.failure, TimeoutError)
        assert client.failure.errno == errno.ETIMEDOUT
        sim.network.heal()
        await asyncio.sleep(100)
        assert server.events == ["made"]  # half open: nobody told the other end
        server.transport.write(b"are you there?")
        await asyncio.sleep(1)
        assert isinstance(server.failure, ConnectionResetError)

    simulate(1, scenario)


def test_in_a_one_way_cut_bytes_arrive_and_the_sender_never_learns() -> None:
    async def scenario(sim: Simulation) -> None:
        client, server = await pair(sim)
        sim.network.cut_one_way(source="server", target="client")
        client.transport.write(b"heard")
        server.transport.write(b"not heard")
        await asyncio.sleep(10)
        assert b"".join(server.pieces) == b"heard"
        assert client.pieces == []
        await asyncio.sleep(100)
        assert isinstance(client.failure, TimeoutError)  # its bytes were never acknowledged
        assert isinstance(server.failure, TimeoutError)

    simulate(1, scenario)


def test_in_a_one_way_cut_bytes_go_unacknowledged_even_while_nobody_reads_them() -> None:
    async def scenario(sim: Simulation) -> None:
        client, server = await pair(sim)
        server.transport.pause_reading()
        sim.network.cut_one_way(source="server", target="client")
        client.transport.write(b"arrived")
        await asyncio.sleep(100)
        assert isinstance(client.failure, TimeoutError)

    simulate(1, scenario)


def test_a_reader_that_stands_still_for_a_day_is_no_reason_to_give_up() -> None:
    async def scenario(sim: Simulation) -> None:
        client, server = await pair(sim)
        server.transport.pause_reading()
        client.transport.write(bytes(100_000))
        await asyncio.sleep(80_000)
        server.transport.resume_reading()
        await asyncio.sleep(1)
        assert sum(map(len, server.pieces)) == 100_000

    simulate(1, scenario)


def test_a_sender_learns_of_room_made_during_a_cut_once_it_heals() -> None:
    async def scenario(sim: Simulation) -> None:
        client, server = await pair(sim)
        server.transport.pause_reading()
        client.transport.write(bytes(100_000))
        await asyncio.sleep(10)
        sim.network.cut_one_way(source="server", target="client")
        server.transport.resume_reading()
        await asyncio.sleep(10)
        assert sum(map(len, server.pieces)) == 64 * 1024
        sim.network.heal()
        await asyncio.sleep(30)
        assert sum(map(len, server.pieces)) == 100_000

    simulate(1, scenario)


def test_a_one_way_cut_that_heals_in_time_loses_and_repeats_nothing() -> None:
    async def scenario(sim: Simulation) -> None:
        client, server = await pair(sim)
        sim.network.cut_one_way(source="server", target="client")
        for _ in range(30):
            client.transport.write(bytes(10_000))
        await asyncio.sleep(10)
        assert sum(map(len, server.pieces)) == 64 * 1024  # the window, which nobody could open again
        sim.network.heal()
        await asyncio.sleep(30)
        assert sum(map(len, server.pieces)) == 300_000
        assert client.failure is None

    simulate(1, scenario)


def test_connecting_through_a_partition_times_out() -> None:
    async def scenario(sim: Simulation) -> float:
        await serve(sim)
        sim.network.partition("outside", "server")
        started = sim.loop.time()
        with pytest.raises(TimeoutError) as caught:
            await asyncio.open_connection("server", 9092)
        assert caught.value.errno == errno.ETIMEDOUT
        return sim.loop.time() - started

    assert simulate(1, scenario) == pytest.approx(20)


def test_connecting_succeeds_when_the_partition_heals_in_time() -> None:
    async def scenario(sim: Simulation) -> None:
        await serve(sim)
        sim.network.partition("outside", "server")
        sim.loop.call_later(5, sim.network.heal)
        _, writer = await asyncio.open_connection("server", 9092)
        writer.close()

    simulate(1, scenario)


def test_a_lost_segment_holds_up_those_behind_it_and_not_other_connections() -> None:
    async def scenario(sim: Simulation) -> tuple[float, float]:
        await serve(sim)

        async def round_trip() -> float:
            reader, writer = await asyncio.open_connection("server", 9092)
            started = sim.loop.time()
            writer.write(b"x")
            await reader.readexactly(1)
            writer.close()
            return sim.loop.time() - started

        sim.network.set_conditions(Conditions(loss_chance=0.3, tail_chance=0))
        first, second = await asyncio.gather(round_trip(), round_trip())
        return first, second

    results = [simulate(seed, scenario) for seed in range(20)]
    assert any(first > 0.2 and second < 0.01 for first, second in results)
    assert any(second > 0.2 and first < 0.01 for first, second in results)


# --- Hosts that go down --------------------------------------------------------------------------


def test_peers_of_a_killed_host_are_reset_and_new_ones_refused_until_it_is_back() -> None:
    async def scenario(sim: Simulation) -> None:
        client, server = await pair(sim)
        sim.host("server").kill()
        await asyncio.sleep(1)
        assert isinstance(client.failure, ConnectionResetError)
        assert server.events == ["made"]  # the dead hear nothing
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("server", 9092)
        await serve(sim)
        _, writer = await asyncio.open_connection("server", 9092)
        writer.close()

    simulate(1, scenario)


def test_a_host_without_power_is_silent_and_resets_old_connections_once_it_is_back() -> None:
    async def scenario(sim: Simulation) -> None:
        client, _ = await pair(sim)
        sim.host("server").cut_power()
        client.transport.write(b"hello?")
        with pytest.raises(TimeoutError):
            await asyncio.open_connection("server", 9092)
        assert client.events == ["made"]
        await serve(sim)
        await asyncio.sleep(30)
        assert isinstance(client.failure, ConnectionResetError)

    simulate(1, scenario)


def test_what_a_host_sent_before_it_lost_power_may_still_arrive() -> None:
    async def scenario(sim: Simulation) -> bytes:
        client, server = await pair(sim)
        server.transport.write(b"last words")
        sim.host("server").cut_power()
        await asyncio.sleep(1)
        return b"".join(client.pieces)

    assert simulate(1, scenario) == b"last words"


def test_a_paused_host_takes_connections_and_bytes_and_answers_when_resumed() -> None:
    async def scenario(sim: Simulation) -> None:
        await serve(sim)
        sim.host("server").pause()
        reader, writer = await asyncio.open_connection("server", 9092)
        writer.write(b"ping")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(4), timeout=300)
        sim.host("server").resume()
        assert await asyncio.wait_for(reader.readexactly(4), timeout=5) == b"ping"
        writer.close()

    simulate(1, scenario)


# --- Datagrams -----------------------------------------------------------------------------------


def test_datagrams_are_lost_doubled_and_overtaken_but_never_changed() -> None:
    class Inbox(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.numbers: list[int] = []

        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            assert addr[0] == "client"
            self.numbers.append(int(data))

    async def scenario(sim: Simulation) -> list[int]:
        sim.network.set_conditions(Conditions(loss_chance=0.1, duplicate_chance=0.1))

        async def listen() -> Inbox:
            return (await sim.loop.create_datagram_endpoint(Inbox, local_addr=("0.0.0.0", 53)))[1]

        async def send() -> None:
            transport, _ = await sim.loop.create_datagram_endpoint(Inbox, remote_addr=("server", 53))
            for number in range(100):
                transport.sendto(b"%d" % number)
            transport.close()

        inbox = await sim.host("server").run(listen())
        await sim.host("client").run(send())
        await asyncio.sleep(1)
        before = list(inbox.numbers)
        sim.network.partition("client", "server")
        await sim.host("client").run(send())
        await asyncio.sleep(10)
        assert inbox.numbers == before
        return before

    numbers = simulate(1, scenario)
    assert set(numbers) < set(range(100))
    assert len(set(numbers)) < len(numbers)
    assert numbers != sorted(numbers)
