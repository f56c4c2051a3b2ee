"""The time of a simulated world, and the clocks of its hosts, which need not run at the same rate.

Invariant: `time` never goes back, neither true time nor what any host's clock shows. Whoever runs on a host sees only
that host's clock, and its timers ring by it; the network and the disks take true time.
`SimLoop` is built on it and moves the clock.
"""

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

from millpond.testing.handles import Call, Timer
from millpond.testing.hosts import HERE

ROUNDED_SECONDS_MAX = 1e-9
"""A timer by a clock that drifts rings this much later, so that the clock surely shows its moment by then."""


class TimedLoop(asyncio.BaseEventLoop):
    # What BaseEventLoop keeps, in every CPython from 3.11 on, and type stubs leave out.
    _closed: bool
    _scheduled: list[Timer]
    _ready: deque[Call | Timer]
    _timer_cancelled_count: int

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self.clock_rates: dict[str, float] = {}
        """How fast the clocks of hosts run, where that is not as fast as time itself. Set before they start."""

    def time(self) -> float:
        """As the clock of the host shows it whose code asks."""
        return self._now * self._rate() if self.clock_rates else self._now

    def true_time(self) -> float:
        return self._now

    def time_ns(self) -> int:
        """True nanoseconds since the start, rounded so that a sleep of 1.001 s takes 1001 ms and not 1000."""
        return round(self._now * 1e9)

    def _rate(self) -> float:
        life = HERE.get()
        return 1.0 if life is None else self.clock_rates.get(life.host, 1.0)

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *arguments: Any,  # noqa: ANN401 - the callback's
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if self._closed:
            self._check_closed()  # type: ignore[attr-defined]
        call = Call(callback, arguments, context)
        self._ready.append(call)
        return call  # type: ignore[return-value] # one in all but its class

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *arguments: Any,  # noqa: ANN401 - the callback's
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *arguments, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *arguments: Any,  # noqa: ANN401 - the callback's
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """By the clock of the host whose code asks."""
        if self.clock_rates and (rate := self._rate()) != 1.0:
            when = when / rate + ROUNDED_SECONDS_MAX
        return self.call_at_true_time(when, callback, *arguments, context=context)

    def call_at_true_time(
        self,
        when: float,
        callback: Callable[..., object],
        *arguments: Any,  # noqa: ANN401 - the callback's
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if self._closed:
            self._check_closed()  # type: ignore[attr-defined]
        timer = Timer(when)
        timer._callback = callback
        timer._args = arguments
        timer._context = contextvars.copy_context() if context is None else context
        timer._loop = self
        timer._cancelled = False
        timer._scheduled = True
        heapq.heappush(self._scheduled, timer)
        return timer  # type: ignore[return-value] # one in all but its class

    def timer_cancelled(self, timer: Timer) -> None:
        if timer._scheduled:
            self._timer_cancelled_count += 1
