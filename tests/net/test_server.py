"""What a server does on every loop: simulated, asyncio's own and uvloop."""

import asyncio
import contextlib
import struct
from functools import partial

import pytest

from millpond.model.errors import InvalidSetting
from millpond.net.answers import Answer, Later
from millpond.net.connection import Connection
from millpond.net.facts import CloseReason
from millpond.net.limits import NetworkLimits
from millpond.net.server import FrameServer
from tests.net.peers import LOOPS, Client, Desk, Errors, echo, framed, run, serving, until

pytestmark = pytest.mark.parametrize("loop", LOOPS)


def test_a_request_is_answered(loop: str) -> None:
    async def scenario() -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            client.send(b"hello")
            assert await client.receive() == b"hello"
            assert server.addresses == [(server.addresses[0][0], server.port)]
            facts = server.facts
            assert (facts.connections_open, facts.connections_total, facts.connections_refused) == (1, 1, 0)
            assert (facts.frames_in, facts.bytes_in, facts.frames_out, facts.bytes_out) == (1, 9, 1, 9)

    run(loop, scenario)


def test_an_answer_of_several_pieces_is_one_frame(loop: str) -> None:
    def handle(frame: memoryview, connection: Connection) -> Answer:
        return [b"head ", bytearray(b"middle "), frame]

    async def scenario() -> None:
        async with serving(handle) as server, await Client.connect(server) as client:
            client.send(b"tail")
            assert await client.receive() == b"head middle tail"

    run(loop, scenario)


def test_large_frames_pass_both_ways(loop: str) -> None:
    bodies = [bytes([n]) * size for n, size in enumerate([3_000_000, 1, 65_532, 65_536, 65_537, 1_200_000])]

    async def scenario() -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            client.send(*bodies)
            assert [await client.receive() for _ in bodies] == bodies

    run(loop, scenario)


def test_more_requests_at_once_than_one_turn_takes_are_all_answered_in_order(loop: str) -> None:
    bodies = [b"%d" % n for n in range(3_000)]

    async def scenario() -> None:
        async with serving(echo) as server, await Client.connect(server) as client:
            client.send(*bodies)
            assert [await client.receive() for _ in bodies] == bodies

    run(loop, scenario)


def test_answers_keep_the_order_of_requests_whichever_is_ready_first(loop: str, desk: Desk) -> None:
    def handle(frame: memoryview, connection: Connection) -> Answer | Later:
        return [frame] if bytes(frame[:3]) == b"now" else desk.handle(frame, connection)

    async def scenario() -> None:
        async with serving(handle) as server, await Client.connect(server) as client:
            client.send(b"1", b"now 2", b"3", b"now 4")
            await until(lambda: len(desk.open) == 2)
            desk.answer(b"3")
            desk.answer(b"1")
            assert [await client.receive() for _ in range(4)] == [b"1", b"now 2", b"3", b"now 4"]

    run(loop, scenario)


def test_a_future_of_the_handlers_own_is_as_good_as_a_coroutine(loop: str) -> None:
    def handle(frame: memoryview, connection: Connection) -> Later:
        future: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        answer: Answer = [frame]
        asyncio.get_running_loop().call_later(0.001, future.set_result, answer)
        return future

    async def scenario() -> None:
        async with serving(handle) as server, await Client.connect(server) as client:
            client.send(b"a", b"b")
            assert [await client.receive(), await client.receive()] == [b"a", b"b"]

    run(loop, scenario)


def test_a_request_without_an_answer_gets_none(loop: str) -> None:
    async def nothing() -> None:
        return None

    def handle(frame: memoryview, connection: Connection) -> Answer | Later | None:
        match bytes(frame):
            case b"none":
                return None
            case b"later none":
                return nothing()
            case _:
                return [frame]

    async def scenario() -> None:
        async with serving(handle) as server, await Client.connect(server) as client:
            client.send(b"none", b"later none", b"ask", b"none", b"ask")
            assert [await client.receive(), await client.receive()] == [b"ask", b"ask"]
            assert (server.facts.frames_in, server.facts.frames_out) == (5, 2)

    run(loop, scenario)


