"""Appends in each flush mode, beside `os.write` and `os.fdatasync` of the same bytes in the same pattern.

    none      the log appends in a loop; raw calls os.write in a loop. Neither syncs or waits, so CPU time counts
    interval  as above, and a thread syncs every 20 ms while the loop goes on, on both sides
    group     1 appender: each append waits for its sync; raw calls os.write and os.fdatasync for each batch
    group     32 appenders: they share syncs; raw writes as many batches in as many rounds as the log did, a
              fdatasync after each, but cannot write on while it syncs, as the log does: so more than 1 is possible

Driven by suite.py.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import uvloop

from bench.measuring import SIZES, Measurement, Row, Scale, Target, chunks, cpu_seconds_of, in_turns
from bench.storage.batches import EPOCH, batch_of
from bench.workspace import CountingFilesystem, Workspace
from millpond.app.loop import BrokerLoop
from millpond.model.limits import MIB
from millpond.storage.log import Log
from millpond.storage.settings import Flush, LogSettings

APPENDERS = 32
_INTERVAL_MS = 20
_SLICE_BYTES = MIB
"""After so many bytes both sides let the loop look at its timers."""
_RATIO_FOR_LARGE = Target("ratio", least=0.8)
_RATE_FOR_SMALL = Target("value", least=150_000)


def measurements(place: Workspace, scale: Scale) -> Iterator[Measurement[Row]]:
    for name, size in SIZES.items():
        for side in (_none, _interval, _group_of_one, _group_of_many):
            yield Measurement(
                f"append {name}{side.__name__.replace('_', ' ')}", partial(side, place, scale, name, size)
            )


def _none(place: Workspace, scale: Scale, name: str, size: int) -> list[Row]:
    batch, count = batch_of(size), min(scale.append_bytes // size, scale.appends_max)
    pair = in_turns(
        scale.repetitions,
        lambda: _on_log(place, Flush.NONE, lambda log, _: _append_all(log, batch, count), clock=time.process_time),
        lambda: _on_file(place, lambda fd: cpu_seconds_of(lambda: _write_all(fd, batch, count))),
    )
    target = {"1 MB": _RATIO_FOR_LARGE, "200 B": _RATE_FOR_SMALL}.get(name)
    return [_row(f"{name}, none", size, count, pair.ours_s, pair.raw_s, pair.ratio, "write, CPU time", target)]


def _interval(place: Workspace, scale: Scale, name: str, size: int) -> list[Row]:
    batch, count = batch_of(size), min(scale.append_bytes // size, scale.appends_max)
    pair = in_turns(
        scale.repetitions,
        lambda: _on_log(place, Flush.INTERVAL, lambda log, _: _append_in_slices(log, batch, count)),
        lambda: _on_file(place, lambda fd: uvloop.run(_write_in_slices(fd, batch, count))),
    )
    what = f"write, fdatasync every {_INTERVAL_MS} ms"
    return [_row(f"{name}, interval", size, count, pair.ours_s, pair.raw_s, pair.ratio, what, _large(name))]


def _group_of_one(place: Workspace, scale: Scale, name: str, size: int) -> list[Row]:
    batch, count = batch_of(size), max(1, min(scale.synced_bytes // size, scale.synced_appends_max) // 8)
    pair = in_turns(
        scale.repetitions,
        lambda: _on_log(place, Flush.GROUP, lambda log, _: _append_and_wait(log, batch, count)),
        lambda: _on_file(place, lambda fd: _write_in_rounds(fd, batch, count, rounds=count)),
    )
    what = "write and fdatasync each"
    return [_row(f"{name}, group, 1 appender", size, count, pair.ours_s, pair.raw_s, pair.ratio, what, _large(name))]


def _group_of_many(place: Workspace, scale: Scale, name: str, size: int) -> list[Row]:
    batch, count = batch_of(size), min(scale.synced_bytes // size, scale.synced_appends_max)
    rounds = [1]

    async def append_from_all_sides(log: Log, filesystem: CountingFilesystem) -> float:
        before, begin = filesystem.syncs, time.perf_counter()
        await asyncio.gather(*(_append_and_wait(log, batch, share) for share in chunks(count, APPENDERS)))
        seconds = time.perf_counter() - begin
        rounds.append(max(1, filesystem.syncs - before))
        return seconds

    pair = in_turns(
        scale.repetitions,
        lambda: _on_log(place, Flush.GROUP, append_from_all_sides),
        lambda: _on_file(place, lambda fd: _write_in_rounds(fd, batch, count, rounds=rounds[-1])),
    )
    what = f"write, fdatasync each {count / rounds[-1]:.1f} batches"
    title = f"{name}, group, {APPENDERS} appenders"
    return [_row(title, size, count, pair.ours_s, pair.raw_s, pair.ratio, what, _large(name))]


def _large(name: str) -> Target | None:
    return _RATIO_FOR_LARGE if name == "1 MB" else None


def _row(
    name: str, size: int, count: int, ours_s: float, raw_s: float, ratio: float, what: str, target: Target | None
) -> Row:
    scale, unit = (1, "appends/s") if size < 1024 else (size / 1e6, "MB/s")
    return Row(
        section="append",
        name=name,
        value=count * scale / ours_s,
        unit=unit,
        raw=count * scale / raw_s,
        ratio=ratio,
        compared_with=what,
        target=target,
    )


# Our side


def _on_log(
    place: Workspace,
    flush: Flush,
    work: Callable[[Log, CountingFilesystem], object],
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds that `work` takes on a new log, whose epoch and first batch are already on disk."""

    async def run(directory: Path) -> float:
        filesystem = CountingFilesystem(directory)
        log = Log.open(filesystem, "bench-0", LogSettings(flush=flush, flush_interval_ms=_INTERVAL_MS))
        try:
            log.append(batch_of(200), leader_epoch=EPOCH)
            await log.flush()
            begin = clock()
            done = work(log, filesystem)
            if asyncio.iscoroutine(done):
                await done
            seconds = clock() - begin
            await log.flush()
            return seconds
        finally:
            log.abandon()

    with place.directory() as directory, asyncio.Runner(loop_factory=BrokerLoop) as runner:
        return runner.run(run(directory))


