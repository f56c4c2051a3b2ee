"""Two clocks for tests: one that follows virtual time, and one turned by hand.

Invariant: `monotonic_ms` never goes back, and both clocks start on the same day in every run.
`SimClock` is driven by a `SimLoop`, `ManualClock` by a test.
"""

from collections.abc import Callable
from typing import Protocol

from millpond.testing.hosts import current_host

WALL_START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""


class VirtualTime(Protocol):
    def time(self) -> float: ...


class SimClock:
    """The clocks of all simulated hosts; whose it shows depends on which host's code asks."""

    def __init__(self, loop: VirtualTime) -> None:
        self._loop = loop
        self._skews_ms: dict[str, int] = {}

    def monotonic_ms(self) -> int:
        return round(self._loop.time() * 1e9) // 1_000_000

    def wall_ms(self) -> int:
        return WALL_START_MS + self.monotonic_ms() + self._skews_ms.get(current_host(), 0)

    def set_skew(self, host: str, *, ms: int) -> None:
        """Puts the host's wall clock this far ahead of true time, or behind it."""
        self._skews_ms[host] = ms

    def jump(self, host: str, *, ms: int) -> None:
        """Moves the host's wall clock from where it is now, as an operator or NTP would."""
        self._skews_ms[host] = self._skews_ms.get(host, 0) + ms


class ManualClock:
    """Stands still until it is turned."""

    def __init__(self, *, wall_ms: int = WALL_START_MS) -> None:
        self._monotonic_ms = 0
        self._wall_ms = wall_ms
        self.turned: Callable[[], object] = lambda: None
        """Called each time it was."""

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def advance(self, ms: int) -> None:
        if ms < 0:
            raise ValueError(f"time does not go back by {-ms} ms; only a wall clock can: see jump")
        self._monotonic_ms += ms
        self.jump(ms)

    def jump(self, ms: int) -> None:
        """Moves the wall clock only, ahead or back."""
        self._wall_ms += ms
        self.turned()
