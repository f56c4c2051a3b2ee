"""`make proof`: the storage engine proves itself, in front of you. A million messages, then power cuts."""

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from millpond.model.ids import LeaderEpoch, TimestampMs
from millpond.protocol.records import decode_batch, encode_values, iter_batches
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.log import Log
from tests.simulation.power_cuts import CYCLES_PER_SEED, run_seed

BATCHES = 1_000
MESSAGES_PER_BATCH = 1_000
SEEDS = 20
WAITING_MAX = 50

console = Console(highlight=False)


def message(number: int) -> bytes:
    return b"message %012d of a million, padded to one hundred bytes, " % number + b"." * 31


async def write_and_read_back(directory: Path, progress: Progress) -> tuple[float, float]:
    """Every batch synced before it counts; then killed, opened again and read. Seconds of both."""
    log = Log.open(OsFilesystem(directory), "messages-0")
    bar = progress.add_task("written and synced", total=BATCHES)
    began = time.perf_counter()
    for first in range(0, BATCHES, WAITING_MAX):
        await asyncio.gather(*(write(log, number) for number in range(first, first + WAITING_MAX)))
        progress.advance(bar, WAITING_MAX)
    wrote = time.perf_counter() - began
    log.abandon()
    log = Log.open(OsFilesystem(directory), "messages-0")
    bar = progress.add_task("killed, recovered, read back", total=BATCHES)
    began = time.perf_counter()
    at, expected = log.start_offset, 0
    while at < log.next_offset:
        part = log.read(at, bytes_max=1 << 20)
        for position, _ in iter_batches(part.data):
            for record in decode_batch(part.data, position):
                assert record.value == message(expected), f"{record.value!r} came back at {record.offset}"
                expected += 1
            progress.advance(bar)
        at = part.next_offset
    assert expected == BATCHES * MESSAGES_PER_BATCH, f"{expected} messages came back"
    read = time.perf_counter() - began
    await log.close()
    return wrote, read


async def write(log: Log, number: int) -> None:
    first = number * MESSAGES_PER_BATCH
    values = [message(each) for each in range(first, first + MESSAGES_PER_BATCH)]
    batch = bytearray(encode_values(values, timestamp=TimestampMs(1_767_225_600_000 + number)))
    await log.append_and_wait(batch, leader_epoch=LeaderEpoch(0))


def cut_power(progress: Progress) -> tuple[int, int]:
    """Simulated lives and power cuts; raises where something acknowledged is missing."""
    bar = progress.add_task("lives of a simulated machine", total=SEEDS * CYCLES_PER_SEED)
    first = random.SystemRandom().randrange(1_000_000)
    cuts = kept = 0
    for seed in range(first, first + SEEDS):
        outcome = run_seed(seed, on_cycle=lambda _: progress.advance(bar))
        cuts, kept = cuts + outcome.power_cuts, kept + outcome.batches_kept
    return cuts, kept


def main() -> int:
    columns = TextColumn("{task.description:>30}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    # In this folder, not in a temporary one: those may be memory, where a sync proves nothing.
    folder = tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".proof-")
    with folder as directory, Progress(*columns, console=console) as progress:
        wrote, read = asyncio.run(write_and_read_back(Path(directory), progress))
        cuts, kept = cut_power(progress)
    total = BATCHES * MESSAGES_PER_BATCH
    console.print(f"{total:,} messages written, each synced before it counted: {total / wrote:,.0f} a second")
    console.print(f"killed, recovered, read back and compared one by one: {total / read:,.0f} a second")
    console.print(f"{cuts} power cuts, {kept:,} acknowledged batches: [green]none lost[/]")
    console.print("next: [bold]make test[/] for all of it, [bold]make bench[/] for the figures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
