"""Reading a log from end to end, 1 MB at a time, beside an `os.pread` loop over the same files.

Everything is cached, so neither side waits, and CPU time counts.

    verified    the log checks each batch's checksum and place, and hands out a view: each byte is touched once.
                os.pread copies each byte once, and checks nothing
    unverified  the log hands out a view and looks at headers only; the view is copied here, so that both sides end
                with a copy
    tail        the last bytes of the growing segment, which are not mapped: the log calls os.pread itself, and checks

Driven by suite.py.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.measuring import SIZES, Measurement, Pair, Row, Scale, cpu_seconds_of, in_turns
from bench.storage.batches import batch_of, fill
from bench.workspace import Workspace
from millpond.model.limits import KIB, MIB
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.log import Log
from millpond.storage.settings import Flush, LogSettings

_READ_BYTES = MIB
_SEGMENTS = 4
_TAIL_BYTES = 960 * KIB
"""Less than a growing segment may have unmapped."""
_DIRECTORY = "bench-0"


def measurements(place: Workspace, scale: Scale) -> Iterator[Measurement[Row]]:
    for name, size in SIZES.items():
        yield Measurement(f"read {name}", partial(_read_sealed, place, scale, name, size))
    for name in ("16 KB", "200 B"):
        yield Measurement(f"read the tail, {name}", partial(_read_tail, place, scale, name, SIZES[name]))


def _read_sealed(place: Workspace, scale: Scale, name: str, size: int) -> list[Row]:
    rows = []
    with place.directory() as root:
        _make(root, size, scale.read_bytes, segment_bytes=scale.read_bytes // _SEGMENTS)
        for verify in (True, False):
            log = Log.open(OsFilesystem(root), _DIRECTORY, LogSettings(verify_reads=verify))
            consume = len if verify else bytes
            pair = _compare(scale.repetitions, root, log, consume)
            what = "verified" if verify else "unverified, copied"
            rows.append(_row(f"{name}, {what}", log.size_bytes(), pair))
            asyncio.run(log.close())
    return rows


def _read_tail(place: Workspace, scale: Scale, name: str, size: int) -> list[Row]:
    with place.directory() as root:
        _make(root, size, _TAIL_BYTES, segment_bytes=_TAIL_BYTES * 2)
        log = Log.open(OsFilesystem(root), _DIRECTORY)
        pair = _compare(scale.repetitions * 5, root, log, len)
        row = _row(f"{name}, tail, verified", log.size_bytes(), pair)
        asyncio.run(log.close())
    return [row]


def _make(root: Path, size: int, total_bytes: int, *, segment_bytes: int) -> None:
    async def make() -> None:
        settings = LogSettings(flush=Flush.NONE, segment_bytes=segment_bytes)
        log = Log.open(OsFilesystem(root), _DIRECTORY, settings)
        fill(log, batch_of(size), total_bytes=total_bytes)
        await log.close()

    asyncio.run(make())


def _compare(repetitions: int, root: Path, log: Log, consume: Callable[[memoryview], object]) -> Pair:
    files = [os.open(each, os.O_RDONLY) for each in sorted((root / _DIRECTORY).glob("*.log"))]
    try:
        _read_log(log, consume)  # cached and mapped from here on, for both
        return in_turns(
            repetitions,
            lambda: cpu_seconds_of(lambda: _read_log(log, consume)),
            lambda: cpu_seconds_of(lambda: _read_files(files)),
        )
    finally:
        for fd in files:
            os.close(fd)


def _read_log(log: Log, consume: Callable[[memoryview], object]) -> None:
    at, end = log.start_offset, log.next_offset
    while at < end:
        found = log.read(at, bytes_max=_READ_BYTES)
        consume(found.data)
        at = found.next_offset


def _read_files(files: list[int]) -> None:
    for fd in files:
        position = 0
        while data := os.pread(fd, _READ_BYTES, position):
            position += len(data)


def _row(name: str, total_bytes: int, pair: Pair) -> Row:
    return Row(
        section="read",
        name=name,
        value=total_bytes / pair.ours_s / 1e6,
        unit="MB/s",
        raw=total_bytes / pair.raw_s / 1e6,
        ratio=pair.ratio,
        compared_with="pread 1 MB, CPU time",
    )
