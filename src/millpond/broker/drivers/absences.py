"""Which brokers' processes have ended, as the machines they ran on say.

A broker listens for as long as it acts. When a connection to one is lost, the very place it led to is dialled at once:
a machine that refuses says that nobody listens there any more, so the process has ended, and holds no lease. Two
refusals are asked for, a moment apart. Silence, an unreachable host or anything else proves nothing: then sessions and
election timeouts decide, as ever.

Invariant: what is told of a broker was known of it (its epoch, the term it led) before it was first dialled, so it is
about a process that had listened by then; never about one that has started since. A connection that is made takes it
back. One look at a broker at a time.
Driven by links.py (connections made and lost). Tells quorum.py and controller.py.
"""

import asyncio
from collections.abc import Callable

from millpond.model.values import dataclass

REFUSALS = 2
DIALS_MAX = 3
MOMENT_SECONDS = 0.001
PAUSE_SECONDS = 0.05
DIAL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Known:
    """What the metadata says of a broker."""

    address: tuple[str, int] | None
    """Where it is to be reached now."""
    epoch: int | None
    """Of its registration, where it is live."""
    led_term: int | None
    """The present one, if it leads the quorum."""


@dataclass(frozen=True, slots=True)
class _Place:
    address: tuple[str, int]
    """As it is known to others."""
    peer: tuple[str, int]
    """As the kernel resolved it: a name may mean another machine by now."""


class Absences:
    def __init__(
        self,
        *,
        known: Callable[[int], Known],
        on_gone: Callable[[int, Known], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._known = known
        self._on_gone = on_gone
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._places: dict[int, _Place] = {}
        """Where each broker last proved itself."""
        self._looks: dict[int, asyncio.Task[None] | asyncio.TimerHandle] = {}
        """Those that are looked for, or are about to be."""
        self._is_closed = False
        self.gone: dict[int, Known] = {}
        """Those whose process has ended, and what was known of it."""

    def is_doubted(self, broker: int) -> bool:
        """Whether its process has ended, or may have: that is being found out."""
        return broker in self.gone or broker in self._looks

    def connected(self, broker: int, address: tuple[str, int], peer: tuple[str, int]) -> None:
        """It has proved itself there."""
        self._places[broker] = _Place(address, peer)
        self.gone.pop(broker, None)
        if (look := self._looks.pop(broker, None)) is not None:
            look.cancel()

    def lost(self, broker: int) -> None:
        """A connection to it, however that ended."""
        place = self._places.get(broker)
        if place is not None and broker not in self._looks and broker not in self.gone and not self._is_closed:
            # Not at once: connections are lost by the dozen where this broker's own process ends.
            self._looks[broker] = self._loop.call_later(MOMENT_SECONDS, self._begin, broker, place)

    def _begin(self, broker: int, place: _Place) -> None:
        look = self._looks[broker] = self._loop.create_task(self._look(broker, place))
        look.add_done_callback(lambda _: self._ended(broker, look))

    def _ended(self, broker: int, look: asyncio.Task[None]) -> None:
        if self._looks.get(broker) is look:
            del self._looks[broker]

    async def _look(self, broker: int, place: _Place) -> None:
        known = self._known(broker)
        if known.address != place.address:
            return  # it has moved: that nobody is where it was says nothing
        try:
            if await _has_ended(place.peer):
                self.gone[broker] = known
                self._on_gone(broker, known)
        except Exception as error:
            self._on_error(error)

    async def close(self) -> None:
        self._is_closed = True
        for look in self._looks.values():
            look.cancel()
        if looks := [look for look in self._looks.values() if isinstance(look, asyncio.Task)]:
            await asyncio.wait(looks)


async def _has_ended(peer: tuple[str, int]) -> bool:
    """Refused twice in a row. A connection that is lost may be the first thing that a process drops when it ends, and
    its listener the last, so one dial that is taken is not the end of it."""
    refusals = 0
    for dial in range(DIALS_MAX):
        if dial:
            await asyncio.sleep(PAUSE_SECONDS)
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, *peer)
        except ConnectionRefusedError:
            refusals += 1
            if refusals == REFUSALS:
                return True
        except (OSError, TimeoutError):
            return False
        else:
            transport.abort()
            refusals = 0
    return False
