"""Numbers for idempotent producers: a block at a time from the metadata log, one at a time to producers.

Invariant: no number is given out twice, by any broker, ever; a restart loses at most the rest of a block.
"""

from millpond.broker.drivers.metadata import MetadataLog
from millpond.core.metadata.commands import Command
from millpond.core.metadata.controller import allocate_producer_ids
from millpond.core.metadata.image import Image
from millpond.model.ids import ProducerId


class ProducerIds:
    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata
        self._left: list[int] = []

    async def take(self) -> ProducerId:
        while not self._left:
            await self._metadata.submit(self._next_block)
        return ProducerId(self._left.pop())

    def _next_block(self, image: Image) -> tuple[Command, ...]:
        if self._left:  # somebody else who waited has fetched one
            return ()
        command, block = allocate_producer_ids(image)
        self._left = list(reversed(block))
        return (command,)
