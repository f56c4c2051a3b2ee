"""A large log: finding an offset or a time in it, opening it after a crash and after an orderly close.

Look-ups are cached and random, one batch each, its checksum verified; beside them stands one `os.pread` of as many
bytes at a random place. A crash is a log that is let go without closing, in one segment; without a checkpoint, all of
it must be checked. Its pages are dropped from the cache first. Beside it stands reading the file from disk with
`os.pread`, its pages dropped as well.

Driven by suite.py.
"""

import asyncio
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.measuring import SIZES, Measurement, Row, Scale, Target, percentile, seconds_of
from bench.storage.batches import batch_of, fill
from bench.workspace import Workspace
from millpond.model.ids import Offset, TimestampMs
from millpond.model.limits import GIB, MIB, SEGMENT_BYTES_MAX
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.log import Log
from millpond.storage.recovery import Checkpoint
from millpond.storage.settings import Flush, LogSettings

_RECORDS_PER_BATCH = {"1 MB": 1_000, "16 KB": 100, "200 B": 1}
_DIRECTORY = "bench-0"
_REOPENINGS = 3
_SETTINGS = LogSettings(flush=Flush.NONE, segment_bytes=SEGMENT_BYTES_MAX)
_P99_US = Target("value", most=1_000)
_RECOVERY_S = Target("value", most=5)


def measurements(place: Workspace, scale: Scale) -> Iterator[Measurement[Row]]:
    for name, size in SIZES.items():
        yield Measurement(
            f"a log of {scale.log_bytes >> 20} MB in batches of {name}", partial(_run, place, scale, name, size)
        )


def _run(place: Workspace, scale: Scale, name: str, size: int) -> list[Row]:
    with place.directory() as root:
        return asyncio.run(_measure(root, scale, name, size))


