"""Where committed offsets are kept, if not in `__consumer_offsets`: the door for plugins.

A store is named by a URL; its scheme is the name of an entry point in the group `millpond.offset_stores`, which is
called with the URL and gives an `OffsetStore`. Members and generations of groups stay in Millpond's own log.
Pure: a protocol and the values it speaks of (records.py). Driven by broker/drivers/group_shard.py.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from millpond.core.groups.records import OffsetCommitted, OffsetForgotten

ENTRY_POINTS = "millpond.offset_stores"

OffsetChange = OffsetCommitted | OffsetForgotten


class OffsetStore(Protocol):
    async def load(self) -> Sequence[OffsetCommitted]:
        """Everything that is kept, of all groups. Called when this broker begins to look after some of them."""

    async def keep(self, changes: Sequence[OffsetChange]) -> None:
        """In this order; durable when it returns. Whatever it raises, the client is told that nothing is certain."""

    async def close(self) -> None:
        """Called once, at the end."""


OffsetStoreFactory = Callable[[str], OffsetStore]
"""From the URL in the settings."""
