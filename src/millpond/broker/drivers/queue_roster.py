"""The queue groups of one partition: those that were ever asked for, and not deleted since.

A topic that keeps only what somebody still has to acknowledge asks them all how far they are.
Invariant: a group is in what is kept before it is handed its first message.
Driven by queues.py.
"""

from typing import Final

from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.states import StateKey, States
from millpond.core.groups.fields import FieldReader, FieldWriter

KIND: Final = "roster"


class Roster:
    def __init__(self, partition: Partition, states: States) -> None:
        """Use `load` first."""
        self._states = states
        self._key = StateKey(KIND, "", partition.topic_id, partition.at.partition)
        self.epoch = partition.leader_epoch
        self.groups: tuple[str, ...] = ()

    async def load(self) -> None:
        documents = await self._states.load(self._key, self.epoch)
        if documents:
            fields = FieldReader(documents[-1])
            self.groups = tuple(fields.text() for _ in range(fields.count()))

    async def add(self, group: str) -> None:
        await self._keep((*self.groups, group))

    async def remove(self, group: str) -> None:
        await self._keep(tuple(each for each in self.groups if each != group))

    async def _keep(self, groups: tuple[str, ...]) -> None:
        """Seen here at once, so that two who come together are both in what is kept last."""
        self.groups = tuple(dict.fromkeys(groups))
        document = FieldWriter().int32(len(self.groups))
        for each in self.groups:
            document.text(each)
        await self._states.keep(self._key, self.epoch, document.bytes(), whole=True)
