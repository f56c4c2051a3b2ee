"""`python -m bench.delays [messages]`: a million delayed messages through one partition of a broker in this process.

Inserted in batches over the produce use case, on a real disk; how much memory each takes while it waits; how late they
come when ten thousand fall due each second; how long a restart takes until it knows what waits.
Lateness is from the moment a message is due to the moment a consumer can see it.
"""

import asyncio
import gc
import random
import sys
import time
from pathlib import Path

from bench.workspace import workspace
from millpond.app.broker import Broker
from millpond.app.broker_settings import BrokerSettings
from millpond.app.clock import SystemClock
from millpond.app.loop import BrokerLoop
from millpond.broker.drivers.partition import Partition
from millpond.broker.operations import produce
from millpond.core.delivery.delay_headers import DELAY, DELIVER_AT
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.model.ids import Offset, TimestampMs
from millpond.protocol.records import NewRecord, decode_batch, encode_batch, iter_batches
from millpond.storage.filesystem import OsFilesystem

TOPIC = "bench"
BATCH = 500
VALUE = b"x" * 100
DUE_PER_SECOND = 10_000
DUE_SECONDS = 5
FAR_MS = (3_600_000, 30 * 86_400_000)


def fail(error: BaseException) -> None:
    raise error


async def start(directory: str) -> Broker:
    return await Broker.start(
        BrokerSettings(data_directory=directory, port=0),
        filesystem=OsFilesystem(),
        clock=SystemClock(),
        rng=random.Random(1),
        on_error=fail,
    )


async def run(directory: str, count: int) -> None:
    broker = await start(directory)
    node, wanted = broker.node, [NewTopic(name=TOPIC, partitions=1, configs=(("millpond.delay", "on"),))]
    await node.metadata.decide(lambda image: create_topics(image, wanted, static=node.static, rng=node.rng))
    await loaded(broker)
    gc.collect()
    before = memory_bytes()
    rate = await insert(broker, count)
    gc.collect()
    print(f"inserted {count:,} messages of {len(VALUE)} B in batches of {BATCH}: {rate:,.0f}/s")
    print(f"memory: {(memory_bytes() - before) / count:.0f} bytes for each that waits, all of the process")
    await late(broker)
    await broker.stop()
    began = time.perf_counter()
    broker = await start(directory)
    opened = time.perf_counter()
    await loaded(broker)
    print(
        f"restart: open after {opened - began:.2f} s, knows the {pending(broker):,} that wait after another "
        f"{time.perf_counter() - opened:.2f} s"
    )
    await broker.stop()


async def insert(broker: Broker, count: int) -> float:
    rng, partition = random.Random(2), partition_of(broker)
    taken = 0.0
    for _ in range(count // BATCH):
        stamp = TimestampMs(broker.node.clock.wall_ms())
        batch = encode_batch(
            [
                NewRecord(VALUE, timestamp=stamp, headers=((DELAY, b"%d" % rng.randrange(*FAR_MS)),))
                for _ in range(BATCH)
            ]
        )
        began = time.perf_counter()
        await send(partition, batch, stamp)
        taken += time.perf_counter() - began
    return count / taken


async def send(partition: Partition, batch: bytes, now_ms: int) -> None:
    answer = (await produce.finish([produce.begin(partition, batch, now_ms=now_ms, acks_all=True)]))[0]
    if answer.error is not None:
        raise answer.error


async def late(broker: Broker) -> None:
    """Due at moments that are spread evenly, in an order that is not theirs; seen by a consumer that waits for them."""
    rng, partition, clock = random.Random(3), partition_of(broker), broker.node.clock
    first, at = clock.wall_ms() + 5_000, partition.log.next_offset
    moments = [first + number * 1000 // DUE_PER_SECOND for number in range(DUE_PER_SECOND * DUE_SECONDS)]
    rng.shuffle(moments)
    for start_ in range(0, len(moments), BATCH):
        records = [
            NewRecord(VALUE, timestamp=TimestampMs(first), headers=((DELIVER_AT, b"%d" % at),))
            for at in moments[start_ : start_ + BATCH]
        ]
        await send(partition, encode_batch(records), clock.wall_ms())
    lateness: list[int] = []
    while len(lateness) < len(moments):
        if at >= partition.high_watermark:
            waiter = asyncio.get_running_loop().create_future()
            partition.add_waiter(waiter)
            await waiter
        part, seen = partition.read(Offset(at), bytes_max=1 << 20), clock.wall_ms()
        for position, header in iter_batches(part.data):
            if not header.is_control:
                lateness += [
                    seen - int(dict(record.headers)[DELIVER_AT] or b"") for record in decode_batch(part.data, position)
                ]
        at = part.next_offset
    lateness.sort()
    quantiles = ", ".join(f"p{part} {lateness[len(lateness) * part // 100]} ms" for part in (50, 99))
    print(
        f"{DUE_PER_SECOND:,} due a second for {DUE_SECONDS} s: seen late by {quantiles}, max {lateness[-1]} ms, "
        f"least {lateness[0]} ms"
    )


def partition_of(broker: Broker) -> Partition:
    found = broker.node.partitions.named(TOPIC, 0)
    assert found is not None
    return found


def pending(broker: Broker) -> int:
    return sum(count for _, count in broker.node.delays.pending())


async def loaded(broker: Broker) -> None:
    delays = broker.node.delays.of(TOPIC, 0)
    assert delays is not None
    while not delays.is_loaded:  # noqa: ASYNC110 - a bench may
        await asyncio.sleep(0.001)


def memory_bytes() -> int:
    """Anonymous memory: what is mapped of the log is the page cache's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no RssAnon in /proc/self/status")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with workspace(None) as place, asyncio.Runner(loop_factory=BrokerLoop) as runner:
        runner.run(run(str(place.root / "delays"), count))


if __name__ == "__main__":
    main()
