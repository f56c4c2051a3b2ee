"""Whole simulations: replays, limits, and what a failure tells."""

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys

import pytest

from millpond.testing.links import Conditions
from millpond.testing.loop import LimitReached
from millpond.testing.simulation import Simulation, simulate


async def busy_day(sim: Simulation) -> None:
    """Clients on bad links talk to a server that is killed and cut off now and then."""
    sim.network.set_conditions(Conditions(loss_chance=0.05, fragment_chance=0.5, tail_chance=0.05))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                await asyncio.to_thread(sim.loop.spend, 0.001)
                writer.write(line)
                await writer.drain()
        except OSError as error:
            sim.trace("server lost a client", error=type(error).__name__)
        finally:
            writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, port=9092)
        await server.serve_forever()

    async def ask(number: int) -> None:
        for attempt in range(20):
            try:
                reader, writer = await asyncio.open_connection("server", 9092)
                with contextlib.closing(writer):
                    writer.write(b"%d: %d\n" % (number, attempt))
                    await asyncio.wait_for(reader.readline(), timeout=5)
                await writer.wait_closed()
            except OSError as error:
                sim.trace("client failed", number=number, error=type(error).__name__)
                await asyncio.sleep(0.1)

    server = sim.host("server")
    server.spawn(serve())
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(sim.host(f"client-{number}").run(ask(number)))
        for _ in range(3):
            await asyncio.sleep(sim.rng.uniform(0, 1))
            server.kill()
            server.spawn(serve())
            sim.network.partition("server", {f"client-{number}" for number in range(2)})
            await asyncio.sleep(sim.rng.uniform(0, 1))
            sim.network.heal()


def fingerprint(seed: int) -> str:
    with Simulation(seed) as sim:
        sim.run(busy_day)
        return f"{sim.trace_hash()} {sim.loop.steps} {sim.loop.time()}"


def test_a_seed_replays_to_the_same_trace_in_another_process_whatever_its_hash_seed() -> None:
    here = [fingerprint(seed) for seed in range(3)]
    program = (
        "import runpy, sys; names = runpy.run_path(sys.argv[1]); "
        "print('\\n'.join(names['fingerprint'](seed) for seed in range(3)))"
    )
    for hash_seed in ("0", "0", "4711"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONWARNINGS": "error"}
        result = subprocess.run(
            [sys.executable, "-c", program, __file__], env=environment, capture_output=True, text=True, check=True
        )
        assert result.stdout.split("\n")[:3] == here
    assert len(set(here)) == 3


def test_a_payload_that_differs_by_one_byte_shows_in_the_hash() -> None:
    async def talk(sim: Simulation, data: bytes) -> str:
        sim.trace("wrote", data, file="log")
        assert sim.story() == ["0.000000000 wrote file=log"]
        return sim.trace_hash()

    assert simulate(1, lambda sim: talk(sim, b"a")) == simulate(1, lambda sim: talk(sim, b"a"))
    assert simulate(1, lambda sim: talk(sim, b"a")) != simulate(1, lambda sim: talk(sim, b"b"))


def test_the_story_keeps_the_last_lines_and_can_be_asked_about_one_thing() -> None:
    async def scenario(sim: Simulation) -> None:
        for number in range(10):
            sim.trace("counted", "to", number=number)

    with Simulation(1, story_lines_max=3) as sim:
        sim.run(scenario)
        assert sim.story() == [f"0.000000000 counted to number={number}" for number in (7, 8, 9)]
        assert sim.story(about="number=8") == ["0.000000000 counted to number=8"]


def test_a_failure_names_its_seed_and_tells_the_last_events() -> None:
    async def scenario(sim: Simulation) -> None:
        sim.trace("omen", kind="crow")
        await asyncio.sleep(2)
        raise AssertionError("the invariant is broken")

    with pytest.raises(AssertionError) as caught:
        simulate(4711, scenario)
    notes = "\n".join(caught.value.__notes__)
    assert "seed 4711, virtual second 2.000000" in notes
    assert "replay with simulate(4711, " in notes
    assert "omen kind=crow" in notes


def test_a_scenario_that_waits_too_long_is_stopped() -> None:
    async def scenario(sim: Simulation) -> None:
        for _ in itertools.count():
            await asyncio.sleep(1)

    with pytest.raises(LimitReached, match=r"virtual second 60 reached; waiting: .*scenario"):
        simulate(1, scenario, virtual_seconds_max=60)


def test_a_scenario_that_spins_is_stopped() -> None:
    async def scenario(sim: Simulation) -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(LimitReached, match="1000 steps taken"):
        simulate(1, scenario, steps_max=1000)


def test_sources_of_chance_do_not_disturb_one_another() -> None:
    with Simulation(1) as one, Simulation(1) as two:
        one.loop.chance("disk").random()
        assert one.rng.random() == two.rng.random()
        assert one.loop.chance("disk").random() != one.loop.chance("threads").random()


def test_the_scenarios_own_place_cannot_be_taken_for_a_host() -> None:
    with Simulation(1) as sim, pytest.raises(ValueError, match="outside"):
        sim.host("outside")
