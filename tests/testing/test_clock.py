"""Clocks that follow virtual time, differ between hosts, or are turned by hand."""

import asyncio

import pytest

from millpond.model.ports import Clock
from millpond.testing.clock import WALL_START_MS, ManualClock
from millpond.testing.simulation import Simulation, simulate


def test_the_simulated_clock_follows_virtual_time_from_the_same_day_in_every_run() -> None:
    async def scenario(sim: Simulation) -> tuple[int, int]:
        clock: Clock = sim.clock
        await asyncio.sleep(2.5)
        return clock.monotonic_ms(), clock.wall_ms() - WALL_START_MS

    assert simulate(1, scenario) == simulate(2, scenario) == (2500, 2500)


def test_a_skewed_or_jumping_wall_clock_is_seen_by_its_own_host_only() -> None:
    async def scenario(sim: Simulation) -> None:
        async def wall() -> int:
            return sim.clock.wall_ms() - WALL_START_MS

        sim.clock.set_skew("late", ms=-3000)
        sim.clock.jump("late", ms=-500)
        assert await sim.host("late").run(wall()) == -3500
        assert await sim.host("right").run(wall()) == 0
        assert await wall() == 0

    simulate(1, scenario)


def test_a_manual_clock_stands_still_until_it_is_turned() -> None:
    clock = ManualClock()
    assert (clock.monotonic_ms(), clock.wall_ms()) == (0, WALL_START_MS)
    clock.advance(1500)
    clock.jump(-500)
    assert (clock.monotonic_ms(), clock.wall_ms()) == (1500, WALL_START_MS + 1000)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_hosts_clocks_run_at_their_own_rates_and_timers_ring_by_them() -> None:
    async def scenario(sim: Simulation) -> dict[str, tuple[float, float, int]]:
        sim.loop.clock_rates |= {"fast": 1.25, "slow": 0.8}

        async def sleep() -> tuple[float, float, int]:
            began, began_ms = sim.loop.time(), sim.clock.monotonic_ms()
            await asyncio.sleep(10)
            took = sim.loop.time() - began
            return round(sim.loop.true_time(), 6), round(took, 6), sim.clock.monotonic_ms() - began_ms

        return {name: await sim.host(name).run(sleep()) for name in ("fast", "slow", "true")}

    assert simulate(1, scenario) == {
        "fast": (8.0, 10.0, 10_000),
        "slow": (20.5, 10.0, 10_000),
        "true": (30.5, 10.0, 10_000),
    }


def test_a_host_is_asked_by_its_own_clock() -> None:
    async def scenario(sim: Simulation) -> tuple[float, float]:
        sim.loop.clock_rates["slow"] = 0.5
        host = sim.host("slow")
        await host.run(asyncio.sleep(5))
        return round(host.look(sim.loop.time), 6), round(sim.loop.time(), 6)

    assert simulate(1, scenario) == (5.0, 10.0)
