"""An asyncio event loop in which time, chance and the network are simulated.

Invariant: what happens is a function of the seed and of the program alone. Waiting only moves a clock;
every choice that asyncio leaves open (which of the ready tasks goes first, when a thread starts) is
drawn from the seed; nothing reads the real clock, opens a real socket or starts a real thread.

Two runs can still differ by what the program brings along: the order of sets of strings (pin it with
PYTHONHASHSEED), `time.time`, `uuid4` and `os.urandom` (inject a clock and an rng instead).

Runs unmodified asyncio code. Driven by `Simulation`, or by `asyncio.Runner(loop_factory=...)`.
"""

import asyncio
import contextlib
import contextvars
import gc
import heapq
import math
import random
import socket
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, NoReturn, TypeVar

from millpond.testing.datagram import SimDatagramTransport
from millpond.testing.handles import Call, Timer
from millpond.testing.hosts import HERE, Fate, Life
from millpond.testing.network import SimNetwork
from millpond.testing.server import SimServer
from millpond.testing.threads import Job, Threads, name_of
from millpond.testing.timed_loop import TimedLoop
from millpond.testing.trace import Field, Trace
from millpond.testing.transport import Address, SimTransport

T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)
D = TypeVar("D", bound=asyncio.DatagramProtocol)

TIMERS_CANCELLED_MAX = 100
"""Above this many cancelled timers, and more than half, the heap is rebuilt without them."""
STEPS_PER_COLLECTION = 10_000
CLOSE_TRIES_MAX = 100


class SimulationError(Exception):
    """The simulation cannot go on, or something went wrong in it that nobody caught."""


class Deadlock(SimulationError):
    """Tasks wait for one another: nothing is ready and no timer is set."""


class LimitReached(SimulationError):
    """The virtual time or the number of steps granted is used up, as by a loop that never ends."""


class SimFuture(asyncio.Future[T]):
    """A future whose hash is its serial number, so that sets of futures have the same order in every process."""

    serial: int
    """Set by the loop, which makes them all; a constructor of our own would cost as much as asyncio's."""

    def __hash__(self) -> int:
        return self.serial


class SimTask(asyncio.Task[T]):
    """A task that knows its life and hashes like `SimFuture` (TaskGroup and asyncio.wait keep sets of tasks)."""

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        serial: int,
        context: contextvars.Context | None = None,
        name: str | None = None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._serial = serial  # before super(), which already puts the task into a set
        self.context = contextvars.copy_context() if context is None else context
        self.life = self.context.get(HERE)
        # asyncio's own counter of names spans simulations
        super().__init__(coro, loop=loop, context=self.context, name=name or f"Task-{serial}")

    def __hash__(self) -> int:
        return self._serial


