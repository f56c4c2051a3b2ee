"""How late the event loop is: a timer that rings four times a second and looks at the clock.

Whatever blocks the loop delays every request by as much, so this is the first place to look when all of them are slow.
Driven by app, which starts and stops it; runs on the loop.
"""

import asyncio
import time
from collections.abc import Callable

from millpond.model.latencies import Latencies

PAUSE_SECONDS = 0.25
_NS_PER_SECOND = 1_000_000_000


class LoopDelay:
    def __init__(self, *, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        """Starts at once, on the running loop."""
        self.latencies = Latencies()
        self._now_ns = now_ns
        self._loop = asyncio.get_running_loop()
        self._set()

    def _set(self) -> None:
        self._due_ns = self._now_ns() + int(PAUSE_SECONDS * _NS_PER_SECOND)
        self._timer = self._loop.call_later(PAUSE_SECONDS, self._ring)

    def _ring(self) -> None:
        self.latencies.note(max(0, self._now_ns() - self._due_ns))
        self._set()

    def stop(self) -> None:
        self._timer.cancel()
