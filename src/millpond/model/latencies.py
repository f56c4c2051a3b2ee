"""How long something took, many times over: counts in bins that double, cheap enough for every request.

Invariant: bin k counts what took less than 2**k microseconds and not less than 2**(k-1); the last takes all that is
longer. Pure. Filled wherever something is timed, and read by telemetry.
"""

from math import inf

_NS_PER_US = 1_000
LAST_BIN = 26
"""From 2**25 microseconds on, half a minute."""


class Latencies:
    __slots__ = ("bins", "total_ns")

    def __init__(self) -> None:
        self.bins = [0] * (LAST_BIN + 1)
        self.total_ns = 0

    def note(self, took_ns: int) -> None:
        place = (took_ns // _NS_PER_US).bit_length()
        self.bins[place if place < LAST_BIN else LAST_BIN] += 1  # noqa: FURB136 - twice as fast
        self.total_ns += took_ns

    @property
    def count(self) -> int:
        return sum(self.bins)

    def upper_bounds(self) -> list[tuple[float, int]]:
        """For each bound in seconds, how many took less; the last bound is infinite."""
        seen, bounds = 0, []
        for place, count in enumerate(self.bins):
            seen += count
            bounds.append((2**place / 1e6 if place < LAST_BIN else inf, seen))
        return bounds
