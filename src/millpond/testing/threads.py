"""Executors, as the simulator plays them: jobs that run inline, at a seeded later moment.

Invariant: an executor with n workers has at most n jobs under way and starts them in the order given,
so code that relies on a single worker for order may, and code that relies on luck finds out.
Driven by `SimLoop.run_in_executor`; a job's function tells how long it took by `SimLoop.spend`.
"""

import asyncio
import functools
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import field

from millpond.model.values import dataclass
from millpond.testing.hosts import Life
from millpond.testing.trace import Trace

WORKERS_DEFAULT = 8
START_SECONDS_MAX = 0.002


@dataclass(eq=False)
class Job:
    call: Callable[[], object]
    name: str
    future: asyncio.Future[object]
    spent_seconds: float = 0.0


@dataclass(eq=False)
class _Workers:
    """The threads of one executor in one life."""

    free: int
    queue: deque[Job] = field(default_factory=deque)


class Threads:
    """All simulated threads of a loop. They end with the life they belong to, whatever they were doing."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random, trace: Trace) -> None:
        self._loop = loop
        self._rng = rng
        self._trace = trace
        self._workers: dict[tuple[Life | None, Executor | None], _Workers] = {}
        self.job: Job | None = None
        """The job whose function is on the stack right now."""

    def submit(self, life: Life | None, executor: Executor | None, job: Job) -> None:
        workers = self._workers.get((life, executor))
        if workers is None:
            count = getattr(executor, "_max_workers", WORKERS_DEFAULT)
            workers = self._workers[life, executor] = _Workers(free=count)
        workers.queue.append(job)
        self._start_next(workers)

    def forget(self, life: Life) -> None:
        self._workers = {key: workers for key, workers in self._workers.items() if key[0] is not life}

    def _start_next(self, workers: _Workers) -> None:
        if workers.free and workers.queue:
            workers.free -= 1
            delay_seconds = self._rng.uniform(0, START_SECONDS_MAX)
            self._loop.call_later(delay_seconds, self._run, workers, workers.queue.popleft())

    def _run(self, workers: _Workers, job: Job) -> None:
        """Runs the function now, and hands over its result when the time it spent is over.

        Its effects belong to the start of that time. So what others write while a sync is under way is
        not covered by it, exactly as on a real disk, though the sync has not returned yet.
        """
        if job.future.cancelled():
            self._finish(workers, job, None, None)
            return
        self._trace.record("executor", job=job.name)
        result: object = None
        failure: BaseException | None = None
        self.job = job
        try:
            result = job.call()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            failure = error
        finally:
            self.job = None
        if workers not in self._workers.values():
            return  # what it did ended its own life, as a power cut does: nobody hears of it
        if job.spent_seconds > 0:
            self._loop.call_later(job.spent_seconds, self._finish, workers, job, result, failure)
        else:
            self._finish(workers, job, result, failure)

    def _finish(self, workers: _Workers, job: Job, result: object, failure: BaseException | None) -> None:
        workers.free += 1
        self._start_next(workers)
        if job.future.done():
            return
        if failure is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(failure)


def name_of(function: Callable[..., object]) -> str:
    """A name that is the same in every process, for the trace."""
    while isinstance(function, functools.partial):
        # asyncio.to_thread wraps the function in its context's `run`; the function is what a reader knows.
        function = function.args[0] if function.args and callable(function.args[0]) else function.func
    return getattr(function, "__qualname__", type(function).__name__)