def test_no_more_requests_are_handed_over_than_may_be_in_flight(loop: str, desk: Desk) -> None:
    bodies = [b"%d" % n for n in range(10)]

    async def scenario() -> None:
        async with (
            serving(desk.handle, NetworkLimits(in_flight_max=3)) as server,
            await Client.connect(server) as client,
        ):
            client.send(*bodies)
            for n, body in enumerate(bodies):
                await until(partial(lambda asked: len(desk.asked) == asked, min(n + 3, 10)))
                desk.answer(body)
                assert await client.receive() == body

    run(loop, scenario)


@pytest.mark.parametrize("how", ["in one write", "one by one"])
def test_behind_a_request_that_is_to_be_answered_alone_nothing_is_handed_over(loop: str, how: str, desk: Desk) -> None:
    handed: list[bytes] = []
    bodies = [b"small 1", b"large 2", b"small 3", b"large 4", b"large 5", b"small 6"]

    def handle(frame: memoryview, connection: Connection) -> Later:
        handed.append(bytes(frame))
        if handed[-1].startswith(b"large"):
            connection.answer_alone()
        return desk.handle(frame, connection)

    async def scenario() -> None:
        async with serving(handle) as server, await Client.connect(server) as client:
            for part in [bodies] if how == "in one write" else [[body] for body in bodies]:
                client.send(*part)
                await asyncio.sleep(0.001)
            for body in bodies:
                await until(partial(desk.open.__contains__, body))
                if body.startswith(b"large"):
                    assert handed[-1] == body
                desk.answer(body)
                assert await client.receive() == body

    run(loop, scenario)


@pytest.mark.parametrize("length", [0, -1, 1_001, 2**31 - 1])
def test_an_impossible_length_ends_the_connection_after_the_answers_before_it(loop: str, length: int) -> None:
    async def scenario() -> None:
        async with (
            serving(echo, NetworkLimits(frame_bytes_max=1_000)) as server,
            await Client.connect(server) as client,
        ):
            client.writer.write(framed(b"x" * 1_000) + struct.pack(">i", length))
            assert await client.wait_end() == framed(b"x" * 1_000)
            await until(lambda: server.facts.connections_open == 0)
            assert server.facts.closes[CloseReason.BAD_FRAME_LENGTH] == 1

    run(loop, scenario)


@pytest.mark.parametrize("late", [False, True])
def test_a_bug_in_the_handler_ends_that_connection_and_is_reported(loop: str, late: bool) -> None:
    async def fail() -> Answer:
        raise ZeroDivisionError

    def handle(frame: memoryview, connection: Connection) -> Answer | Later:
        if bytes(frame) == b"bug":
            if late:
                return fail()
            raise ZeroDivisionError
        return [frame]

    async def scenario() -> None:
        errors = Errors()
        async with serving(handle, errors=errors) as server:
            async with await Client.connect(server) as other, await Client.connect(server) as client:
                client.send(b"before", b"bug", b"after")
                assert await client.wait_end() == framed(b"before")
                other.send(b"still here")
                assert await other.receive() == b"still here"
            assert [type(error) for error, _ in errors] == [ZeroDivisionError]
            assert errors[0][1].peer[0] == server.addresses[0][0]
            assert server.facts.closes[CloseReason.HANDLER_FAILED] == 1

    run(loop, scenario)


def test_a_handler_that_was_cancelled_by_somebody_else_ends_the_connection(loop: str) -> None:
    desk, errors = Desk(), Errors()

    async def scenario() -> None:
        async with serving(desk.handle, errors=errors) as server, await Client.connect(server) as client:
            client.send(b"x")
            await until(lambda: bool(desk.open))
            desk.open[b"x"].cancel()
            assert await client.wait_end() == b""
        assert [type(error) for error, _ in errors] == [asyncio.CancelledError]

    run(loop, scenario)


