"""Lives: one life is one run of a simulated host's process, from its start to its end.

Invariant: code of a life that has ended never runs again, not even its `finally` blocks, as far as
anybody in the simulation can tell; code of a held life (stopped, or busy in a blocking call) waits.
The life that code belongs to travels in its context, so tasks, timers and callbacks inherit it from
whoever created them. State only: `SimLoop` looks at it before each step, `SimHost` changes it.
"""

import asyncio
from collections import deque
from contextvars import ContextVar
from enum import Enum

from millpond.testing.handles import Call, Timer

OUTSIDE = "outside"
"""The host of a scenario's own code, which watches the simulated hosts and cannot be killed."""


class Fate(Enum):
    """How a life ended, for whoever has to lose something then, such as a disk."""

    KILLED = "killed"
    """The process is gone; its machine lives, keeps what was written and resets its connections."""
    POWER_CUT = "power cut"
    """The machine is dark: peers hear nothing, and what was not synced is gone."""


class HostDown(Exception):
    """The host was killed or lost power while somebody waited for its code to finish."""


class Life:
    def __init__(self, host: str, number: int) -> None:
        self.host = host
        self.number = number
        self.fate: Fate | None = None
        self.stopped = False
        self.busy_until = 0.0
        self.running = True
        """Whether its code may run now; kept in step with the fields above by `SimLoop`."""
        self.parked: deque[Call | Timer] = deque()
        """What became ready while the life was held, in order."""
        self.watchers: list[asyncio.Future[None]] = []
        """Futures of code outside that must learn of this life's end."""

    def __repr__(self) -> str:
        return f"<{self.host}#{self.number}>"

    @property
    def alive(self) -> bool:
        return self.fate is None


HERE: ContextVar[Life | None] = ContextVar("millpond_life", default=None)
"""The life the running code belongs to; None on the wire and outside."""


def current_host() -> str:
    """The name of the simulated host whose code is running."""
    life = HERE.get()
    return OUTSIDE if life is None else life.host


def alive_here() -> bool:
    """Whether the running code may still have effects.

    False while a killed life's coroutines are closed at the very end, and for the rest of a step in
    which a life ended itself. Anything simulated that keeps state (a disk) must ignore such callers.
    """
    life = HERE.get()
    return life is None or life.alive
