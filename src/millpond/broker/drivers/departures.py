"""Leaders that have just gone, for clients who ask where to send: told whom to ask next as soon as that is known.

A client asks at once when its connection to a leader is lost; and, told of the same leader, not again for a second. So
who asks while that leader is looked for (absences.py) is answered when another leads, or after a while. It may ask
before this broker has noticed the same loss, so whoever asks where others lead waits for a moment too short to be felt.
Driven by the handler of Metadata.
"""

import asyncio
from collections.abc import Callable, Collection

from millpond.broker.drivers.quorum import Quorum
from millpond.core.metadata.image import Image

NOTICE_SECONDS = 0.005
WAIT_SECONDS_MAX = 1.0
LOOK_SECONDS = 0.05


class Departures:
    def __init__(self, quorum: Quorum, *, is_doubted: Callable[[int], bool]) -> None:
        self._quorum = quorum
        self._is_doubted = is_doubted

    async def wait_settled(self, leaders: Callable[[Image], Collection[int]]) -> None:
        """Until none of these is looked for, or known to have ended; or for a while."""
        loop = asyncio.get_running_loop()
        until = loop.time() + WAIT_SECONDS_MAX
        await asyncio.sleep(NOTICE_SECONDS)
        while any(map(self._is_doubted, leaders(self._quorum.image))) and loop.time() < until:
            await self._quorum.wait_change(min(until, loop.time() + LOOK_SECONDS))
