"""The broker's loop hands work to threads and takes it back; as asyncio promises it."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from millpond.app.loop import THREADS_MAX, BrokerLoop


def run(scenario: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever the scenario gives
    with asyncio.Runner(loop_factory=BrokerLoop) as runner:
        return runner.run(scenario())


def test_work_is_done_in_a_thread_and_gives_its_result_or_what_it_raised() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, divmod, 7, 2) == (3, 1)
        assert await loop.run_in_executor(None, threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, divmod, 7, 0)
        assert await asyncio.to_thread(divmod, 7, 2) == (3, 1)

    run(scenario)


def test_much_work_is_done_side_by_side_and_by_no_more_threads_than_there_may_be() -> None:
    together = threading.Barrier(THREADS_MAX)

    async def scenario() -> set[int]:
        def meet() -> int:
            together.wait(30)
            return threading.get_ident()

        loop = asyncio.get_running_loop()
        return set(await asyncio.gather(*(loop.run_in_executor(None, meet) for _ in range(THREADS_MAX * 3))))

    assert len(run(scenario)) == THREADS_MAX


def test_nobody_is_hurt_by_work_that_ends_when_it_is_not_wanted_any_more() -> None:
    may_end, has_ended = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait(30)
        has_ended.set()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        unwanted = loop.run_in_executor(None, work)
        unwanted.cancel()
        assert await loop.run_in_executor(None, divmod, 7, 2) == (3, 1)
        loop.run_in_executor(None, work)  # and this one outlives the loop

    run(scenario)
    may_end.set()
    assert has_ended.wait(30)


def test_its_threads_end_with_it() -> None:
    def ours() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name.startswith("millpond-")]

    before = set(ours())

    async def scenario() -> None:
        await asyncio.get_running_loop().run_in_executor(None, divmod, 7, 2)

    run(scenario)
    for each in set(ours()) - before:
        each.join(30)
        assert not each.is_alive()
