"""Numbers for idempotent producers: a block at a time from the metadata log, one at a time to producers.

Invariant: no number is given out twice, by any broker, ever; a restart loses at most the rest of a block.
"""

from millpond.broker.drivers.metadata import MetadataLog
from millpond.core.metadata.controller import allocate_producer_ids
from millpond.core.metadata.decisions import Decision
from millpond.core.metadata.image import Image
from millpond.model.ids import ProducerId


class ProducerIds:
    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata
        self._left: list[int] = []

    async def take(self) -> ProducerId:
        while not self._left:
            decision = await self._metadata.decide(self._next_block)
            # Only now that the block is on disk: until then a crash would let another life give it out again.
            for block in decision.answers:
                assert isinstance(block, range)
                self._left += reversed(block)
        return ProducerId(self._left.pop())

    def _next_block(self, image: Image) -> Decision[range]:
        if self._left:  # somebody else who waited has fetched one
            return Decision((), ())
        command, block = allocate_producer_ids(image)
        return Decision((command,), (block,))
