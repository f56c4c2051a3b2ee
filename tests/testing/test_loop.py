"""The loop: virtual time, seeded order, executors, and failures that cannot hide."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.testing.loop import Deadlock, SimLoop, SimulationError
from millpond.testing.simulation import Simulation, simulate


def test_an_hour_passes_in_no_time() -> None:
    async def scenario(sim: Simulation) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.sleep(7200)
        return sim.loop.time()

    started = time.perf_counter()
    assert simulate(1, scenario) == 3600
    assert time.perf_counter() - started < 1


def test_a_loop_that_sleeps_until_a_deadline_comes_to_an_end_at_odd_moments() -> None:
    async def scenario(sim: Simulation) -> int:
        deadline = 0.1 + 0.2
        rounds = 0
        while sim.loop.time() < deadline:
            rounds += 1
            await asyncio.sleep((deadline - sim.loop.time()) / (2 if rounds < 5 else 1))
        return rounds

    assert simulate(1, scenario) < 10


def test_a_sleep_takes_the_milliseconds_it_was_asked_for() -> None:
    async def scenario(sim: Simulation) -> list[int]:
        await asyncio.sleep(1.001)
        return [sim.clock.monotonic_ms(), sim.loop.time_ns()]

    assert simulate(1, scenario) == [1001, 1_001_000_000]


def test_a_deadlock_names_the_tasks_that_wait() -> None:
    async def waits_for_godot() -> None:
        await asyncio.Event().wait()

    async def scenario(sim: Simulation) -> None:
        await sim.host("stage").spawn(waits_for_godot(), name="vladimir")

    with pytest.raises(Deadlock, match=r"vladimir \(.*waits_for_godot at test_loop.py:\d+\) on stage"):
        simulate(1, scenario)


@given(st.integers())
def test_plain_callbacks_keep_their_order_at_every_seed(seed: int) -> None:
    async def scenario(sim: Simulation) -> list[int]:
        seen: list[int] = []
        tasks = [asyncio.create_task(asyncio.sleep(0)) for _ in range(3)]
        for number in range(5):
            sim.loop.call_soon(seen.append, number)
        tasks += [asyncio.create_task(asyncio.sleep(0)) for _ in range(3)]
        await asyncio.gather(*tasks)
        return seen

    assert simulate(seed, scenario) == [0, 1, 2, 3, 4]


def test_tasks_run_in_every_order_at_some_seed_and_before_or_after_callbacks() -> None:
    async def scenario(sim: Simulation) -> str:
        seen: list[str] = []

        async def step(name: str) -> None:
            seen.append(name)

        tasks = [asyncio.create_task(step(name)) for name in "ab"]
        sim.loop.call_soon(seen.append, "-")
        await asyncio.gather(*tasks)
        return "".join(seen)

    assert {simulate(seed, scenario) for seed in range(60)} == {"ab-", "ba-", "a-b", "b-a", "-ab", "-ba"}


def test_a_lost_update_between_two_tasks_is_found_by_some_seed_among_few() -> None:
    async def scenario(sim: Simulation) -> int:
        balance = 0

        async def deposit() -> None:
            nonlocal balance
            read = balance
            if read == 0:  # only the first deposit looks anything up, so most orders are harmless
                await asyncio.sleep(0)
            balance = read + 1

        async def late_deposit() -> None:
            await asyncio.sleep(0)
            await deposit()

        async with asyncio.TaskGroup() as group:
            group.create_task(deposit())
            group.create_task(late_deposit())
        return balance

    assert {simulate(seed, scenario) for seed in range(20)} == {1, 2}


def test_queues_task_groups_locks_and_wait_work_unmodified() -> None:
    async def scenario(sim: Simulation) -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
        got: list[int] = []

        async def produce() -> None:
            for number in range(10):
                await queue.put(number)

        async def consume() -> None:
            while len(got) < 10:
                got.append(await asyncio.wait_for(queue.get(), timeout=1))

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())
        done, pending = await asyncio.wait([asyncio.create_task(asyncio.sleep(1))], timeout=0.5)
        assert (len(done), len(pending)) == (0, 1)
        return got

    assert simulate(3, scenario) == list(range(10))


def test_the_loop_runs_under_asyncio_runner() -> None:
    async def main() -> float:
        asyncio.create_task(asyncio.sleep(1000))  # noqa: RUF006 - the runner cancels it
        await asyncio.sleep(5)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=lambda: SimLoop(1)) as runner:
        assert runner.run(main()) == 5


def test_sets_of_tasks_and_futures_have_an_order_that_does_not_depend_on_addresses() -> None:
    async def scenario(sim: Simulation) -> None:
        tasks = [asyncio.create_task(asyncio.sleep(1)) for _ in range(30)]
        assert list({*reversed(tasks)}) == tasks
        futures = [sim.loop.create_future() for _ in range(30)]
        assert list({*reversed(futures)}) == futures

    simulate(1, scenario)


# --- Executors -----------------------------------------------------------------------------------


def test_a_function_in_an_executor_runs_later_and_its_result_comes_when_its_time_is_spent() -> None:
    async def scenario(sim: Simulation) -> None:
        written = ["before"]
        covered: list[str] = []

        def sync() -> str:
            covered.extend(written)
            sim.loop.spend(1.0)
            return "done"

        future = sim.loop.run_in_executor(None, sync)
        assert covered == []
        await asyncio.sleep(0.5)
        written.append("during")  # a sync covers what was written when it began, not when it returns
        assert not future.done()
        assert await future == "done"
        assert covered == ["before"]
        assert 1.0 <= sim.loop.time() <= 1.002

    simulate(1, scenario)


def test_an_exception_in_an_executor_reaches_the_caller() -> None:
    def fail() -> None:
        raise OSError(5, "a broken disk")

    async def scenario(sim: Simulation) -> None:
        with pytest.raises(OSError, match="a broken disk"):
            await asyncio.to_thread(fail)

    simulate(1, scenario)


def test_an_executor_of_one_worker_keeps_order_and_the_default_one_does_not() -> None:
    async def order(sim: Simulation, executor: ThreadPoolExecutor | None) -> str:
        seen: list[str] = []

        def job(name: str) -> None:
            seen.append(name)
            sim.loop.spend(0.1)

        await asyncio.gather(*[sim.loop.run_in_executor(executor, job, name) for name in "abc"])
        return "".join(seen)

    async def alone(sim: Simulation) -> str:
        with ThreadPoolExecutor(max_workers=1) as executor:
            result = await order(sim, executor)
        assert sim.loop.time() > 0.3
        return result

    assert {simulate(seed, alone) for seed in range(10)} == {"abc"}
    assert len({simulate(seed, lambda sim: order(sim, None)) for seed in range(30)}) > 1


def test_a_job_cancelled_before_it_starts_never_runs() -> None:
    async def scenario(sim: Simulation) -> list[str]:
        ran: list[str] = []
        sim.loop.run_in_executor(None, ran.append, "ran").cancel()
        await asyncio.sleep(1)
        return ran

    assert simulate(1, scenario) == []


def test_time_spent_on_the_loop_itself_blocks_its_host_and_nobody_else() -> None:
    async def scenario(sim: Simulation) -> dict[str, float]:
        woke: dict[str, float] = {}

        async def sleeper(name: str) -> None:
            await asyncio.sleep(1)
            woke[name] = sim.loop.time()

        async def blocker() -> None:
            sim.loop.spend(5)
            assert sim.loop.time() == 0.5

        sim.host("busy").spawn(sleeper("busy"))
        sim.host("idle").spawn(sleeper("idle"))
        await asyncio.sleep(0.5)
        sim.host("busy").spawn(blocker())
        await asyncio.sleep(10)
        return woke

    assert simulate(1, scenario) == {"idle": 1, "busy": 5.5}


def test_a_real_thread_cannot_reach_into_the_loop() -> None:
    async def scenario(sim: Simulation) -> list[str]:
        said: list[str] = []

        def intrude() -> None:
            try:
                sim.loop.call_soon_threadsafe(said.append, "hello")
            except SimulationError as error:
                said.append(str(error))

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        sim.loop.call_soon_threadsafe(said.append, "own thread")
        await asyncio.sleep(1)
        return said

    assert simulate(1, scenario) == [
        "a real thread reached into the simulated loop; use run_in_executor",
        "own thread",
    ]


# --- Failures ------------------------------------------------------------------------------------


def test_an_exception_in_a_callback_fails_the_simulation_at_once() -> None:
    async def scenario(sim: Simulation) -> None:
        def fail() -> None:
            raise LookupError("lost in a callback")

        sim.loop.call_later(1, fail)
        await asyncio.sleep(1000)

    with pytest.raises(LookupError) as caught:
        simulate(7, scenario)
    assert any("Exception in callback" in note for note in caught.value.__notes__)
    assert any("seed 7, virtual second 1.0" in note for note in caught.value.__notes__)


def test_a_programs_own_exception_handler_does_not_hide_a_failure() -> None:
    heard: list[str] = []

    async def scenario(sim: Simulation) -> None:
        sim.loop.set_exception_handler(lambda _, context: heard.append(context["message"]))
        sim.loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        simulate(1, scenario)
    assert len(heard) == 1


def test_an_exception_of_a_task_nobody_awaits_fails_the_simulation() -> None:
    async def fail() -> None:
        raise LookupError("nobody looked")

    async def scenario(sim: Simulation) -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        assert task.done()

    with pytest.raises(LookupError, match="nobody looked"):
        simulate(1, scenario)


def test_an_exception_while_leftover_tasks_are_cancelled_fails_the_simulation() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            raise LookupError("on the way out")

    async def scenario(sim: Simulation) -> None:
        sim.host("a").spawn(stubborn())
        await asyncio.sleep(1)

    with pytest.raises(LookupError, match="on the way out"):
        simulate(1, scenario)


def test_a_cancelled_timer_does_not_move_the_clock() -> None:
    async def scenario(sim: Simulation) -> float:
        handles = [sim.loop.call_later(delay, print) for delay in range(1000, 1300)]
        for handle in handles:
            handle.cancel()
        await asyncio.sleep(1)
        return sim.loop.time()

    assert simulate(1, scenario) == 1
