"""Lives of a process on a machine that keeps losing power: open, check, append from all sides, and out goes the light.

One cycle has three logs on one file system:
- `grouped` acknowledges after a group commit. Several idempotent appenders, changes of leader, truncations, deletions.
- `loose` promises little (flush mode interval or none): what it holds is a prefix of what was appended, in whole
  batches, and nothing that was known to be durable is missing.
- `keyed` is compacted while it grows.

The power goes at a drawn moment after a drawn number of acknowledgements: between two steps of the loop, or from
another thread while syncs and writes are under way, or while the next life recovers.

Every choice comes from the seed; how threads interleave does not, so a seed that failed may pass when run again.
Driven by test_power_cuts_ext4.py.
"""

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from millpond.model.errors import DiskFailed, OutOfOrderSequence, StorageError, Truncated
from millpond.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.model.ports import Filesystem
from millpond.protocol.records import NewRecord, encode_batch, encode_values
from millpond.storage.log import Appended, Log
from millpond.storage.settings import Flush, LogSettings
from tests.integration.expectations import ExpectedBatches, ExpectedKeys, PromiseBroken
from tests.integration.powered_filesystem import PoweredFilesystem
from tests.machine.ext4_image import Ext4Image

_APPENDERS = 4
_KEYS = 20
_LOG_BYTES = 160 * 1024
"""A log that has grown so far is deleted from the front."""
_GROUPED = LogSettings(segment_bytes=16 * 1024, index_interval_bytes=512)
_KEYED = LogSettings(segment_bytes=4 * 1024, index_interval_bytes=512, compact=True, compaction_dirty_ratio_min=0.1)
_LOOSE = {
    flush: LogSettings(flush=flush, flush_interval_ms=2, segment_bytes=16 * 1024, index_interval_bytes=512)
    for flush in (Flush.INTERVAL, Flush.NONE)
}
_STUCK_S = 10.0
"""Nothing here takes nearly that long."""


class _Cut:
    """One power cut: armed by acknowledgements, made by the loop or by a thread."""

    def __init__(self, image: Ext4Image, rng: random.Random) -> None:
        self._image = image
        self._acks_left = rng.randrange(1, 40)
        self._hops = rng.choice([None, 0, 1, 2, 5])
        self._delay_s = rng.uniform(0, 0.004)
        self._threads: list[threading.Thread] = []

    def count_ack(self) -> None:
        self._acks_left -= 1
        if self._acks_left == 0:
            if self._hops is None:
                self.from_a_thread()
            else:
                self._from_the_loop(self._hops)

    def _from_the_loop(self, hops: int) -> None:
        if hops == 0:
            self._image.cut_power()
        else:
            asyncio.get_running_loop().call_soon(self._from_the_loop, hops - 1)

    def from_a_thread(self) -> None:
        thread = threading.Thread(target=self._after_delay)
        thread.start()
        self._threads.append(thread)

    def _after_delay(self) -> None:
        threading.Event().wait(self._delay_s)
        self._image.cut_power()

    def certainly(self) -> None:
        """The power is off when this returns."""
        for thread in self._threads:
            thread.join()
        self._image.cut_power()


@dataclass(slots=True)
class _Producer:
    producer_id: ProducerId
    next_sequence: int = 0
    last: tuple[bytes, Appended] | None = None
    """Its newest batch, to be sent again in the next life."""