async def _measure(root: Path, scale: Scale, name: str, size: int) -> list[Row]:
    filesystem = OsFilesystem(root)
    log = Log.open(filesystem, _DIRECTORY, _SETTINGS)
    last = fill(log, batch_of(size, values=_RECORDS_PER_BATCH[name]), total_bytes=scale.log_bytes)
    rows = [*_lookups(root, log, scale, name, size), *_time_lookups(log, scale, name, last)]
    await log.flush()
    fill(log, batch_of(size, values=_RECORDS_PER_BATCH[name]), total_bytes=scale.log_bytes // 20)
    log.abandon()
    rows += _usual_recovery(root, filesystem, name)
    rows += _recovery(root, filesystem, name)
    log = Log.open(filesystem, _DIRECTORY, _SETTINGS)
    await log.close()
    seconds = []
    for _ in range(_REOPENINGS):
        begin = time.perf_counter()
        log = Log.open(filesystem, _DIRECTORY, _SETTINGS)
        seconds.append(time.perf_counter() - begin)
        assert log.report.clean
        await log.close()
    value = statistics.median(seconds) * 1e3
    rows.append(Row(section="recovery", name=f"{name}, clean reopen", value=value, unit="ms"))
    return rows


def _lookups(root: Path, log: Log, scale: Scale, name: str, size: int) -> list[Row]:
    rng = random.Random(1)
    offsets = [Offset(rng.randrange(log.next_offset)) for _ in range(scale.lookups)]
    ours = _latencies_us(lambda number: log.read(offsets[number], bytes_max=1), scale.lookups)
    places = [rng.randrange(log.size_bytes() - size) for _ in range(scale.lookups)]
    fd = os.open(next((root / _DIRECTORY).glob("*.log")), os.O_RDONLY)
    try:
        raw = _latencies_us(lambda number: os.pread(fd, size, places[number]), scale.lookups)
    finally:
        os.close(fd)
    rows = _latency_rows("offset", name, ours)
    return [
        Row(
            section=row.section,
            name=row.name,
            value=row.value,
            unit=row.unit,
            raw=percentile(raw, share),
            ratio=percentile(raw, share) / row.value,
            compared_with=f"pread {name}",
            target=row.target,
        )
        for row, share in zip(rows, (0.5, 0.99, 1.0), strict=True)
    ]


def _time_lookups(log: Log, scale: Scale, name: str, last: TimestampMs) -> list[Row]:
    rng = random.Random(2)
    count = max(1, scale.lookups // 10)
    times = [TimestampMs(rng.randrange(last + 1)) for _ in range(count)]
    return _latency_rows("time", name, _latencies_us(lambda number: log.first_since(times[number]), count))


def _latency_rows(what: str, name: str, ascending: list[float]) -> list[Row]:
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return [
        Row(
            section="look-up",
            name=f"{what}, {name}, {label}",
            value=percentile(ascending, share),
            unit="µs",
            target=_P99_US if (what, label) == ("offset", "p99") else None,
        )
        for label, share in shares.items()
    ]


def _latencies_us(work: Callable[[int], object], count: int) -> list[float]:
    """Ascending. The first tenth is a warm-up that does not count."""
    clock = time.perf_counter_ns
    for number in range(count // 10):
        work(number)
    times = []
    for number in range(count):
        begin = clock()
        work(number)
        times.append(clock() - begin)
    return sorted(each / 1e3 for each in times)


def _usual_recovery(root: Path, filesystem: OsFilesystem, name: str) -> list[Row]:
    """A twentieth of the log came since the last checkpoint; of 1 GB that is most of what lies between two."""
    _drop_from_cache(next((root / _DIRECTORY).glob("*.log")))
    begin = time.perf_counter()
    log = Log.open(filesystem, _DIRECTORY, _SETTINGS)
    seconds = time.perf_counter() - begin
    assert not log.report.clean
    log.abandon()
    name = f"{name}, after a crash, 5 % since the last checkpoint"
    return [Row(section="recovery", name=name, value=seconds, unit="s", target=_RECOVERY_S)]


def _recovery(root: Path, filesystem: OsFilesystem, name: str) -> list[Row]:
    file = next((root / _DIRECTORY).glob("*.log"))
    ours, ours_cpu, raw, scanned = [], [], [], 0
    for _ in range(_REOPENINGS):
        raw.append(_cold(file, lambda: _read(file)))
        # As it was at the crash: nothing known to be synced, so that all of it is checked and written once more.
        Checkpoint(Offset(0), Offset(0), Offset(0)).write(filesystem, _DIRECTORY)
        _drop_from_cache(file)
        begin, cpu_begin = time.perf_counter(), time.process_time()
        log = Log.open(filesystem, _DIRECTORY, _SETTINGS)
        ours.append(time.perf_counter() - begin)
        ours_cpu.append(time.process_time() - cpu_begin)
        assert not log.report.clean
        scanned = log.report.bytes_scanned
        log.abandon()
    per_gb = GIB / scanned
    return [
        Row(
            section="recovery",
            name=f"{name}, after a crash, without a checkpoint",
            value=statistics.median(ours) * per_gb,
            unit="s/GB",
            raw=statistics.median(raw) * per_gb,
            ratio=statistics.median(raw) / statistics.median(ours),
            compared_with="pread from disk",
            target=_RECOVERY_S,
        ),
        Row(
            section="recovery",
            name=f"{name}, after a crash, without a checkpoint, CPU",
            value=statistics.median(ours_cpu) * per_gb,
            unit="s/GB",
        ),
    ]


def _cold(file: Path, work: Callable[[], object]) -> float:
    _drop_from_cache(file)
    return seconds_of(work)


def _drop_from_cache(file: Path) -> None:
    fd = os.open(file, os.O_RDONLY)
    try:
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def _read(file: Path) -> None:
    fd = os.open(file, os.O_RDONLY)
    try:
        position = 0
        while data := os.pread(fd, MIB, position):
            position += len(data)
    finally:
        os.close(fd)
