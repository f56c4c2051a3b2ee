"""Hosts that are killed, lose power, stand still and come back."""

import asyncio
import gc
import sys

import pytest

from millpond.testing.hosts import Fate, HostDown, alive_here, current_host
from millpond.testing.simulation import Simulation, simulate


async def until_cancelled(effects: list[str]) -> None:
    try:
        await asyncio.sleep(1000)
    finally:
        if alive_here():  # as everything simulated asks before it changes anything
            effects.append("finally")
        await asyncio.sleep(1)


def test_code_knows_the_host_it_runs_on_and_so_do_its_tasks_timers_and_threads() -> None:
    async def scenario(sim: Simulation) -> list[str]:
        names = [current_host()]

        async def program() -> None:
            names.append(current_host())
            sim.loop.call_later(1, lambda: names.append(current_host()))
            await asyncio.create_task(asyncio.sleep(2))
            names.append(await asyncio.to_thread(current_host))
            await sim.loop.run_in_executor(None, lambda: names.append(current_host()))

        await sim.host("a").run(program())
        return [*names, current_host()]

    assert simulate(1, scenario) == ["outside", "a", "a", "a", "a", "outside"]


def test_killed_code_never_runs_again_not_even_its_finally_blocks() -> None:
    effects: list[str] = []

    async def scenario(sim: Simulation) -> None:
        async def program() -> None:
            sim.loop.call_later(5, effects.append, "timer")
            sim.loop.run_in_executor(None, sim.loop.spend, 5).add_done_callback(lambda _: effects.append("thread"))
            async with asyncio.TaskGroup() as group:
                group.create_task(until_cancelled(effects))
                await until_cancelled(effects)

        sim.host("a").spawn(program())
        await asyncio.sleep(1)
        sim.host("a").kill()
        assert not sim.host("a").alive
        await asyncio.sleep(5000)
        assert effects == []

    simulate(1, scenario)
    assert effects == []


def test_the_burial_of_killed_code_leaves_nothing_to_the_garbage_collector(recwarn: pytest.WarningsRecorder) -> None:
    effects: list[str] = []

    async def closes_many() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            # Gathering without a running loop would make a real one, which nobody closes.
            await asyncio.gather(until_cancelled(effects), until_cancelled(effects))

    async def scenario(sim: Simulation) -> None:
        host = sim.host("a")
        host.spawn(closes_many())
        await asyncio.sleep(1)
        host.kill()

    unraisable: list[object] = []
    hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
    asyncio.set_event_loop_policy(None)  # a thread that never had a loop, so that asking for one makes one
    try:
        simulate(1, scenario)
        asyncio.set_event_loop(None)
        gc.collect()
    finally:
        sys.unraisablehook = hook
    assert (effects, unraisable, [str(warning.message) for warning in recwarn]) == ([], [], [])


def test_cancelled_code_does_run_its_finally_blocks() -> None:
    async def scenario(sim: Simulation) -> list[str]:
        effects: list[str] = []
        task = sim.host("a").spawn(until_cancelled(effects))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        return effects

    assert simulate(1, scenario) == ["finally"]


def test_a_host_that_kills_itself_stops_at_its_next_wait() -> None:
    async def scenario(sim: Simulation) -> list[str]:
        effects: list[str] = []

        async def program() -> None:
            sim.host("a").kill()
            effects.append("same step")
            asyncio.create_task(until_cancelled(effects)).add_done_callback(print)
            await asyncio.open_connection("a", 1)
            effects.append("next step")

        with pytest.raises(HostDown):
            await sim.host("a").run(program())
        await asyncio.sleep(100)
        return effects

    assert simulate(1, scenario) == ["same step"]


def test_whoever_runs_code_on_a_host_learns_that_it_went_down() -> None:
    async def scenario(sim: Simulation) -> None:
        sim.loop.call_later(1, sim.host("a").cut_power)
        with pytest.raises(HostDown, match="a went down"):
            await sim.host("a").run(asyncio.sleep(1000))
        assert sim.loop.time() == 1
        assert await sim.host("a").run(asyncio.sleep(1, "back again")) == "back again"

    simulate(1, scenario)


def test_a_host_tells_its_disk_how_each_life_ended() -> None:
    async def scenario(sim: Simulation) -> list[Fate]:
        fates: list[Fate] = []
        host = sim.host("a")
        host.on_down(fates.append)
        host.kill()  # nothing runs there yet
        host.spawn(asyncio.sleep(1000))
        host.kill()
        host.kill()
        host.spawn(asyncio.sleep(1000))
        host.cut_power()
        return fates

    assert simulate(1, scenario) == [Fate.KILLED, Fate.POWER_CUT]


def test_a_paused_hosts_timers_wait_until_it_is_resumed() -> None:
    async def scenario(sim: Simulation) -> list[float]:
        woke: list[float] = []

        async def ticker() -> None:
            while True:
                await asyncio.sleep(1)
                woke.append(sim.loop.time())

        sim.host("a").spawn(ticker())
        await asyncio.sleep(2.5)
        sim.host("a").pause()
        await asyncio.sleep(10)
        sim.host("a").resume()
        await asyncio.sleep(1.9)
        return woke

    assert simulate(1, scenario) == [1, 2, 12.5, 13.5]


def test_a_paused_host_is_still_cancelled_at_the_end() -> None:
    effects: list[str] = []

    async def scenario(sim: Simulation) -> None:
        sim.host("a").spawn(until_cancelled(effects))
        await asyncio.sleep(1)
        sim.host("a").pause()

    simulate(1, scenario)
    assert effects == ["finally"]


def test_a_failure_in_the_last_breath_of_a_killed_host_is_nobodys_business() -> None:
    async def scenario(sim: Simulation) -> None:
        async def program() -> None:
            sim.host("a").kill()
            raise LookupError("raised by the dead")

        sim.host("a").spawn(program())
        await asyncio.sleep(1)

    simulate(1, scenario)
