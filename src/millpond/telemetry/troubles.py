"""Tells of what went wrong beside any request: a disk that fails as what it is, anything else as a bug of ours.

Invariant: the same trouble is told at most once a minute, however often it is met; only so many are remembered.
Driven by app, which hands `note` to whatever runs in the background.
"""

from millpond.model.errors import StorageError
from millpond.model.ports import Clock
from millpond.model.recent import Recent
from millpond.telemetry.events import DISK_TROUBLE, UNEXPECTED_ERROR, tell

QUIET_MS = 60_000
REMEMBERED_MAX = 1_000


class Troubles:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_at_ms: Recent[str, int] = Recent(count_max=REMEMBERED_MAX)

    def note(self, error: BaseException) -> None:
        now_ms, text = self._clock.monotonic_ms(), f"{type(error).__name__}: {error}"
        if now_ms - self._told_at_ms.get(text, -QUIET_MS) < QUIET_MS:
            return
        self._told_at_ms.remember(text, now_ms)
        if isinstance(error, StorageError):
            tell(DISK_TROUBLE, trouble=text)
        else:
            tell(UNEXPECTED_ERROR, error=error)