def test_handlers_of_a_connection_that_is_gone_are_cancelled(loop: str, desk: Desk) -> None:
    async def scenario() -> None:
        async with serving(desk.handle) as server:
            async with await Client.connect(server) as client:
                client.send(b"1", b"2")
                await until(lambda: len(desk.open) == 2)
            await until(lambda: server.facts.connections_open == 0 and server.memory_bytes == 0)
            assert sorted(desk.cancelled) == [b"1", b"2"]
            assert server.facts.closes[CloseReason.PEER_CLOSED] == 1

    run(loop, scenario)


def test_a_handler_that_fails_while_it_is_cancelled_is_reported(loop: str) -> None:
    errors, begun = Errors(), list[bytes]()

    async def stubborn() -> Answer:
        begun.append(b"")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            raise ZeroDivisionError

    async def scenario() -> None:
        async with serving(lambda frame, connection: stubborn(), errors=errors) as server:
            async with await Client.connect(server) as client:
                client.send(b"x")
                await until(lambda: bool(begun))
            await until(lambda: bool(errors))
        assert [type(error) for error, _ in errors] == [ZeroDivisionError]

    run(loop, scenario)


def test_a_handler_may_close_the_connection_and_its_answer_still_goes_out(loop: str) -> None:
    def handle(frame: memoryview, connection: Connection) -> Answer:
        if bytes(frame) == b"bye":
            connection.close()
        return [frame]

    async def scenario() -> None:
        async with serving(handle) as server, await Client.connect(server) as client:
            client.send(b"hi", b"bye", b"never read")
            assert await client.wait_end() == framed(b"hi", b"bye")
            await until(lambda: server.facts.connections_open == 0)
            assert server.facts.closes[CloseReason.CLOSED_HERE] == 1
            assert server.facts.frames_in == 2

    run(loop, scenario)


def test_a_connection_may_be_aborted(loop: str, desk: Desk) -> None:
    async def scenario() -> None:
        async with serving(desk.handle) as server, await Client.connect(server) as client:
            client.send(b"x")
            await until(lambda: bool(desk.open))
            server.connections[0].abort()
            assert await client.wait_end() == b""
            await until(lambda: desk.cancelled == [b"x"])

    run(loop, scenario)


def test_hooks_see_a_connection_come_and_go_and_its_extra_stays_with_it(loop: str) -> None:
    seen: list[object] = []

    def come(connection: Connection) -> None:
        connection.extra = f"session {connection.id}"
        seen.append("come")

    def go(connection: Connection, reason: CloseReason) -> None:
        seen.append((connection.extra, reason))

    async def scenario() -> None:
        server = FrameServer(
            lambda frame, connection: [connection.extra.encode()],
            NetworkLimits(),
            on_error=Errors().take,
            on_connect=come,
            on_disconnect=go,
        )
        await server.start("127.0.0.1", 0)
        async with await Client.connect(server) as client:
            client.send(b"who am I")
            assert await client.receive() == b"session 1"
        await until(lambda: server.facts.connections_open == 0)
        await server.stop(grace_seconds=0)
        assert seen == ["come", ("session 1", CloseReason.PEER_CLOSED)]

    run(loop, scenario)


def test_hooks_that_fail_are_reported(loop: str) -> None:
    def fail(*anything: object) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        errors = Errors()
        server = FrameServer(echo, NetworkLimits(), on_error=errors.take, on_connect=fail, on_disconnect=fail)
        await server.start("127.0.0.1", 0)
        async with await Client.connect(server) as client:
            assert await client.wait_end() == b""
            await until(lambda: len(errors) == 2)
        await server.stop(grace_seconds=0)

    run(loop, scenario)


@pytest.mark.parametrize("limits", [NetworkLimits(connections_max=2), NetworkLimits(connections_per_peer_max=2)])
def test_connections_beyond_the_limit_are_refused_until_one_goes(loop: str, limits: NetworkLimits) -> None:
    async def scenario() -> None:
        async with serving(echo, limits) as server, await Client.connect(server) as one:
            async with await Client.connect(server) as two:
                for client in (one, two):
                    client.send(b"x")
                    assert await client.receive() == b"x"
                async with await Client.connect(server) as third:
                    assert await third.wait_end() == b""
                assert (server.facts.connections_open, server.facts.connections_refused) == (2, 1)
            await until(lambda: server.facts.connections_open == 1)
            async with await Client.connect(server) as fourth:
                fourth.send(b"room")
                assert await fourth.receive() == b"room"
            assert server.facts.connections_total == 3

    run(loop, scenario)