class PowerCuts:
    """All cycles of one seed on one image."""

    def __init__(
        self, image: Ext4Image, *, seed: int, filesystem: Callable[[Ext4Image], Filesystem] = PoweredFilesystem
    ) -> None:
        self._image = image
        self._seed = seed
        self._filesystem = filesystem(image)
        self._rng = random.Random(seed)
        self._cut = _Cut(image, self._rng)
        self._epoch = LeaderEpoch(0)
        self._producers: list[_Producer] = []
        self._producers_made = 0
        self._values_made = 0
        self._grouped = ExpectedBatches("grouped")
        self._loose = ExpectedBatches("loose")
        self._keyed = ExpectedKeys("keyed")
        self.acks = 0
        self.cuts_in_recovery = 0
        self.batches_lost = 0
        """Appended, never acknowledged, and gone: their number shows that the cuts cut."""

    def run(self, *, cycles: int) -> None:
        for cycle in range(cycles):
            self._cut = _Cut(self._image, self._rng)
            try:
                asyncio.run(self._live())
            except PromiseBroken as broken:
                raise PromiseBroken(f"seed {self._seed}, cycle {cycle}: {broken}") from broken
            except Exception as error:
                error.add_note(f"seed {self._seed}, cycle {cycle}")
                raise
            self._image.restore_power()

    # One life

    async def _live(self) -> None:
        logs: list[Log] = []
        threads = ThreadPoolExecutor()
        asyncio.get_running_loop().set_default_executor(threads)
        is_cut_early = self._rng.random() < 0.1
        try:
            if is_cut_early:
                self._cut.from_a_thread()
            try:
                self._open(logs)
                await self._work(*logs)
            except DiskFailed:
                if not is_cut_early:
                    raise
                self.cuts_in_recovery += 1
        finally:
            await _cancel_everything_else()
            # From here on without a pause, so that no timer begins another sync; and no file is closed beside one.
            threads.shutdown()
            self._cut.certainly()
            for log in logs:
                log.abandon()

    def _open(self, logs: list[Log]) -> None:
        loose = _LOOSE[self._rng.choice([Flush.INTERVAL, Flush.NONE])]
        for name, settings in (("grouped-0", _GROUPED), ("loose-0", loose), ("keyed-0", _KEYED)):
            logs.append(Log.open(self._filesystem, name, settings))
        grouped, loosely, keyed = logs
        self.batches_lost += self._grouped.check(grouped) + self._loose.check(loosely)
        self._keyed.check(keyed)

    async def _work(self, grouped: Log, loose: Log, keyed: Log) -> None:
        self._send_again(grouped)
        self._producers = [self._new_producer() for _ in range(_APPENDERS)]
        timeout = asyncio.get_running_loop().call_later(_STUCK_S, self._image.cut_power)
        work = {
            **{f"appender {each.producer_id}": self._append(grouped, each) for each in self._producers},
            "reshaping": self._reshape(grouped),
            "the loose appender": self._append_loosely(loose),
            "the keyed appender": self._append_keyed(keyed),
            "compaction": self._compact(keyed),
        }
        lives = [asyncio.create_task(_until_the_power_goes(each), name=name) for name, each in work.items()]
        _, waiting = await asyncio.wait(lives, timeout=_STUCK_S * 2)
        timeout.cancel()
        if waiting:
            names = sorted(task.get_name() for task in waiting)
            raise PromiseBroken(f"the power is gone, and {', '.join(names)} still wait for an answer")
        await asyncio.gather(*lives)

    def _send_again(self, log: Log) -> None:
        """What the log holds of a producer's newest batch, it must know again."""
        for producer in self._producers:
            if producer.last is None or not self._grouped.holds(producer.last[1].base_offset):
                continue
            batch, first = producer.last
            with suppress(StorageError):
                again = log.append(batch, leader_epoch=self._epoch)
                if not again.is_duplicate or again.base_offset != first.base_offset:
                    raise PromiseBroken(f"grouped: a batch sent again was appended again: {first}, then {again}")

    def _new_producer(self) -> _Producer:
        self._producers_made += 1
        return _Producer(ProducerId(self._producers_made))

    # Who works on the grouped log

    async def _append(self, log: Log, producer: _Producer) -> None:
        while True:
            values = self._values()
            batch = bytearray(
                encode_values(
                    values,
                    timestamp=TimestampMs(self._values_made),
                    producer_id=producer.producer_id,
                    producer_epoch=ProducerEpoch(0),
                    base_sequence=Sequence(producer.next_sequence),
                )
            )
            try:
                appended = log.append(batch, leader_epoch=self._epoch)
                self._grouped.appended(appended.base_offset, appended.last_offset, batch)
                producer.next_sequence += len(values)
                producer.last = bytes(batch), appended
                await log.wait_kept(appended)
            except (Truncated, OutOfOrderSequence):  # a truncation took this batch, or the one before
                producer.producer_id, producer.next_sequence = self._new_producer().producer_id, 0
                producer.last = None
            else:
                self._grouped.kept(appended.last_offset + 1)
                self.acks += 1
                self._cut.count_ack()

    def _values(self) -> list[bytes]:
        self._values_made += 1
        size_max = self._rng.choice([20, 200, 5_000])
        seal = b"%d " % self._values_made
        return [seal + self._rng.randbytes(self._rng.randrange(size_max)) for _ in range(self._rng.randrange(1, 6))]

    async def _reshape(self, log: Log) -> None:
        while True:
            for _ in range(self._rng.randrange(1, 8)):
                await log.flush()
            if log.size_bytes() > _LOG_BYTES:
                await self._delete(log, self._grouped)
            elif self._rng.random() < 0.5:
                self._epoch = LeaderEpoch(self._epoch + 1)
            else:
                end = self._rng.randrange(max(log.start_offset, log.next_offset - 30), log.next_offset + 1)
                self._grouped.truncating(end)
                await log.truncate(Offset(end))
                self._grouped.truncated(log)

    async def _delete(self, log: Log, expected: ExpectedBatches) -> None:
        before = self._rng.randrange(log.start_offset + 1, log.next_offset + 1)
        expected.deleting(before)
        await log.delete_before(Offset(before))
        expected.deleted()

    # Who works on the other two

    async def _append_loosely(self, log: Log) -> None:
        while True:
            for _ in range(self._rng.randrange(1, 10)):
                batch = bytearray(encode_values(self._values(), timestamp=TimestampMs(self._values_made)))
                appended = log.append(batch, leader_epoch=self._epoch)
                self._loose.appended(appended.base_offset, appended.last_offset, batch)
            self._loose.kept(log.durable_offset)
            await asyncio.sleep(0.001)
            self._loose.kept(log.durable_offset)
            if log.size_bytes() > _LOG_BYTES:
                await self._delete(log, self._loose)

    async def _append_keyed(self, log: Log) -> None:
        while True:
            records = [(b"key %d" % self._rng.randrange(_KEYS), value) for value in self._values()]
            new = [NewRecord(value, key, TimestampMs(self._values_made)) for key, value in records]
            appended = log.append(encode_batch(new), leader_epoch=self._epoch)
            self._keyed.appended(appended.base_offset, records)
            await log.wait_kept(appended)
            self._keyed.kept(appended.base_offset, records)

    async def _compact(self, log: Log) -> None:
        while True:
            await log.flush()
            await log.compact(now_ms=self._values_made)


async def _until_the_power_goes(work: Coroutine[Any, Any, None]) -> None:
    with suppress(StorageError):
        await work


async def _cancel_everything_else() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