class SimLoop(TimedLoop):
    # What BaseEventLoop keeps, in every CPython from 3.11 on, and type stubs leave out.
    _stopping: bool
    _thread_id: int | None

    def __init__(
        self,
        seed: int,
        *,
        virtual_seconds_max: float = math.inf,
        steps_max: float = math.inf,
        story_lines_max: int = 200,
    ) -> None:
        super().__init__()
        self.seed = seed
        self.steps = 0
        self.virtual_seconds_max = virtual_seconds_max
        self.steps_max = steps_max
        self._serial = 0
        self._order = self.chance("order of ready tasks")
        self._failure: BaseException | None = None
        self._tasks: weakref.WeakValueDictionary[int, SimTask[Any]] = weakref.WeakValueDictionary()
        self._graveyard: list[SimTask[Any]] = []
        self.events = Trace(self.time_ns, lines_max=story_lines_max)
        self.network = SimNetwork(self, self.chance("network"), self.events)
        self._threads = Threads(self, self.chance("threads"), self.events)
        self.set_task_factory(self._make_task)

    # --- Chance and record -----------------------------------------------------------------------

    def chance(self, purpose: str) -> random.Random:
        """A source of chance of its own, so that one part's draws do not shift another's."""
        return random.Random(f"{self.seed}/{purpose}")

    def trace(self, kind: str, /, *values: Field | bytes, **fields: Field) -> None:
        self.events.record(kind, *values, **fields)

    def trace_hash(self) -> str:
        return self.events.hash()

    # --- Time ------------------------------------------------------------------------------------

    def spend(self, seconds: float) -> None:
        """Says that the calling function takes this long, as a slow disk does.

        In an executor it delays that job's result only (see `Threads`). On the loop itself it does what
        a blocking call does: everything else on the same host waits. Outside of hosts, the world waits.
        """
        life = HERE.get()
        if self._threads.job is not None:
            self._threads.job.spent_seconds += seconds
        elif life is None:
            self._now += seconds
        elif life.alive:
            life.busy_until = max(life.busy_until, self._now) + seconds
            life.running = False
            self.call_at_true_time(life.busy_until, self._release, life, context=contextvars.Context())

    # --- Scheduling ------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Collects garbage at fixed steps only: finalizers schedule callbacks, so their moment must not vary."""
        enabled = gc.isenabled()
        gc.disable()
        try:
            super().run_forever()
        finally:
            if enabled:
                gc.enable()

    def _run_once(self) -> None:
        if self._timer_cancelled_count:
            self._discard_cancelled_timers()
        ready, scheduled = self._ready, self._scheduled
        if not ready and not self._stopping:
            self._move_clock()
        while scheduled and scheduled[0] <= self._now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        if len(ready) > 1:
            self._interleave()
        for _ in range(len(ready)):
            call = ready.popleft()
            if not call._cancelled:
                self._step(call)

    def _step(self, call: Call | Timer) -> None:
        context = call._context
        life = context.get(HERE)
        if life is not None and not life.running:
            if life.alive:
                life.parked.append(call)
            return
        self.steps += 1
        try:
            context.run(call._callback, *call._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            name = getattr(call._callback, "__qualname__", repr(call._callback))
            self.call_exception_handler(
                {"message": f"Exception in callback {name}", "exception": error, "handle": call}
            )
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self.steps >= self.steps_max:
            raise LimitReached(f"{self.steps} steps taken; waiting: {self._pending()}")
        if self.steps % STEPS_PER_COLLECTION == 0:
            collections = self.steps // STEPS_PER_COLLECTION
            gc.collect(0 if collections % 10 else 1 if collections % 100 else 2)

    def _interleave(self) -> None:
        """Puts task steps in a seeded order among all that is ready; plain callbacks keep theirs.

        asyncio promises that callbacks run in the order of `call_soon`, and protocols rely on it. Of tasks
        it promises nothing, and a program that relies on their order is to be found out.
        """
        drawn = [(call, _is_task_step(call)) for call in self._ready]
        plain = deque(call for call, is_task_step in drawn if not is_task_step)
        if len(plain) == len(drawn):
            return
        self._order.shuffle(drawn)
        self._ready.clear()
        self._ready.extend(call if is_task_step else plain.popleft() for call, is_task_step in drawn)

    def _move_clock(self) -> None:
        if not self._scheduled:
            raise Deadlock(f"nothing is ready and no timer is set; waiting: {self._pending()}")
        when = self._scheduled[0]
        if when > self.virtual_seconds_max:
            raise LimitReached(f"virtual second {self.virtual_seconds_max} reached; waiting: {self._pending()}")
        if when > self._now:
            self._now = when.when()

    def _discard_cancelled_timers(self) -> None:
        cancelled = self._timer_cancelled_count
        if cancelled > TIMERS_CANCELLED_MAX and cancelled * 2 > len(self._scheduled):
            for timer in self._scheduled:
                if timer._cancelled:
                    timer._scheduled = False
            self._scheduled = [timer for timer in self._scheduled if not timer._cancelled]
            heapq.heapify(self._scheduled)
            self._timer_cancelled_count = 0
        while self._scheduled and self._scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(self._scheduled)._scheduled = False

    # --- Tasks and lives -------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        self._serial += 1
        future: SimFuture[Any] = SimFuture(loop=self)
        future.serial = self._serial
        return future

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **eagerness: object,
    ) -> SimTask[Any]:
        self._serial += 1
        task = SimTask(coro, serial=self._serial, loop=loop, name=name, context=context)
        self._tasks[self._serial] = task
        if task.life is not None and not task.life.alive:
            self._graveyard.append(task)
        return task

    def tasks(self) -> list[SimTask[Any]]:
        """The tasks that are not done and not dead, oldest first."""
        return [task for task in self._known_tasks() if not task.done() and (task.life is None or task.life.alive)]

    def _known_tasks(self) -> list[SimTask[Any]]:
        return [task for _, task in sorted(self._tasks.items())]

    def _pending(self) -> str:
        return ", ".join(map(_describe, self.tasks())) or "nobody"

    def end_life(self, life: Life, fate: Fate) -> None:
        """Sees to it that no code of this life runs again.

        Its suspended coroutines are kept until the loop closes: freeing one would run its `finally` blocks.
        """
        life.fate = fate
        life.running = False
        self._graveyard += [task for task in self._known_tasks() if task.life is life and not task.done()]
        life.parked.clear()  # only now: it may be all that holds on to a task
        self._threads.forget(life)
        for watcher in life.watchers:
            if not watcher.done():
                watcher.set_result(None)

    def stop_life(self, life: Life) -> None:
        """Like SIGSTOP: whatever becomes ready or due waits for `continue_life`."""
        life.stopped = True
        life.running = False

    def continue_life(self, life: Life) -> None:
        life.stopped = False
        self._release(life)

    def _release(self, life: Life) -> None:
        if life.alive and not life.stopped and life.busy_until <= self._now:
            life.running = True
            self._ready.extend(life.parked)
            life.parked.clear()

    # --- Failures --------------------------------------------------------------------------------

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ends the simulation with what asyncio would only have logged; a program's own handler is called as well."""
        culprit = context.get("task") or context.get("future")
        handle = context.get("handle")
        if isinstance(culprit, SimTask):
            life = culprit.life
        elif handle is not None:
            life = handle._context.get(HERE)  # asyncio reports a callback's failure outside of its context
        else:
            life = HERE.get()
        failure = context.get("exception") or SimulationError()
        # A cancelled task is no bug; the streams of some CPython versions raise when they look at one.
        if (life is not None and not life.alive) or isinstance(failure, asyncio.CancelledError):
            return
        failure.add_note(f"in the event loop: {context['message']}")
        self._failure = self._failure or failure
        if self.get_exception_handler() is not None:
            super().call_exception_handler(context)

    def unheeded_failure(self) -> BaseException | None:
        """An exception that ended a task and that nobody has looked at, or that was raised after the last step."""
        if self._failure is not None:
            return self._failure
        for task in self._known_tasks():
            if task.done() and task._log_traceback and (task.life is None or task.life.alive):
                failure = task.exception()
                if failure is not None:
                    failure.add_note(f"in the event loop: {task.get_name()} failed and nobody looked")
                return failure
        return None

    # --- Threads ---------------------------------------------------------------------------------

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        self._check_closed()  # type: ignore[attr-defined]
        future: asyncio.Future[Any] = self.create_future()
        self._threads.submit(HERE.get(), executor, Job(partial(func, *args), name_of(func), future))
        return future

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        self._write_to_self()
        return self.call_soon(callback, *args, context=context)

    def _write_to_self(self) -> None:
        if self._thread_id not in (None, threading.get_ident()):
            raise SimulationError("a real thread reached into the simulated loop; use run_in_executor")

    # --- Network ---------------------------------------------------------------------------------

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | Sequence[str] | None = None,
        port: int | None = None,
        *,
        start_serving: bool = True,
        **options: object,
    ) -> SimServer:
        return await self.network.create_server(protocol_factory, host, port, start_serving=start_serving, **options)

    async def create_connection(
        self,
        protocol_factory: Callable[[], P],
        host: str | None = None,
        port: int | None = None,
        **options: object,
    ) -> tuple[SimTransport, P]:
        return await self.network.create_connection(protocol_factory, host, port, **options)

    async def create_datagram_endpoint(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], D],
        local_addr: Address | None = None,
        remote_addr: Address | None = None,
        **options: object,
    ) -> tuple[SimDatagramTransport, D]:
        return await self.network.create_datagram_endpoint(protocol_factory, local_addr, remote_addr, **options)

    async def getaddrinfo(  # type: ignore[override]
        self, host: str | bytes | None, port: int | str | None, **options: object
    ) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, Address]]:
        found = [(each, int(port or 0)) for each in self.network.look_up(host)]
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address) for address in found]

    async def getnameinfo(self, *arguments: object) -> NoReturn:
        raise NotImplementedError("simulated hosts have names and no numbers")

    async def start_tls(self, *arguments: object, **options: object) -> NoReturn:
        raise NotImplementedError("the simulated network carries no TLS")

    # --- The end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the loop and buries killed code.

        Closing its coroutines runs their `finally` blocks, in the context of their dead life. By now nobody
        in the simulation can see that, and what is simulated ignores them (`hosts.alive_here`).
        """
        if not self.is_closed() and not self.is_running():
            self.events.stop()
            self.network.vanish()
            self._graveyard += self.tasks()
            self._bury_the_dead()
        super().close()

    def _bury_the_dead(self) -> None:
        """As if on the running loop: without one, asyncio.gather in a `finally` would make a real loop."""
        asyncio._set_running_loop(self)
        try:
            with unbegun_coroutines_allowed():
                for task in self._graveyard:  # which grows by tasks that `finally` blocks make
                    _bury(task)
        finally:
            asyncio._set_running_loop(None)
        self._graveyard.clear()


def _is_task_step(call: Call | Timer) -> bool:
    return isinstance(getattr(call._callback, "__self__", None), asyncio.Task)


def _describe(task: SimTask[Any]) -> str:
    """Who waits where: `consumer (fetch_loop at fetcher.py:80) on broker-1`."""
    coroutine: Any = task.get_coro()
    frames = task.get_stack(limit=1)
    place = f" at {frames[0].f_code.co_filename.rpartition('/')[2]}:{frames[0].f_lineno}" if frames else ""
    host = f" on {task.life.host}" if task.life is not None else ""
    stopped = " (stopped)" if task.life is not None and task.life.stopped else ""
    return f"{task.get_name()} ({getattr(coroutine, '__qualname__', '?')}{place}){host}{stopped}"


def _bury(task: SimTask[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine: Any = task.get_coro()
    for _ in range(CLOSE_TRIES_MAX):
        # A `finally` that awaits makes close() fail once; the next call closes it there.
        with contextlib.suppress(Exception, asyncio.CancelledError, GeneratorExit):
            task.context.run(coroutine.close)
            return


@contextlib.contextmanager
def unbegun_coroutines_allowed() -> Generator[None]:
    """For the end of a world: what was handed to a task that ended before its first step has nobody to await it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        yield
