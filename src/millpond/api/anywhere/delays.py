"""Delayed messages that wait, asked of whoever leads their partition; a place that is not there is refused at once.

Driven by the doors, on the broker's loop.
"""

from typing import Final

from millpond.api.anywhere.neighbours import Neighbours
from millpond.api.anywhere.reading import Reading
from millpond.broker.operations.delays import PAGE_MAX
from millpond.client.admin_delays import DelayAdmin, DelayPage, parse_message_id
from millpond.model.ids import TopicPartition

__all__ = ["PAGE_DEFAULT", "PAGE_MAX", "alter", "page"]

PAGE_DEFAULT: Final = 100


async def page(
    neighbours: Neighbours, reading: Reading, topic: str, *, partition: int | None, after: str | None, count: int
) -> DelayPage:
    reading.check(TopicPartition(topic, partition or 0))
    admin = DelayAdmin(neighbours.cluster)
    return await neighbours.cluster.retrying(lambda: admin.page(topic, partition=partition, after=after, count=count))


async def alter(neighbours: Neighbours, reading: Reading, message_id: str, due_ms: int | None) -> None:
    """None cancels it."""
    at, _ = parse_message_id(message_id)
    reading.check(at)
    admin = DelayAdmin(neighbours.cluster)
    await neighbours.cluster.retrying(lambda: admin.alter(message_id, due_ms))
