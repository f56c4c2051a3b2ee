"""Answers that are ready in one turn of the loop; a simulated one ends at the first bug, so here are the others."""

import asyncio

import pytest

from millpond.net.connection import Connection
from millpond.net.limits import NetworkLimits
from millpond.net.server import FrameServer
from tests.net.peers import Client, PromisingDesk, run, until

pytestmark = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


@pytest.mark.parametrize("how", ["what it answers is not bytes", "the error is not taken"])
def test_a_bug_in_one_answer_keeps_nobody_else_of_its_turn_waiting(loop: str, how: str) -> None:
    desk = PromisingDesk()
    told: list[BaseException] = []

    def take_nothing(error: BaseException, connection: Connection) -> None:
        raise error

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        server = FrameServer(desk.handle, NetworkLimits(), on_error=take_nothing)
        await server.start("127.0.0.1", 0)
        async with await Client.connect(server) as first, await Client.connect(server) as second:
            first.send(b"first")
            second.send(b"second")
            await until(lambda: len(desk.open) == 2)
            bad = desk.open.pop(b"first")
            if how == "the error is not taken":
                bad.fail(ValueError("a bug"))
            else:
                bad.keep(["a text"])  # type: ignore[list-item]
            desk.answer(b"second")
            assert await second.receive() == b"second"
            await first.wait_end()
        await server.stop(grace_seconds=0)

    run(loop, scenario)
    assert len(told) == 1
