"""Delays, as an operator looks after them: which messages wait, cancelled, due at another moment.

Asked of the broker that leads the partition. Driven by the front doors.
"""

import asyncio
from typing import NamedTuple

from millpond.broker.drivers.delays import PartitionDelays
from millpond.broker.node import Node
from millpond.core.delivery.delays import Waiting
from millpond.core.delivery.wheel import Due
from millpond.model.errors import MillpondError, PolicyViolation

PAGE_MAX = 1_000


class Page(NamedTuple):
    pending: int
    messages: list[Waiting]


def list_delays(node: Node, topic: str, partition: int, *, after: Due, count_max: int) -> Page:
    """The next that come due behind `after`."""
    delays = _delays(node, topic, partition)
    return Page(len(delays), delays.first(max(0, min(count_max, PAGE_MAX)), after=after))


async def cancel(node: Node, topic: str, partition: int, id_: int, *, timeout_ms: int) -> None:
    await _delays(node, topic, partition).cancel(id_, until=_until(timeout_ms))


async def reschedule(node: Node, topic: str, partition: int, id_: int, due: int, *, timeout_ms: int) -> None:
    await _delays(node, topic, partition).reschedule(id_, due, until=_until(timeout_ms))


def _delays(node: Node, topic: str, partition: int) -> PartitionDelays:
    found = node.find(topic, b"", partition)
    if isinstance(found, MillpondError):
        raise found
    delays = node.delays.of(topic, partition)
    if delays is None:
        raise PolicyViolation(f"{topic[:80]} delays no messages; set its millpond.delay to on first")
    return delays


def _until(timeout_ms: int) -> float:
    return asyncio.get_running_loop().time() + timeout_ms / 1000
