"""`make bench ONLY=delays`: a million delayed messages through one partition of a broker in this process, on a disk.

Inserted in batches over the produce use case; how much memory each takes while all of them wait; how long a restart
takes until it knows them; then all fall due, evenly, in an order that is not that of their offsets, and a consumer that
waits for them sees each. Lateness is from the moment a message is due to the moment that consumer has it: synced, and
read on the broker's own loop, which the consumer's work holds up as well. How late it was appended is told beside it.
`python -m bench.delays [messages]` does only this. Driven by bench/__main__.py.
"""

import asyncio
import gc
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench.measuring import Row, Target
from bench.tables import make_console, print_tables
from bench.workspace import Workspace, workspace
from millpond.app.broker import Broker
from millpond.app.broker_settings import BrokerSettings
from millpond.app.clock import SystemClock
from millpond.app.loop import BrokerLoop
from millpond.app.process import collect_garbage_seldom
from millpond.broker.drivers.partition import Partition
from millpond.broker.operations import produce
from millpond.core.delivery.delay_headers import DELIVER_AT
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.model.ids import Offset, TimestampMs
from millpond.protocol.records import NewRecord, decode_batch, encode_batch, iter_batches
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.kernel_syncs import open_kernel_syncs

TOPIC: Final = "bench"
BATCH: Final = 500
VALUE: Final = b"x" * 100
FULL: Final = 1_000_000
QUICK: Final = 20_000
DUE_PER_SECOND: Final = 10_000
TRIED: Final = 10_000
"""Messages that are inserted first, to know how long the others will take."""
SLACK_SECONDS: Final = 10.0
"""Between the estimated end of inserting, with half as much again, and the first message that is due."""
SECONDS_MAX: Final = 600.0
BYTES_EACH_MAX: Final = 100.0
LATE_MS_MAX: Final = 50.0


def measure(console: Console, place: Workspace, *, quick: bool) -> dict[str, Any]:
    count = QUICK if quick else FULL
    with place.directory() as directory:
        rows = run(str(directory), count)
    print_tables(console, rows)
    return {"messages": count, "rows": [row.document() for row in rows]}


def run(directory: str, count: int) -> list[Row]:
    with asyncio.Runner(loop_factory=BrokerLoop) as runner:
        return runner.run(asyncio.wait_for(_measure(directory, count), SECONDS_MAX))


async def _measure(directory: str, count: int) -> list[Row]:
    syncs = open_kernel_syncs()  # as a broker's process has them
    try:
        return await _measure_with(OsFilesystem(syncs=syncs), directory, count)
    finally:
        if syncs is not None:
            syncs.close()


async def _measure_with(filesystem: OsFilesystem, directory: str, count: int) -> list[Row]:
    broker = await start(filesystem, directory)
    node, wanted = broker.node, [NewTopic(name=TOPIC, partitions=1, configs=(("millpond.delay", "on"),))]
    await node.metadata.decide(lambda image: create_topics(image, wanted, static=node.static, rng=node.rng))
    await loaded(broker)
    clock = node.clock
    tried = await insert(broker, [clock.wall_ms() + 86_400_000] * TRIED)
    gc.collect()
    before = memory_bytes()
    first = clock.wall_ms() + round(1000 * (SLACK_SECONDS + 1.5 * count / tried))
    at = partition_of(broker).log.next_offset
    moments = [first + number * 1000 // DUE_PER_SECOND for number in range(count)]
    random.Random(3).shuffle(moments)
    rate = await insert(broker, moments)
    del moments
    gc.collect()
    each = (memory_bytes() - before) / count
    await broker.stop()
    began = time.perf_counter()
    broker = await start(filesystem, directory)
    opened = time.perf_counter()
    await loaded(broker)
    known = time.perf_counter()
    in_time = clock.wall_ms() < first
    collect_garbage_seldom()  # as a broker's process does
    late, appended = await lateness(broker, at, count)
    await broker.stop()
    section = f"{count:,} delayed messages of {len(VALUE)} B, {DUE_PER_SECOND:,} due a second"
    if not in_time:
        section += "; the machine was too slow to have them all before the first was due: lateness means nothing"
    most, least = Target("value", most=LATE_MS_MAX), Target("value", least=0)
    return [
        Row(section=section, name=f"inserted, {BATCH} at a time", value=rate, unit="messages/s"),
        Row(
            section=section,
            name="memory of each that waits, all of the process",
            value=each,
            unit="B",
            target=Target("value", most=BYTES_EACH_MAX),
        ),
        Row(section=section, name="restart: open after", value=opened - began, unit="s"),
        Row(section=section, name="restart: knows all that wait after another", value=known - opened, unit="s"),
        Row(section=section, name="lateness p50", value=late[len(late) // 2], unit="ms"),
        Row(section=section, name="lateness p99", value=late[len(late) * 99 // 100], unit="ms", target=most),
        Row(section=section, name="lateness at most", value=late[-1], unit="ms"),
        Row(section=section, name="appended late, p99", value=appended[len(appended) * 99 // 100], unit="ms"),
        Row(section=section, name="lateness at least: none is early", value=late[0], unit="ms", target=least),
    ]


async def start(filesystem: OsFilesystem, directory: str) -> Broker:
    return await Broker.start(
        BrokerSettings(data_directory=directory, port=0),
        filesystem=filesystem,
        clock=SystemClock(),
        rng=random.Random(1),
        on_error=fail,
    )


def fail(error: BaseException) -> None:
    raise error


async def insert(broker: Broker, moments: list[int]) -> float:
    """How many a second; encoding them is the producer's work, and not counted."""
    partition, taken = partition_of(broker), 0.0
    for place in range(0, len(moments), BATCH):
        stamp = TimestampMs(broker.node.clock.wall_ms())
        records = [
            NewRecord(VALUE, timestamp=stamp, headers=((DELIVER_AT, b"%d" % at),))
            for at in moments[place : place + BATCH]
        ]
        batch = encode_batch(records)
        began = time.perf_counter()
        pending = produce.begin(partition, batch, now_ms=stamp, acks_all=True)
        (answer,) = await produce.finish([pending])
        if answer.error is not None:
            raise answer.error
        taken += time.perf_counter() - began
    return len(moments) / taken


async def lateness(broker: Broker, at: int, count: int) -> tuple[list[int], list[int]]:
    """In milliseconds, of each, ascending: as a consumer sees it that waits for them, and as they were appended."""
    partition, clock = partition_of(broker), broker.node.clock
    found: list[int] = []
    appended: list[int] = []
    while len(found) < count:
        if at >= partition.high_watermark:
            waiter = asyncio.get_running_loop().create_future()
            partition.add_waiter(waiter)
            await waiter
        part, seen = partition.read(Offset(at), bytes_max=1 << 20), clock.wall_ms()
        for position, header in iter_batches(part.data):
            if not header.is_control:
                dues = [int(dict(each.headers)[DELIVER_AT] or b"") for each in decode_batch(part.data, position)]
                found += [seen - due for due in dues]
                appended += [header.max_timestamp - due for due in dues]
        at = part.next_offset
        await asyncio.sleep(0)
    return sorted(found), sorted(appended)


def partition_of(broker: Broker) -> Partition:
    found = broker.node.partitions.named(TOPIC, 0)
    assert found is not None
    return found


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
    with workspace(None) as place, place.directory() as directory:
        print_tables(make_console(), run(str(directory), int(sys.argv[1]) if len(sys.argv) > 1 else FULL))


if __name__ == "__main__":
    main()
