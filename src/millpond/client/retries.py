"""When to try again, and for how long.

Invariant: pauses grow from `pause_min` by doubling up to `pause_max`, and each is drawn from its upper half, so that
clients that failed together do not come back together.
Pure: chance is an argument. Driven by everything that asks a broker.
"""

from millpond.model.ports import Rng
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """In seconds."""

    pause_min: float = 0.05
    pause_max: float = 1.0

    def pause(self, failures: int, rng: Rng) -> float:
        """After so many failures in a row, from 1 on."""
        longest = min(self.pause_max, self.pause_min * 2.0 ** min(failures - 1, 30))
        return rng.uniform(longest / 2, longest)
