"""How fast a broker is, as one client sees it: sent in batches, one by one, and read back.

Invariant: the topic it made is deleted, also where it was interrupted; every message it sent was read.
Driven by bench.py.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from millpond.app.clock import SystemClock
from millpond.cli.session import client_options
from millpond.client import Admin, Consumer, Producer
from millpond.model.errors import RequestTimedOut
from millpond.model.values import dataclass

CHUNK_BYTES: Final = 16 << 20
POLL_MESSAGES: Final = 100_000

Row = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    messages: int
    size: int
    singles: int
    partitions: int
    replication_factor: int | None
    acks: str
    compression: str


def measure(bootstrap: str, timeout: float, plan: Plan) -> list[Row]:
    topic = f"millpond-bench-{SystemClock().wall_ms()}"
    return asyncio.run(_measure(bootstrap, topic, plan, client_options(timeout)))


async def _measure(bootstrap: str, topic: str, plan: Plan, options: dict[str, Any]) -> list[Row]:
    async with Admin(bootstrap, **options) as admin:
        factor = plan.replication_factor or -1
        await admin.create_topic(topic, partitions=plan.partitions, replication_factor=factor)
        try:
            settings = {"acks": plan.acks, "compression": plan.compression}
            async with Producer(bootstrap, **options, **settings) as producer:
                rows = [await _send_batches(producer, topic, plan)]
                if plan.singles:
                    rows.append(await _send_one_by_one(producer, topic, plan))
            async with Consumer(bootstrap, topics=[topic], **options) as consumer:
                rows.append(await _read(consumer, plan, idle_seconds_max=options["request_seconds_max"]))
        finally:
            await admin.delete_topic(topic)
    return rows


async def _send_batches(producer: Producer, topic: str, plan: Plan) -> Row:
    value = _value(plan.size)
    chunk = max(1, CHUNK_BYTES // max(1, plan.size))
    loop = asyncio.get_running_loop()
    started, left = loop.time(), plan.messages
    while left:
        count = min(left, chunk)
        await producer.send_many(topic, [value] * count)
        left -= count
    return _row("send in batches", plan.messages, plan.size, loop.time() - started)


async def _send_one_by_one(producer: Producer, topic: str, plan: Plan) -> Row:
    value = _value(plan.size)
    loop = asyncio.get_running_loop()
    took: list[float] = []
    for _ in range(plan.singles):
        started = loop.time()
        await producer.send(topic, value)
        took.append(loop.time() - started)
    return _row("send one by one", plan.singles, plan.size, sum(took)) | _percentiles(took)


async def _read(consumer: Consumer, plan: Plan, *, idle_seconds_max: float) -> Row:
    wanted = plan.messages + plan.singles
    loop = asyncio.get_running_loop()
    started, seen = loop.time(), 0
    while seen < wanted:
        came = len(await consumer.poll(POLL_MESSAGES, timeout=idle_seconds_max))
        if not came:
            raise RequestTimedOut(f"{seen} of {wanted} messages came back, and then nothing for {idle_seconds_max:g} s")
        seen += came
    return _row("read", seen, plan.size, loop.time() - started)


def _value(size: int) -> bytes:
    """Not all the same byte, so that compression has something to do."""
    return bytes(number * 7919 % 251 for number in range(size))


def _row(what: str, messages: int, size: int, seconds: float) -> Row:
    seconds = max(seconds, 1e-6)
    return {
        "what": what,
        "messages": messages,
        "seconds": round(seconds, 3),
        "messages_per_second": round(messages / seconds),
        "megabytes_per_second": round(messages * size / seconds / 1e6, 1),
        "p50_ms": None,
        "p99_ms": None,
        "max_ms": None,
    }


def _percentiles(took: Sequence[float]) -> Row:
    ordered = sorted(took)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 2)

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0)}
