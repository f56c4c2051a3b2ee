"""Group commit: shared rounds, with real threads held at a gate and, for chance, in the simulator."""

import asyncio
import math
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from millpond.model.errors import DiskFailed, StorageError
from millpond.storage.commit import Ended, GroupCommit
from millpond.testing.simulation import Simulation, simulate

WAIT_SECONDS = 10
"""Only a test that has already failed waits this long."""


class GatedRound:
    """Runs in a real thread until the test opens its gate."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.gate = threading.Event()
        self.running = asyncio.Event()
        self.failure: StorageError | None = None
        self.times_finished = 0

    def start(self, ended: Ended) -> bool:
        return False

    def run(self) -> None:
        self._loop.call_soon_threadsafe(self.running.set)
        assert self.gate.wait(WAIT_SECONDS), "the test never opened the gate"
        if self.failure is not None:
            raise self.failure

    def finish(self) -> None:
        self.times_finished += 1

    def end(self, failure: StorageError | None = None) -> None:
        self.failure = failure
        self.gate.set()


class Bench:
    """A commit whose rounds the test ends by hand."""

    def __init__(self) -> None:
        self.rounds: list[GatedRound] = []
        self._begun: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self.commit = GroupCommit(self._begin)

    def _begin(self) -> GatedRound:
        self._begun[len(self.rounds)].set()
        self.rounds.append(GatedRound(asyncio.get_running_loop()))
        return self.rounds[-1]

    def join(self, *, covered: bool = False) -> asyncio.Future[None]:
        return self.commit.join(covered=covered)

    async def round(self, number: int) -> GatedRound:
        """That round, once its thread runs."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self._begun[number].wait()
            await self.rounds[number].running.wait()
        return self.rounds[number]


