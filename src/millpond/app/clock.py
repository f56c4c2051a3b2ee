"""The `Clock` port on a real machine: the one place where a process asks what time it is.

Driven by whatever was given a `Clock`.
"""

import time

_NS_PER_MS = 1_000_000


class SystemClock:
    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // _NS_PER_MS

    def wall_ms(self) -> int:
        return time.time_ns() // _NS_PER_MS
