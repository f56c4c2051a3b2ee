"""The event loop a broker runs on: uvloop's, with a shorter way to a thread and back.

A broker hands every sync of a log to a thread. By way of concurrent.futures, which lets any thread wait for such work,
that takes twice as long as by a queue and a call back; here only the loop waits.
Invariant: what was handed over is run once, by one of at most THREADS_MAX threads, and its future settled on the loop,
unless that was cancelled or the loop is closed.
Made by process.py; the simulator, and whoever runs a broker within another program, use their own.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import uvloop

THREADS_MAX = 8

_Work = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class BrokerLoop(uvloop.Loop):
    def __init__(self) -> None:
        super().__init__()
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._threads = 0
        self._under_way = 0
        """Handed over, and not settled."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]  # noqa: ANN401
        if executor is not None:
            return super().run_in_executor(executor, func, *args)
        future = self.create_future()
        self._under_way += 1
        if self._under_way > self._threads < THREADS_MAX:
            self._threads += 1
            threading.Thread(target=self._serve, name=f"millpond-{self._threads}", daemon=True).start()
        self._work.put((future, func, args))
        return future

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            future, func, args = work
            try:
                result, error = func(*args), None
            except BaseException as raised:
                result, error = None, raised
            try:
                self.call_soon_threadsafe(self._settle, future, result, error)
            except RuntimeError:
                return  # the loop is closed
            del work, future, func, args, result, error

    def _settle(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:  # noqa: ANN401
        self._under_way -= 1
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def close(self) -> None:
        for _ in range(self._threads):
            self._work.put(None)
        self._threads = 0
        super().close()
