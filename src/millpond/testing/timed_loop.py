"""The time of a simulated world, and the clocks of its hosts, which need not run at the same rate.

Invariant: `time` never goes back, neither true time nor what any host's clock shows. Whoever runs on a host sees only
that host's clock, and its timers ring by it; the network and the disks take true time.
`SimLoop` is built on it and moves the clock.
"""

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from typing import Any

from millpond.testing.hosts import HERE


class Due(float):
    """When a timer rings, and which: a heap compares these without a call into Python."""

    __slots__ = ("handle",)
    handle: asyncio.TimerHandle


class TimedLoop(asyncio.BaseEventLoop):
    # What BaseEventLoop keeps, in every CPython from 3.11 on, and type stubs leave out.
    _scheduled: list[Due]

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

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *arguments: Any,  # noqa: ANN401 - the callback's
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """By the clock of the host whose code asks."""
        if self.clock_rates and (rate := self._rate()) != 1.0:
            when = when / rate + 1e-9  # so that the host's clock surely shows `when` by then
        return self.call_at_true_time(when, callback, *arguments, context=context)

    def call_at_true_time(
        self,
        when: float,
        callback: Callable[..., object],
        *arguments: Any,  # noqa: ANN401 - the callback's
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]
        handle = asyncio.TimerHandle(when, callback, arguments, self, context)
        due = Due(when)
        due.handle = handle
        heapq.heappush(self._scheduled, due)
        handle._scheduled = True  # type: ignore[attr-defined]
        return handle
