"""Connections between simulated hosts in good weather, for unmodified asyncio code."""

import asyncio
import errno
import socket
import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.testing.links import Conditions
from millpond.testing.simulation import Simulation, simulate
from tests.testing.peers import echo, pair, serve


def test_an_echo_server_on_streams_works_unmodified() -> None:
    async def scenario(sim: Simulation) -> bytes:
        await serve(sim)

        async def client() -> bytes:
            reader, writer = await asyncio.open_connection("server", 9092)
            assert writer.get_extra_info("peername") == ("server", 9092)
            assert writer.get_extra_info("sockname")[0] == "client"
            writer.writelines([b"hello ", b"there"])
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return answer

        return await sim.host("client").run(client())

    assert simulate(1, scenario) == b"hello there"


@settings(max_examples=30)
@given(st.integers(), st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=20))
def test_bytes_arrive_in_order_and_once_however_they_are_cut_delayed_and_lost(seed: int, writes: list[bytes]) -> None:
    async def scenario(sim: Simulation) -> list[bytes]:
        client, server = await pair(sim)
        sim.network.set_conditions(Conditions(loss_chance=0.2, fragment_chance=0.6, tail_chance=0.2, window_bytes=256))
        for data in writes:
            client.transport.write(data)
        client.transport.write_eof()
        await asyncio.sleep(3600)
        assert server.events == ["made", "eof"]
        return server.pieces

    assert b"".join(simulate(seed, scenario)) == b"".join(writes)


def test_one_write_arrives_in_different_pieces_at_different_seeds() -> None:
    async def scenario(sim: Simulation) -> tuple[int, ...]:
        client, server = await pair(sim)
        client.transport.write(bytes(50))
        client.transport.write(bytes(50))
        await asyncio.sleep(1)
        return tuple(map(len, server.pieces))

    shapes = {simulate(seed, scenario) for seed in range(40)}
    assert {sum(shape) for shape in shapes} == {100}
    assert (100,) in shapes  # both in one read
    assert (50, 50) in shapes
    assert len(shapes) > 5


def test_a_protocol_with_its_own_buffer_is_fed_through_it() -> None:
    class Buffered(asyncio.BufferedProtocol):
        buffer = bytearray(7)
        received = b""

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.received += self.buffer[:nbytes]

    async def scenario(sim: Simulation) -> bytes:
        await serve(sim)
        transport, protocol = await sim.loop.create_connection(Buffered, "server", 9092)
        transport.write(b"more than seven bytes")
        await asyncio.sleep(5)
        transport.close()
        return protocol.received

    assert simulate(1, scenario) == b"more than seven bytes"


def test_a_fast_writer_and_a_slow_reader_hold_a_bounded_number_of_bytes() -> None:
    async def scenario(sim: Simulation) -> None:
        held_bytes_max = written = read = 0
        release = asyncio.Event()

        async def read_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal read
            await release.wait()
            while data := await reader.read(10_000):
                read += len(data)
            writer.close()

        async def write_fast() -> None:
            nonlocal written, held_bytes_max
            _, writer = await asyncio.open_connection("server", 9092)
            sim.loop.call_later(100, release.set)
            for _ in range(500):
                writer.write(bytes(10_000))
                written += 10_000
                held_bytes_max = max(held_bytes_max, written - read)
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        await serve(sim, read_slowly)
        await sim.host("client").run(write_fast())
        await asyncio.sleep(10)
        assert read == written == 5_000_000
        # the writer's buffer, the window, the reader's own limit (twice 64 KiB), and a write
        assert 100_000 < held_bytes_max < 5 * 64 * 1024

    simulate(1, scenario)


def test_a_writer_is_paused_above_high_water_and_resumed_below_low_water() -> None:
    async def scenario(sim: Simulation) -> None:
        client, server = await pair(sim)
        server.transport.pause_reading()
        client.transport.set_write_buffer_limits(high=1000, low=100)
        client.transport.write(bytes(64 * 1024))  # the window takes all of it
        assert client.transport.get_write_buffer_size() == 0
        client.transport.write(bytes(1001))
        assert client.events == ["made", "pause"]
        await asyncio.sleep(1)
        assert server.pieces == []
        assert client.events == ["made", "pause"]
        server.transport.resume_reading()
        await asyncio.sleep(1)
        assert client.events == ["made", "pause", "resume"]
        assert sum(map(len, server.pieces)) == 64 * 1024 + 1001

    simulate(1, scenario)


def test_each_half_of_a_connection_can_be_closed_alone() -> None:
    async def scenario(sim: Simulation) -> None:
        client, server = await pair(sim)
        client.transport.write_eof()
        with pytest.raises(RuntimeError, match="after write_eof"):
            client.transport.write(b"too late")
        await asyncio.sleep(1)
        assert server.events == ["made", "eof"]
        server.transport.write(b"still here")
        await asyncio.sleep(1)
        assert b"".join(client.pieces) == b"still here"
        server.transport.close()
        await asyncio.sleep(1)
        assert client.events == ["made", "eof"]
        client.transport.close()
        await asyncio.sleep(1)
        assert (client.failure, server.failure) == (None, None)
        assert client.events == server.events == ["made", "eof", "lost"]

    simulate(1, scenario)


def test_close_sends_what_is_buffered_first() -> None:
    async def scenario(sim: Simulation) -> None:
        client, server = await pair(sim)
        client.transport.write(bytes(300_000))
        client.transport.close()
        client.transport.write(b"ignored")
        assert client.transport.is_closing()
        await asyncio.sleep(10)
        assert sum(map(len, server.pieces)) == 300_000
        assert (client.events[-1], client.failure) == ("lost", None)
        assert server.events == ["made", "eof"]

    simulate(1, scenario)


