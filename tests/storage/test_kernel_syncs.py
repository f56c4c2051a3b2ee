"""Syncs without a thread: told of on the loop, refused where the kernel cannot, and believed no sooner than others."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from millpond.model.errors import DiskFailed
from millpond.storage.filesystem import OsFilesystem
from millpond.storage.kernel_syncs import UNDER_WAY_MAX, Ended, KernelSyncs, open_kernel_syncs
from millpond.storage.log import Log
from tests.storage.builders import append

Scenario = Callable[[KernelSyncs, Path], Any]


def with_syncs(scenario: Scenario) -> Callable[[Path], None]:
    def test(tmp_path: Path) -> None:
        async def run() -> None:
            syncs = open_kernel_syncs()
            if syncs is None:
                pytest.skip("this system has no such syncs")
            try:
                async with asyncio.timeout(10):
                    await scenario(syncs, tmp_path)
            finally:
                syncs.close()

        asyncio.run(run())

    test.__name__ = scenario.__name__
    return test


@with_syncs
async def test_one_who_fails_when_told_keeps_nobody_waiting(syncs: KernelSyncs, place: Path) -> None:
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()
    trouble: asyncio.Future[Exception] = loop.create_future()
    loop.set_exception_handler(lambda _, context: trouble.set_result(context["exception"]))

    def fail(_: OSError | None) -> None:
        raise ValueError("a bug")

    fd = os.open(place / "file", os.O_RDWR | os.O_CREAT)
    try:
        assert syncs.begin(fd, fail)
        assert syncs.begin(fd, lambda _: told.set_result(None))
        await told
        assert str(await trouble) == "a bug"
    finally:
        os.close(fd)


@with_syncs
async def test_each_sync_is_told_of_once(syncs: KernelSyncs, place: Path) -> None:
    told: list[tuple[int, OSError | None]] = []
    all_told = asyncio.Event()

    def note(number: int) -> Ended:
        def ended(error: OSError | None) -> None:
            told.append((number, error))
            if len(told) == 20:
                all_told.set()

        return ended

    fd = os.open(place / "file", os.O_RDWR | os.O_CREAT)
    try:
        for number in range(20):
            os.write(fd, b"some bytes")
            assert syncs.begin(fd, note(number))
        assert told == [], "not before the loop has its turn"
        await all_told.wait()
    finally:
        os.close(fd)
    assert sorted(told) == [(number, None) for number in range(20)]


@with_syncs
async def test_what_cannot_be_synced_is_not_taken(syncs: KernelSyncs, place: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert not syncs.begin(writer, lambda error: None)
    os.close(writer)
    assert not syncs.begin(writer, lambda error: None)


@with_syncs
async def test_too_many_at_once_are_not_taken(syncs: KernelSyncs, place: Path) -> None:
    left, all_told = UNDER_WAY_MAX, asyncio.Event()

    def ended(error: OSError | None) -> None:
        nonlocal left
        left -= 1
        if not left:
            all_told.set()

    fd = os.open(place / "file", os.O_RDWR | os.O_CREAT)
    try:
        assert all(syncs.begin(fd, ended) for _ in range(UNDER_WAY_MAX))
        assert not syncs.begin(fd, ended)
        await all_told.wait()
        assert syncs.begin(fd, ended)
    finally:
        os.close(fd)


@with_syncs
async def test_a_log_needs_no_thread_for_a_round(syncs: KernelSyncs, place: Path) -> None:
    log = Log.open(OsFilesystem(place, syncs=syncs), "orders-0")
    loop = asyncio.get_running_loop()
    await log.wait_kept(append(log, b"first"))
    in_threads: list[object] = []
    loop.run_in_executor = lambda *work: in_threads.append(work)  # type: ignore[assignment,method-assign]
    for _ in range(5):
        await log.wait_kept(append(log, b"more"))
        assert log.durable_offset == log.next_offset
    assert in_threads == []
    log.abandon()


class HeldSyncs:
    """The test ends them."""

    def __init__(self) -> None:
        self.ended: list[Ended] = []

    def begin(self, fd: int, ended: Ended) -> bool:
        self.ended.append(ended)
        return True


async def _begun(syncs: HeldSyncs) -> None:
    for _ in range(100):
        if syncs.ended:
            return
        await asyncio.sleep(0)
    raise AssertionError("nobody asked for a sync")


def test_nothing_is_kept_before_its_sync_has_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        syncs = HeldSyncs()
        log = Log.open(OsFilesystem(tmp_path, syncs=cast("KernelSyncs", syncs)), "orders-0")
        first = asyncio.ensure_future(log.wait_kept(append(log, b"first")))
        await _begun(syncs)
        second = asyncio.ensure_future(log.wait_kept(append(log, b"second")))
        await asyncio.sleep(0)
        assert log.durable_offset == 0
        syncs.ended.pop()(None)
        await first
        assert log.durable_offset == 1, "the second was written after the sync had begun"
        await _begun(syncs)
        assert not second.done()
        syncs.ended.pop()(None)
        await second
        log.abandon()

    asyncio.run(scenario())


def test_after_a_sync_that_failed_a_log_refuses(tmp_path: Path) -> None:
    async def scenario() -> None:
        syncs = HeldSyncs()
        log = Log.open(OsFilesystem(tmp_path, syncs=cast("KernelSyncs", syncs)), "orders-0")
        kept = asyncio.ensure_future(log.wait_kept(append(log, b"first")))
        await _begun(syncs)
        syncs.ended.pop()(OSError(errno.EIO, "planted"))
        with pytest.raises(DiskFailed):
            await kept
        assert log.durable_offset == 0
        with pytest.raises(DiskFailed):
            append(log, b"second")
        log.abandon()

    asyncio.run(scenario())