def test_a_graceful_stop_answers_what_was_asked_and_closes_the_idle_at_once(loop: str, desk: Desk) -> None:
    async def scenario() -> None:
        async with (
            serving(desk.handle) as server,
            await Client.connect(server) as idle,
            await Client.connect(server) as busy,
        ):
            busy.send(b"1", b"2")
            await until(lambda: len(desk.open) == 2 and server.facts.connections_open == 2)
            stop = asyncio.create_task(server.stop(grace_seconds=60))
            assert await idle.wait_end() == b""
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", busy.writer.get_extra_info("peername")[1])
            busy.send(b"too late")
            desk.answer(b"2")
            desk.answer(b"1")
            assert (await busy.wait_end()).startswith(framed(b"1", b"2"))
            await stop
            assert desk.asked == [b"1", b"2"]
            assert server.facts.closes[CloseReason.STOPPED] == 2

    run(loop, scenario)


def test_a_stop_aborts_what_is_left_after_the_grace(loop: str, desk: Desk) -> None:
    async def scenario() -> None:
        async with serving(desk.handle) as server, await Client.connect(server) as client:
            client.send(b"stuck")
            await until(lambda: bool(desk.open))
            await server.stop(grace_seconds=0.01)
            assert desk.cancelled == [b"stuck"]
            assert server.facts.connections_open == 0
            assert await client.wait_end() == b""

    run(loop, scenario)


def test_a_peer_that_does_not_read_is_not_read_from_and_memory_stays_bounded(loop: str) -> None:
    request_count, answer = 1_000, bytes(100_000)  # 100 MB of answers, were they all made at once
    limits = NetworkLimits(write_buffer_bytes_max=200_000)
    unread_bytes: list[int] = []

    def handle(frame: memoryview, connection: Connection) -> Answer:
        unread_bytes.append(connection.unread_bytes)
        return [answer]

    async def scenario() -> None:
        async with serving(handle, limits) as server, await Client.connect(server, buffer_bytes=1_000) as client:
            client.send(*([b"more"] * request_count))
            await until(lambda: bool(server.connections) and not server.connections[0].reading)
            assert server.facts.frames_in < request_count
            for _ in range(request_count):
                assert len(await client.receive()) == len(answer)
        assert max(unread_bytes) <= limits.write_buffer_bytes_max + len(answer)

    run(loop, scenario)


def test_a_limit_out_of_range_is_refused(loop: str) -> None:
    with pytest.raises(InvalidSetting, match="in_flight_max is 0; allowed is at least 1"):
        NetworkLimits(in_flight_max=0)
    with pytest.raises(InvalidSetting, match="frame_bytes_max"):
        NetworkLimits(frame_bytes_max=2**31)


def test_a_handler_may_keep_the_frame_and_stamp_it(loop: str) -> None:
    kept: list[memoryview] = []

    def handle(frame: memoryview, connection: Connection) -> Answer:
        frame[:1] = b"!"
        kept.append(frame)
        return [frame]

    async def scenario() -> None:
        async with serving(handle) as server, await Client.connect(server) as client:
            client.send(*(b"%05d" % n for n in range(200)), b"x" * 200_000)
            for _ in range(201):
                assert (await client.receive())[:1] == b"!"
        assert [bytes(frame) for frame in kept[:200]] == [b"!%04d" % n for n in range(200)]

    run(loop, scenario)


def test_a_connection_that_resets_is_forgotten(loop: str) -> None:
    async def scenario() -> None:
        async with serving(echo) as server:
            client = await Client.connect(server)
            client.send(b"x")
            assert await client.receive() == b"x"
            client.writer.transport.abort()
            await until(lambda: server.facts.connections_open == 0)
            with contextlib.suppress(OSError):
                await client.writer.wait_closed()

    run(loop, scenario)