def test_abort_resets_the_peer() -> None:
    async def scenario(sim: Simulation) -> None:
        client, server = await pair(sim)
        client.transport.abort()
        await asyncio.sleep(1)
        assert (client.events, client.failure) == (["made", "lost"], None)
        assert server.events == ["made", "lost"]
        assert isinstance(server.failure, ConnectionResetError)

    simulate(1, scenario)


def test_closing_with_unread_bytes_resets_the_peer_as_linux_does() -> None:
    async def scenario(sim: Simulation) -> None:
        client, server = await pair(sim)
        server.transport.pause_reading()
        client.transport.write(b"never read")
        await asyncio.sleep(1)
        server.transport.close()
        await asyncio.sleep(1)
        assert isinstance(client.failure, ConnectionResetError)

    simulate(1, scenario)


def test_writing_to_a_closed_peer_is_answered_with_a_reset() -> None:
    async def scenario(sim: Simulation) -> None:
        client, server = await pair(sim)
        server.transport.close()
        await asyncio.sleep(1)
        assert client.events == ["made", "eof"]
        client.transport.write(b"anybody there?")
        await asyncio.sleep(1)
        assert isinstance(client.failure, ConnectionResetError)

    simulate(1, scenario)


def test_a_failing_protocol_fails_the_simulation() -> None:
    class Failing(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            raise LookupError("cannot parse")

    async def scenario(sim: Simulation) -> None:
        await serve(sim)
        transport, _ = await sim.loop.create_connection(Failing, "server", 9092)
        transport.write(b"?")
        await asyncio.sleep(10)

    with pytest.raises(LookupError, match="cannot parse"):
        simulate(1, scenario)


# --- Servers and addresses -----------------------------------------------------------------------


def test_a_server_has_the_face_of_an_asyncio_server() -> None:
    async def scenario(sim: Simulation) -> None:
        server = await asyncio.start_server(echo, ["127.0.0.1", "::1"], 0, start_serving=False)
        assert not server.is_serving()
        host, port = server.sockets[0].getsockname()
        assert host == "outside"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("localhost", port)
        await server.start_serving()
        assert server.is_serving()
        _, writer = await asyncio.open_connection("localhost", port)
        await asyncio.sleep(1)
        server.close()
        assert server.sockets == ()
        closed = asyncio.create_task(server.wait_closed())
        await asyncio.sleep(1)
        assert not closed.done()  # a connection is open still
        writer.close()
        await closed

    simulate(1, scenario)


def test_two_servers_cannot_share_an_address_but_hosts_have_their_own_ports() -> None:
    async def scenario(sim: Simulation) -> None:
        await serve(sim)
        with pytest.raises(OSError, match="in use") as caught:
            await sim.host("server").run(asyncio.start_server(echo, port=9092))
        assert caught.value.errno == errno.EADDRINUSE
        await sim.host("other").run(asyncio.start_server(echo, port=9092))
        with pytest.raises(OSError, match="cannot listen"):
            await sim.host("other").run(asyncio.start_server(echo, "server", 9093))

    simulate(1, scenario)


def test_connecting_to_nobody_is_refused_and_to_an_unknown_name_an_error() -> None:
    async def scenario(sim: Simulation) -> None:
        sim.host("quiet")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("quiet", 9092)
        with pytest.raises(socket.gaierror):
            await asyncio.open_connection("nowhere", 9092)
        assert (await sim.loop.getaddrinfo("quiet", 80))[0][4] == ("quiet", 80)

    simulate(1, scenario)


def test_tls_is_refused_in_words() -> None:
    async def scenario(sim: Simulation) -> None:
        with pytest.raises(NotImplementedError, match="no TLS"):
            await asyncio.open_connection("localhost", 9092, ssl=ssl.create_default_context())

    simulate(1, scenario)


def test_a_datagram_to_a_group_reaches_all_who_joined_it() -> None:
    group = ("239.1.2.3", 7000)

    class Ear(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.heard: list[tuple[bytes, str]] = []

        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            self.heard.append((data, addr[0]))

    async def scenario(sim: Simulation) -> dict[str, list[tuple[bytes, str]]]:
        async def listen(joins: bool) -> tuple[asyncio.DatagramTransport, Ear]:
            endpoint, ear = await sim.loop.create_datagram_endpoint(Ear, group)
            if joins:
                member = socket.inet_aton(group[0]) + socket.inet_aton("0.0.0.0")
                endpoint.get_extra_info("socket").setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            return endpoint, ear

        ends = {name: await sim.host(name).run(listen(name != "c")) for name in "abc"}
        ends["a"][0].sendto(b"here", group)
        await asyncio.sleep(1)
        return {name: ear.heard for name, (_, ear) in ends.items()}

    assert simulate(1, scenario) == {"a": [(b"here", "a")], "b": [(b"here", "a")], "c": []}


def test_a_name_stands_for_the_hosts_it_was_given() -> None:
    async def scenario(sim: Simulation) -> None:
        sim.network.name("all.example", ["a", "b"])
        found = await sim.loop.getaddrinfo("all.example", 9092)
        assert [address for *_, address in found] == [("a", 9092), ("b", 9092)]
        sim.network.name("all.example", [])
        with pytest.raises(socket.gaierror):
            await sim.loop.getaddrinfo("all.example", 9092)

    simulate(1, scenario)
