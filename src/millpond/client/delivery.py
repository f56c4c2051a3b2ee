"""A message's way to its acknowledgement, as something to wait for.

    delivery = await producer.send_soon("orders", b"...")
    ...
    where = await delivery

Costs nothing until somebody waits: all messages of a batch share the batch's outcome.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from millpond.client.batches import Batch, Outcome
from millpond.client.messages import RecordMetadata
from millpond.model.ids import TimestampMs


class Delivery:
    __slots__ = ("_batch", "_place", "_timestamp")

    def __init__(self, batch: Batch, place: int, timestamp: TimestampMs) -> None:
        self._batch = batch
        self._place = place
        self._timestamp = timestamp

    @property
    def is_done(self) -> bool:
        return self._batch.outcome is not None

    def result(self) -> RecordMetadata:
        """Where it is; raises what kept it from getting there. Only once `is_done`."""
        at, outcome = self._batch.at, self._batch.outcome_of(self._place)
        if outcome.error is not None:
            raise outcome.error.with_traceback(None)
        stamped = self._timestamp if outcome.append_time < 0 else outcome.append_time
        return RecordMetadata(at.topic, at.partition, outcome.base_offset, stamped)

    def on_done(self, callback: "Callable[[Delivery], None]") -> None:
        """Calls back once it is done, on the producer's loop; at once if it is."""
        if self.is_done:
            callback(self)
        else:
            self._batch.waiters.append(lambda _: callback(self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.is_done:
            yield from finished(self._batch).__await__()
        return self.result()


async def finished(batch: Batch) -> None:
    """Waits for its outcome, whatever that is."""
    if batch.outcome is None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_: Outcome) -> None:
            if not future.done():
                future.set_result(None)

        batch.waiters.append(done)
        await future
