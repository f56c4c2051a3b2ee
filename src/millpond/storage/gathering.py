"""Whether those who are to share a sync have gathered: when a turn of the loop has brought nobody more.

Whom a sync lets go come back one behind the other, some microseconds apart. Were the next one begun with the first of
them, they would go by ones and twos from then on, each with a sync of its own; so they go together. Who comes alone,
and was alone the last time, waits for nobody.

Invariant: nobody waits for others longer than TURNS_MAX turns of the loop.
Pure. Used by commit.py, and by broker/drivers/queue_keeper.py for what is kept of queues.
"""

from typing import Final

TURNS_MAX: Final = 4
ENOUGH: Final = 64
"""Who are so many share the cost of a sync well enough."""


class Gathering:
    __slots__ = ("_seen", "_turns_left", "_were_many")

    def __init__(self) -> None:
        self._seen = 0
        """How many there were a turn before."""
        self._turns_left = 0
        self._were_many = False

    def begin(self) -> None:
        self._seen = 0 if self._were_many else 1
        self._turns_left = TURNS_MAX

    def hurry(self) -> None:
        """None will come, or they have gathered elsewhere."""
        self._turns_left = 0

    def is_over(self, count: int) -> bool:
        """To be asked once in each turn of the loop, with how many there are, until it is."""
        if self._turns_left and self._seen < count < ENOUGH:
            self._seen = count
            self._turns_left -= 1
            return False
        self._were_many = count > 1
        return True
