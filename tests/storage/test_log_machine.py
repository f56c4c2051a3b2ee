"""A log against a plain list, through appends, reads, cuts, restarts, kills and power cuts in any order."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from millpond.model.errors import DiskFull, OffsetOutOfRange, OutOfOrderSequence, StaleProducerEpoch, Truncated
from millpond.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from millpond.protocol.records import Codec, NewRecord
from millpond.storage.log import Appended
from millpond.storage.settings import Flush, LogSettings
from millpond.testing.disk import CrashMode, PowerCut, SimDisk
from tests.storage.models import ListModel, Process, WrittenBatch, batch_of, expired_by_trying, facts_of, read_all

PRODUCERS = 3
VIEWS_MAX = 8
SIZES = st.lists(st.one_of(st.integers(0, 40), st.integers(0, 500)), min_size=1, max_size=4)
CODECS = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD, Codec.SNAPPY, Codec.LZ4])
SENDERS = st.sampled_from([-1, -1, *range(PRODUCERS)])
PERCENT = st.integers(0, 100)
RECOVERY_CUTS = st.lists(st.integers(1, 25), max_size=2)
SETTINGS = st.builds(
    LogSettings,
    flush=st.sampled_from([Flush.GROUP, Flush.GROUP, Flush.INTERVAL, Flush.NONE]),
    segment_bytes=st.sampled_from([1024, 2048, 4096]),
    index_interval_bytes=st.sampled_from([0, 64, 200]),
    segment_ms=st.sampled_from([50, 1_000_000]),
    retention_ms=st.sampled_from([None, 100]),
    retention_bytes=st.sampled_from([None, 0, 3000]),
)


class LogMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32 - 1), log_settings=SETTINGS)
    def start(self, seed: int, log_settings: LogSettings) -> None:
        self.settings = log_settings
        self.seed = seed
        self.disk = SimDisk(random.Random(seed))
        self.model = ListModel()
        self.epoch = 0
        self.now_ms = 1_000
        self.pending: list[tuple[Appended, WrittenBatch]] = []
        self.recovery_cuts: list[int] = []
        self.views: list[tuple[memoryview, bytes]] = []
        self.process = Process(self.disk, self.settings, seed=seed)

    # What happens to the process and its disk

    @rule(at=st.integers(1, 40), recovery_cuts=RECOVERY_CUTS)
    def the_power_will_go_soon(self, at: int, recovery_cuts: list[int]) -> None:
        self.disk.cut_power_at(at)
        self.recovery_cuts = recovery_cuts

    @rule(recovery_cuts=RECOVERY_CUTS, mode=st.sampled_from(get_args(CrashMode)))
    def the_power_goes(self, recovery_cuts: list[int], mode: CrashMode) -> None:
        self.recovery_cuts = recovery_cuts
        self.disk.crash_mode = mode
        self._recover()
        self.disk.crash_mode = "random"

    @rule()
    def the_process_is_killed(self) -> None:
        self.process.kill()
        try:
            self._open()
        except PowerCut:
            self._recover()
            return
        assert self.process.log.next_offset == self.model.next_offset
        assert self.process.log.start_offset == self.model.start
        assert self.process.log.report.bytes_cut == 0
        self._adopt()

    @rule()
    def the_log_is_closed_and_opened(self) -> None:
        with self._power_may_go():
            self.process.close()
            self.views_stay_as_they_were()
            self._open()
            assert self.process.log.report.clean
            assert self.process.log.next_offset == self.model.next_offset
            assert self.process.log.start_offset == self.model.start
            self._adopt()

    def _open(self) -> None:
        self.seed += 1
        self.process = Process(self.disk, self.settings, seed=self.seed)
        self.pending.clear()
        self.views.clear()  # of a process before

    def _recover(self) -> None:
        self.process.kill()
        while True:
            self.disk.crash()
            if self.recovery_cuts:
                self.disk.cut_power_at(self.recovery_cuts.pop())
            try:
                self._open()
            except PowerCut:
                continue
            break
        self._adopt()

    def _adopt(self) -> None:
        log = self.process.log
        assert log.report.damages == []
        self.model.adopt(start=log.start_offset, next_offset=log.next_offset)

    @contextmanager
    def _power_may_go(self) -> Iterator[None]:
        """Whoever uses this has told the model first what may be found if the power goes in the middle."""
        try:
            yield
        except PowerCut:
            self._recover()

    # Appending

    def _batch(self, sizes: list[int], codec: Codec, sender: int, *, skip: int = 0, epoch_step: int = 0) -> bytes:
        number = self.model.next_offset
        records = [
            NewRecord(
                b"%d.%d " % (number, place) * (1 + size // 8),
                key=b"k%d" % size if size % 3 else None,
                timestamp=TimestampMs(self.now_ms - size % 7),
            )
            for place, size in enumerate(sizes)
        ]
        if sender < 0:
            return batch_of(records, codec=codec)
        sequence = 0 if epoch_step else (self.model.next_sequence(sender) + skip) % 2**31
        epoch = self.model.producer_epoch(sender) + epoch_step
        return batch_of(records, codec=codec, producer=sender, producer_epoch=epoch, sequence=sequence)

    @rule(sizes=SIZES, codec=CODECS, sender=SENDERS, new_epoch=PERCENT, new_leader=PERCENT)
    def append(self, sizes: list[int], codec: Codec, sender: int, new_epoch: int, new_leader: int) -> None:
        self.epoch += new_leader > 75
        batch = self._batch(sizes, codec, sender, epoch_step=int(new_epoch > 90 and sender >= 0))
        written = self.model.append(batch, epoch=self.epoch)
        with self._power_may_go():
            self._check_appended(self.process.call(lambda: self._append(batch)), written)

    @rule(lengths=st.lists(SIZES, min_size=2, max_size=5), codec=CODECS, sender=SENDERS)
    def append_and_wait_side_by_side(self, lengths: list[list[int]], codec: Codec, sender: int) -> None:
        async def work() -> None:
            log = self.process.log
            appended = [self._append(batch) for batch in batches]
            await asyncio.gather(*(log.wait_kept(each) for each in appended))
            for each, batch in zip(appended, written, strict=True):
                self._check_appended(each, batch)
            if self.settings.flush is Flush.GROUP:
                self.model.kept = self.model.next_offset
                assert log.durable_offset == log.next_offset

        batches, written = [], []
        for sizes in lengths:
            batches.append(self._batch(sizes, codec, sender))
            written.append(self.model.append(batches[-1], epoch=self.epoch))
        with self._power_may_go():
            self.process.run(work())

    @rule(sizes=SIZES, codec=CODECS, sender=SENDERS)
    def append_as_a_follower(self, sizes: list[int], codec: Codec, sender: int) -> None:
        written = self.model.append(self._batch(sizes, codec, sender), epoch=self.epoch)
        with self._power_may_go():
            appended = self.process.call(lambda: self.process.log.append_replicated(written.data))
            self._check_appended(appended, written)

    @rule(sizes=SIZES, sender=SENDERS, room_bytes=st.integers(0, 400))
    def append_to_a_full_disk(self, sizes: list[int], sender: int, room_bytes: int) -> None:
        batch = self._batch(sizes, Codec.NONE, sender)
        written = self.model.append(batch, epoch=self.epoch)
        with self._power_may_go():
            self.disk.capacity_bytes = self.disk.used_bytes + room_bytes
            try:
                appended = self.process.call(lambda: self._append(batch))
            except DiskFull:
                self.model.batches.pop()
                return
            finally:
                self.disk.capacity_bytes = None
            self._check_appended(appended, written)

    def _append(self, batch: bytes) -> Appended:
        return self.process.log.append(batch, leader_epoch=LeaderEpoch(self.epoch))

    def _check_appended(self, appended: Appended, written: WrittenBatch) -> None:
        assert not appended.is_duplicate
        assert (appended.base_offset, appended.last_offset) == (written.header.base_offset, written.header.last_offset)
        self.pending.append((appended, written))

    @precondition(lambda self: self.pending)
    @rule(which=PERCENT)
    def wait_kept(self, which: int) -> None:
        appended, written = self.pending.pop(which % len(self.pending))
        with self._power_may_go():
            try:
                self.process.run(self.process.log.wait_kept(appended))
            except Truncated:
                assert appended.truncations < self.process.log.truncations
                return
            assert written in self.model.batches, "kept, though it was cut off"
            if self.settings.flush is Flush.GROUP:
                self.model.kept = max(self.model.kept, appended.last_offset + 1)

    @rule()
    def flush(self) -> None:
        with self._power_may_go():
            self.process.run(self.process.log.flush())
            assert self.process.log.durable_offset == self.process.log.next_offset
            self.model.kept = self.model.next_offset

    @rule(sender=st.integers(0, PRODUCERS - 1), which=PERCENT)
    def send_again(self, sender: int, which: int) -> None:
        remembered = self.model.remembered(sender)
        if not remembered:
            return
        old = remembered[which % len(remembered)]
        with self._power_may_go():
            appended = self.process.call(lambda: self._append(old.data))
            assert appended.is_duplicate
            assert (appended.base_offset, appended.last_offset) == (old.header.base_offset, old.header.last_offset)

    @rule(sizes=SIZES, sender=st.integers(0, PRODUCERS - 1), skip=st.integers(1, 20))
    def a_sender_skips_numbers(self, sizes: list[int], sender: int, skip: int) -> None:
        if self.model.remembered(sender):
            with self._power_may_go(), pytest.raises(OutOfOrderSequence):
                self.process.call(lambda: self._append(self._batch(sizes, Codec.NONE, sender, skip=skip)))

    @rule(sizes=SIZES, sender=st.integers(0, PRODUCERS - 1))
    def a_replaced_sender_comes_back(self, sizes: list[int], sender: int) -> None:
        if self.model.remembered(sender) and self.model.producer_epoch(sender):
            with self._power_may_go(), pytest.raises(StaleProducerEpoch):
                self.process.call(lambda: self._append(self._batch(sizes, Codec.NONE, sender, epoch_step=-1)))

    # Changing shape

    @rule(percent=st.integers(40, 100))
    def truncate(self, percent: int) -> None:
        model = self.model
        end = max(model.start, model.next_offset * percent // 100)
        remaining = max((b.header.next_offset for b in model.batches if b.header.next_offset <= end), default=0)
        if end < model.next_offset:
            model.kept = min(model.kept, remaining)
            model.start = min(model.start, remaining)
        with self._power_may_go():
            self.process.run(self.process.log.truncate(Offset(end)))
            model.truncate(end)

    @rule(percent=PERCENT)
    def delete_before(self, percent: int) -> None:
        model = self.model
        offset = model.start + (model.next_offset - model.start) * percent // 200
        model.start_possible = max(offset, model.start)
        with self._power_may_go():
            self.process.run(self.process.log.delete_before(Offset(offset)))
            model.start = max(offset, model.start)

    @rule(later_ms=st.sampled_from([0, 10, 60, 200]))
    def upkeep(self, later_ms: int) -> None:
        self.now_ms += later_ms
        model, log = self.model, self.process.log
        model.start_possible = model.next_offset
        expired = expired_by_trying(facts_of(log), self.settings, start=model.start, now_ms=self.now_ms)
        ends = [model.start, *(each.next_offset for each in facts_of(log))]
        with self._power_may_go():
            self.process.run(log.upkeep(now_ms=self.now_ms))
            if self.settings.segment_ms > self.now_ms:
                assert log.start_offset == max(model.start, ends[expired])
            left = expired_by_trying(facts_of(log), self.settings, start=log.start_offset, now_ms=self.now_ms)
            assert left == 0, facts_of(log)
            assert log.start_offset >= model.start
            model.start = model.start_possible = log.start_offset

    @rule(milliseconds=st.integers(1, 60))
    def time_passes(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    # Reading

    @rule(percent=PERCENT, until_percent=st.integers(0, 120), bytes_max=st.integers(1, 3000))
    def read(self, percent: int, until_percent: int, bytes_max: int) -> None:
        model, log = self.model, self.process.log
        offset = model.start + (model.next_offset - model.start) * percent // 100
        until = (
            model.next_offset if until_percent > 100 else offset + (model.next_offset - offset) * until_percent // 100
        )
        found = log.read(Offset(offset), bytes_max=bytes_max, until=None if until_percent > 100 else Offset(until))
        expected = [b for b in model.batches if offset < b.header.next_offset <= until]
        whole = b"".join(batch.data for batch in expected)
        assert whole.startswith(found.data)
        ends = {batch.header.next_offset for batch in expected}
        if not expected:
            assert not found.data
            return
        assert found.next_offset in ends
        assert len(found.data) <= max(bytes_max, len(expected[0].data))
        following = next((len(b.data) for b in expected if b.header.base_offset == found.next_offset), None)
        if following is not None and len(found.data) + following <= bytes_max:
            assert found.next_offset in {each.base_offset for each in facts_of(log)}, "shorter than it could be"
        self.views = [*self.views, (found.data, bytes(found.data))][-VIEWS_MAX:]

    @rule(back_ms=st.integers(-5, 300))
    def find_by_time(self, back_ms: int) -> None:
        since = self.now_ms - back_ms
        records = (record for batch in self.model.served() for record in batch.records)
        expected = next((r for r in records if r.timestamp >= since and r.offset >= self.model.start), None)
        found = self.process.log.first_since(TimestampMs(since))
        assert found == (None if expected is None else (expected.offset, expected.timestamp))

    @rule()
    def read_outside(self) -> None:
        for offset in (self.model.start - 1, self.model.next_offset + 1):
            with pytest.raises(OffsetOutOfRange):
                self.process.log.read(Offset(offset), bytes_max=1)

    # What holds always

    @invariant()
    def everything_is_read_as_it_was_appended(self) -> None:
        log, model = self.process.log, self.model
        assert (log.start_offset, log.next_offset) == (model.start, model.next_offset)
        assert model.kept <= log.next_offset
        assert log.start_offset <= log.durable_offset <= log.next_offset
        assert read_all(log) == b"".join(batch.data for batch in model.served())
        model.kept = max(model.kept, log.durable_offset)

    @invariant()
    def segments_cover_every_offset_once(self) -> None:
        facts = facts_of(self.process.log)
        assert all(one.next_offset == other.base_offset for one, other in pairwise(facts))
        assert facts[0].base_offset <= self.model.start
        assert facts[-1].next_offset == self.model.next_offset
        for each in facts:
            held = [b for b in self.model.batches if each.base_offset <= b.header.base_offset < each.next_offset]
            assert each.size == sum(len(batch.data) for batch in held)
            assert each.max_timestamp == max((batch.header.max_timestamp for batch in held), default=NO_TIMESTAMP)

    @invariant()
    def senders_are_known_by_their_batches(self) -> None:
        producers = self.process.log.producers
        for sender in range(PRODUCERS):
            for batch in self.model.remembered(sender):
                found = producers.find_duplicate(batch.header)
                assert found is not None
                assert found[2:4] == (batch.header.base_offset, batch.header.last_offset)

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        log, served = self.process.log, self.model.served()
        for batch in served:
            assert log.epochs.at(batch.header.base_offset)[0] == batch.header.leader_epoch
        if served:
            latest = served[-1].header.leader_epoch
            assert log.end_of_epoch(LeaderEpoch(latest)) == (latest, log.next_offset)

    @invariant()
    def views_stay_as_they_were(self) -> None:
        assert all(view == copy for view, copy in self.views)

    def teardown(self) -> None:
        if hasattr(self, "process"):
            self.process.kill()


def test_a_log_behaves_like_a_list_whatever_befalls_it() -> None:
    run_state_machine_as_test(LogMachine, settings=settings(max_examples=80, stateful_step_count=50, print_blob=True))


@pytest.mark.slow
def test_a_log_behaves_like_a_list_for_longer() -> None:
    run_state_machine_as_test(LogMachine, settings=settings(max_examples=60, stateful_step_count=100, print_blob=True))