def _append_all(log: Log, batch: bytearray, count: int) -> None:
    append = log.append
    for _ in range(count):
        append(batch, leader_epoch=EPOCH)


async def _append_in_slices(log: Log, batch: bytearray, count: int) -> None:
    for share in chunks(count, _slices(batch, count)):
        _append_all(log, batch, share)
        await asyncio.sleep(0)


async def _append_and_wait(log: Log, batch: bytearray, count: int) -> None:
    for _ in range(count):
        await log.append_and_wait(batch, leader_epoch=EPOCH)


def _slices(batch: bytearray, count: int) -> int:
    return max(1, count * len(batch) // _SLICE_BYTES)


# The raw side


def _on_file(place: Workspace, work: Callable[[int], float]) -> float:
    """The seconds that `work` counts on the descriptor of a new file with one block on disk."""
    with place.directory() as directory:
        fd = os.open(directory / "raw", os.O_CREAT | os.O_WRONLY)
        try:
            os.write(fd, batch_of(200))
            os.fsync(fd)
            seconds = work(fd)
            os.fdatasync(fd)
            return seconds
        finally:
            os.close(fd)


def _write_all(fd: int, batch: bytearray, count: int) -> None:
    write = os.write
    for _ in range(count):
        write(fd, batch)


async def _write_in_slices(fd: int, batch: bytearray, count: int) -> float:
    loop = asyncio.get_running_loop()
    begin = time.perf_counter()
    syncing: asyncio.Future[None] | None = None
    due = loop.time() + _INTERVAL_MS / 1000
    for share in chunks(count, _slices(batch, count)):
        _write_all(fd, batch, share)
        await asyncio.sleep(0)
        if loop.time() >= due and (syncing is None or syncing.done()):
            syncing = loop.run_in_executor(None, os.fdatasync, fd)
            due = loop.time() + _INTERVAL_MS / 1000
    seconds = time.perf_counter() - begin
    if syncing is not None:
        await syncing
    return seconds


def _write_in_rounds(fd: int, batch: bytearray, count: int, *, rounds: int) -> float:
    begin = time.perf_counter()
    for share in chunks(count, rounds):
        _write_all(fd, batch, share)
        os.fdatasync(fd)
    return time.perf_counter() - begin
