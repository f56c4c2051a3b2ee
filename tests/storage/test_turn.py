"""Turns at a log's files: in order, one at a time, by tasks and by callbacks alike."""

import asyncio

import pytest

from millpond.storage.turn import Turn


def test_turns_are_had_in_the_order_they_were_asked_for() -> None:
    async def scenario() -> None:
        turn, had = Turn(), list[str]()

        async def task(name: str) -> None:
            async with turn:
                had.append(name)
                await asyncio.sleep(0)

        def callback() -> None:
            had.append("callback")
            turn.release()

        async with asyncio.TaskGroup() as group, turn:
            group.create_task(task("first"))
            await asyncio.sleep(0)
            turn.take(callback)
            group.create_task(task("last"))
            await asyncio.sleep(0)
            assert had == []
        assert had == ["first", "callback", "last"]
        assert not turn.locked()

    asyncio.run(scenario())


def test_a_turn_that_is_free_is_had_at_once() -> None:
    async def scenario() -> None:
        turn, had = Turn(), list[str]()
        turn.take(lambda: had.append("callback"))
        assert had == ["callback"]
        assert turn.locked()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_granted", [False, True], ids=["waiting", "granted"])
def test_who_gives_up_leaves_the_turn_to_the_next(is_granted: bool) -> None:
    async def scenario() -> None:
        turn, had = Turn(), list[str]()
        await turn.acquire()
        giving_up = asyncio.ensure_future(turn.acquire())
        await asyncio.sleep(0)
        turn.take(lambda: had.append("next"))
        if is_granted:
            turn.release()
            await asyncio.sleep(0)  # granted, and not yet gone on
            assert not giving_up.done()
        giving_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await giving_up
        if not is_granted:
            turn.release()
        for _ in range(3):
            await asyncio.sleep(0)
        assert had == ["next"]

    asyncio.run(scenario())
