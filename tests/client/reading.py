"""What a broker really has, read from its logs rather than by a client."""

from millpond.model.ids import Offset
from millpond.protocol.records import Record, decode_batch, iter_batches
from millpond.testing.broker import InProcessBroker


def read_all(broker: InProcessBroker, topic: str) -> dict[int, list[Record]]:
    """All records by partition."""

    async def read() -> dict[int, list[Record]]:
        found: dict[int, list[Record]] = {}
        partition = 0
        while (kept := broker.broker.node.partitions.named(topic, partition)) is not None:
            found[partition] = []
            start = Offset(0)
            while start < kept.log.next_offset:
                data = kept.log.read(start, bytes_max=1 << 24).data
                for position, header in iter_batches(data):
                    found[partition] += decode_batch(data, position)
                    start = header.next_offset
            partition += 1
        return found

    return broker.run(read)
