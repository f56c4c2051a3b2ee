"""A whole simulated world for one scenario: seed, loop, network, clock and hosts.

Invariant: a scenario either returns, and then nothing went wrong anywhere unheard, or raises an error
whose notes name the seed and tell the last events before it.
Driven by tests: `simulate(seed, scenario)`, or `Simulation(seed)` for those who want to look inside.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from millpond.testing.clock import SimClock
from millpond.testing.hosts import HERE, OUTSIDE, Fate, HostDown, Life
from millpond.testing.loop import Deadlock, SimLoop, SimulationError, unbegun_coroutines_allowed
from millpond.testing.trace import Field

T = TypeVar("T")
Scenario = Callable[["Simulation"], Coroutine[Any, Any, T]]

VIRTUAL_SECONDS_MAX = 86_400.0
STEPS_MAX = 10_000_000
SHUTDOWN_SECONDS_MAX = 3_600.0
SHUTDOWN_STEPS_MAX = 1_000_000
NOTE_LINES_MAX = 20


class SimHost:
    """A machine with a name. Its process starts with the first `spawn`, and anew with the first after its end."""

    def __init__(self, name: str, loop: SimLoop) -> None:
        self.name = name
        self._loop = loop
        self._life: Life | None = None
        self._lives = 0
        self._mourners: list[Callable[[Fate], None]] = []
        loop.network.power_up(name)

    @property
    def alive(self) -> bool:
        return self._life is not None and self._life.alive

    def on_down(self, callback: Callable[[Fate], None]) -> None:
        """Calls back at each end of this host's process, so that a disk can lose what it has to."""
        self._mourners.append(callback)

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Runs the coroutine on this host, starting its process if there is none.

        The task never finishes when the host is killed; `run` tells its caller so.
        """
        life = self._begin()
        context = contextvars.copy_context()
        context.run(HERE.set, life)
        return self._loop.create_task(coro, name=name, context=context)

    async def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine on this host and waits for it; HostDown when the host does not live to see its end."""
        task = self.spawn(coro)
        life = self._life  # the host may be in another one by the time this ends
        assert life is not None
        end: asyncio.Future[None] = self._loop.create_future()
        life.watchers.append(end)
        outcomes: list[asyncio.Future[Any]] = [task, end]
        try:
            await asyncio.wait(outcomes, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            life.watchers.remove(end)
        if not task.done():
            raise HostDown(f"{self.name} went down")
        return task.result()

    def look(self, ask: Callable[[], T]) -> T:
        """Asks as this host's own code would at this moment, by its clock; nothing may come of it."""
        context = contextvars.copy_context()
        context.run(HERE.set, self._life)
        return context.run(ask)

    def kill(self) -> None:
        """Like SIGKILL: its code never runs again, and its kernel resets its connections."""
        self._end(Fate.KILLED)

    def cut_power(self) -> None:
        """The machine falls silent. Peers find out by timeouts, or by a reset once it is back."""
        self._end(Fate.POWER_CUT)

    def pause(self) -> None:
        """Like SIGSTOP: its code and timers wait, while its kernel still takes connections and bytes."""
        if self._life is not None and self._life.alive:
            self._loop.trace("pause", host=self.name)
            self._loop.stop_life(self._life)

    def resume(self) -> None:
        if self._life is not None and self._life.alive and self._life.stopped:
            self._loop.trace("resume", host=self.name)
            self._loop.continue_life(self._life)

    def _begin(self) -> Life:
        if self._life is None or not self._life.alive:
            self._lives += 1
            self._life = Life(self.name, self._lives)
            self._loop.network.power_up(self.name)
            self._loop.trace("start", host=self.name, life=self._lives)
        return self._life

    def _end(self, fate: Fate) -> None:
        if self._life is None or not self._life.alive:
            return
        self._loop.trace(fate.value, host=self.name)
        self._loop.end_life(self._life, fate)
        self._loop.network.end_life(self._life, fate)
        for callback in self._mourners:
            callback(fate)


class Simulation:
    def __init__(
        self,
        seed: int,
        *,
        virtual_seconds_max: float = VIRTUAL_SECONDS_MAX,
        steps_max: int = STEPS_MAX,
        story_lines_max: int = 200,
    ) -> None:
        self.seed = seed
        self.loop = SimLoop(
            seed, virtual_seconds_max=virtual_seconds_max, steps_max=steps_max, story_lines_max=story_lines_max
        )
        self.network = self.loop.network
        self.clock = SimClock(self.loop)
        self.rng = self.loop.chance("scenario")
        self._hosts: dict[str, SimHost] = {}

    def host(self, name: str) -> SimHost:
        if name == OUTSIDE:
            raise ValueError(f"{OUTSIDE!r} is where the scenario itself runs")
        if name not in self._hosts:
            self._hosts[name] = SimHost(name, self.loop)
        return self._hosts[name]

    def trace(self, kind: str, /, *values: Field | bytes, **fields: Field) -> None:
        self.loop.trace(kind, *values, **fields)

    def trace_hash(self) -> str:
        return self.loop.trace_hash()

    def story(self, about: str = "") -> list[str]:
        return self.loop.events.story(about)

    def run(self, scenario: Scenario[T]) -> T:
        """Runs the scenario, then cancels what it left running; a failure nobody heard of is raised here."""
        try:
            result = self.loop.run_until_complete(scenario(self))
            self._cancel_leftovers()
            failure = self.loop.unheeded_failure()
            if failure is not None:
                raise failure
        except Exception as error:
            self._explain(error, scenario)
            with contextlib.suppress(Exception):
                self._cancel_leftovers()  # so that programs release what they hold; the first failure is the news
            raise
        return result

    def _explain(self, error: Exception, scenario: Scenario[Any]) -> None:
        name = getattr(scenario, "__qualname__", type(scenario).__name__)
        error.add_note(
            f"seed {self.seed}, virtual second {self.loop.time():.6f}, step {self.loop.steps}; "
            f"replay with simulate({self.seed}, {name})"
        )
        if story := self.story()[-NOTE_LINES_MAX:]:
            error.add_note("\n  ".join(["the last events:", *story]))

    def _cancel_leftovers(self) -> None:
        for host in self._hosts.values():
            host.resume()
        leftovers = self.loop.tasks()
        if not leftovers:
            return
        self.loop.virtual_seconds_max = self.loop.time() + SHUTDOWN_SECONDS_MAX
        self.loop.steps_max = self.loop.steps + SHUTDOWN_STEPS_MAX
        for task in leftovers:
            task.cancel()
        with unbegun_coroutines_allowed():
            try:
                self.loop.run_until_complete(asyncio.wait(leftovers))
            except Deadlock:
                # Servers wait for their connections to end, and those for nobody any more.
                self.network.abort_all()
                self.loop.run_until_complete(asyncio.wait(leftovers))
        for task in leftovers:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        if remaining := self.loop.tasks():
            raise SimulationError(f"still running after everything was cancelled: {remaining}")

    def close(self) -> None:
        self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def simulate(
    seed: int,
    scenario: Scenario[T],
    *,
    virtual_seconds_max: float = VIRTUAL_SECONDS_MAX,
    steps_max: int = STEPS_MAX,
) -> T:
    """Runs `async def scenario(sim)` in a world of its own and returns what it returns."""
    with Simulation(seed, virtual_seconds_max=virtual_seconds_max, steps_max=steps_max) as simulation:
        return simulation.run(scenario)