def with_threads(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            await scenario(Bench())

        asyncio.run(run())

    test.__name__ = getattr(scenario, "__name__", "test")
    test.__doc__ = scenario.__doc__
    return test


@with_threads
async def test_all_who_join_before_a_round_begins_share_it(bench: Bench) -> None:
    joins = [bench.join() for _ in range(100)]
    (await bench.round(0)).end()
    await asyncio.gather(*joins)
    assert len(bench.rounds) == 1


@with_threads
async def test_whoever_joins_while_a_round_runs_gets_the_next_one(bench: Bench) -> None:
    early = bench.join()
    first = await bench.round(0)
    late = [bench.join() for _ in range(10)]
    first.end()
    await early
    second = await bench.round(1)
    assert not any(each.done() for each in late)
    second.end()
    await asyncio.gather(*late)
    assert len(bench.rounds) == 2


@with_threads
async def test_whoever_is_covered_by_the_round_that_runs_needs_no_other(bench: Bench) -> None:
    bench.commit.request()
    first = await bench.round(0)
    covered, late = bench.join(covered=True), bench.join()
    await asyncio.sleep(0)
    first.end()
    await covered
    assert not late.done()
    (await bench.round(1)).end()
    await late
    alone = bench.join(covered=True)
    (await bench.round(2)).end()
    await alone


@with_threads
async def test_nobody_goes_on_before_the_round_was_finished_on_the_loop(bench: Bench) -> None:
    seen: list[int] = []

    async def join() -> None:
        await bench.commit.join()
        seen.append(bench.rounds[0].times_finished)

    joining = asyncio.create_task(join())
    (await bench.round(0)).end()
    await joining
    assert seen == [1]


@with_threads
async def test_one_who_gives_up_harms_nobody(bench: Bench) -> None:
    first, second, third = (bench.join() for _ in range(3))
    running = await bench.round(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    running.end()
    await asyncio.gather(first, third)
    again = bench.join()
    (await bench.round(1)).end()
    await again


@with_threads
async def test_a_round_runs_to_its_end_when_all_who_waited_gave_up(bench: Bench) -> None:
    only = bench.join()
    running = await bench.round(0)
    only.cancel()
    await asyncio.wait([only])
    running.end()
    following = bench.join()
    (await bench.round(1)).end()
    await following
    assert running.times_finished == 1


@with_threads
async def test_a_failure_reaches_everyone_of_its_round_and_nobody_else(bench: Bench) -> None:
    failing = [bench.join() for _ in range(3)]
    first = await bench.round(0)
    fine = [bench.join() for _ in range(3)]
    failing[1].cancel()
    failure = DiskFailed("the disk is gone")
    first.end(failure)
    outcomes = await asyncio.gather(*failing, return_exceptions=True)
    assert outcomes[0] is failure
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert outcomes[2] is failure
    assert first.times_finished == 0
    (await bench.round(1)).end()
    await asyncio.gather(*fine)


@with_threads
async def test_a_request_runs_a_round_that_nobody_waits_for(bench: Bench) -> None:
    bench.commit.request()
    bench.commit.request()
    running = await bench.round(0)
    bench.commit.request()
    running.end()
    (await bench.round(1)).end()
    async with bench.commit.turn:
        assert [each.times_finished for each in bench.rounds] == [1, 1]


@with_threads
async def test_a_requested_round_that_fails_is_no_unheard_exception(bench: Bench) -> None:
    bench.commit.request()
    (await bench.round(0)).end(DiskFailed("the disk is gone"))
    joined = bench.join()
    (await bench.round(1)).end()
    await joined


@with_threads
async def test_no_round_runs_beside_whoever_has_the_turn(bench: Bench) -> None:
    async with bench.commit.turn:
        joined = bench.join()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not bench.rounds
    (await bench.round(0)).end()
    await joined


@with_threads
async def test_whoever_wants_the_turn_waits_for_the_round_that_runs(bench: Bench) -> None:
    joined = bench.join()
    running = await bench.round(0)
    taken = asyncio.create_task(bench.commit.turn.acquire())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not taken.done()
    running.end()
    await joined
    await taken
    assert running.times_finished == 1


class CountedRound:
    """A round of the simulator: takes a drawn time and fails by a drawn chance."""

    def __init__(self, sim: Simulation, number: int, rng: random.Random) -> None:
        self._sim, self._rng = sim, rng
        self.number = number
        self.failure: StorageError | None = None
        self.is_finished = False
        self.ends_at = math.inf

    def start(self, ended: Ended) -> bool:
        return False

    def run(self) -> None:
        seconds = self._rng.uniform(0, 0.05)
        self.ends_at = self._sim.loop.time() + seconds
        self._sim.loop.spend(seconds)
        if self._rng.random() < 0.2:
            self.failure = DiskFailed(f"round {self.number}")
            raise self.failure

    def finish(self) -> None:
        self.is_finished = True


@pytest.mark.parametrize("seed", range(10))
def test_whatever_the_timing_each_join_is_let_go_by_a_round_that_began_after_it(seed: int) -> None:
    rounds: list[CountedRound] = []

    async def scenario(sim: Simulation) -> None:
        rng = sim.loop.chance("rounds")

        def begin() -> CountedRound:
            assert all(each.ends_at <= sim.loop.time() for each in rounds), "two rounds at once"
            rounds.append(CountedRound(sim, len(rounds), rng))
            return rounds[-1]

        commit = GroupCommit(begin)

        async def join() -> None:
            await asyncio.sleep(rng.uniform(0, 1))
            begun_before = len(rounds)
            try:
                await commit.join()
            except DiskFailed as failure:
                mine = next(each for each in rounds if each.failure is failure)
                assert mine.number >= begun_before
            else:
                assert any(each.is_finished and each.failure is None for each in rounds[begun_before:])
            assert len(rounds) <= begun_before + 2, "nobody waits for more than the round that runs and its own"

        async with asyncio.TaskGroup() as group:
            joins = [group.create_task(join()) for _ in range(200)]
            for each in joins[::7]:
                sim.loop.call_later(rng.uniform(0, 1), each.cancel)

    simulate(seed, scenario)
    assert 10 < len(rounds) < 150


def test_a_bug_in_a_round_reaches_those_who_wait_and_does_not_hide() -> None:
    async def scenario(sim: Simulation) -> None:
        def begin() -> CountedRound:
            raise ZeroDivisionError("planted")

        with pytest.raises(ZeroDivisionError):
            await GroupCommit(begin).join()

    with pytest.raises(ZeroDivisionError):
        simulate(1, scenario)
