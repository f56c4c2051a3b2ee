"""A log on a simulated machine that loses power, over and over, at any moment.

One *cycle* is one life of a process: it opens the log (recovering what the last life left), checks the invariants,
then appends from several tasks at once, rolls, truncates, deletes and changes leaders, until the power goes: at a
drawn disk operation, at a drawn moment between two, or in the middle of the next recovery. Sometimes only the process
is killed, or the disk reports an error first, or the life ends in order.

Driven by test_power_cuts.py, and by `make sim`.
"""

import asyncio
import contextlib
import errno
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from millpond.model.errors import DiskFailed, DiskFull, LogClosed
from millpond.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.protocol.records import Codec, encode_values
from millpond.storage.log import Appended, Log
from millpond.storage.settings import Flush, LogSettings
from millpond.testing.disk import PowerCut, SimDisk
from millpond.testing.hosts import HostDown
from millpond.testing.simulation import Simulation
from tests.simulation.history import AppendedBatch, History, check_all, read_everything

DIRECTORY = "logs/orders-0"
APPENDERS = 3
CYCLES_PER_SEED = 25
EXCUSED = (DiskFull, DiskFailed, LogClosed)
"""What a log may say when the disk fails it; anything else, and corruption first of all, is a bug."""


@dataclass(slots=True)
class Outcome:
    """What a run did, for those who watch."""

    cycles: int = 0
    power_cuts: int = 0
    kills: int = 0
    orderly: int = 0
    batches_kept: int = 0
    bytes_cut: int = 0
    unclean_opens: int = 0
    trace_hash: str = ""


@dataclass(slots=True)
class IdempotentProducer:
    """Sends its last batch again after each restart, whatever it heard of it."""

    producer_id: ProducerId
    next_sequence: int = 0
    last: tuple[bytes, AppendedBatch | None] | None = None

    def next_batch(self, rng: random.Random, number: int) -> bytes:
        values = [b"%d/%d" % (number, each) for each in range(rng.randrange(1, 4))]
        batch = encode_values(
            values,
            timestamp=TimestampMs(number),
            producer_id=self.producer_id,
            producer_epoch=ProducerEpoch(0),
            base_sequence=Sequence(self.next_sequence),
        )
        self.next_sequence += len(values)
        return batch


class Leadership:
    """Either many append, or one truncates."""

    def __init__(self) -> None:
        self._appends = 0
        self._is_held, self._is_idle = asyncio.Event(), asyncio.Event()
        self._is_held.set()
        self._is_idle.set()

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        while not self._is_held.is_set():
            await self._is_held.wait()
        self._appends += 1
        self._is_idle.clear()
        try:
            yield
        finally:
            self._appends -= 1
            if not self._appends:
                self._is_idle.set()

    @contextlib.asynccontextmanager
    async def lost(self) -> AsyncIterator[None]:
        self._is_held.clear()
        await self._is_idle.wait()
        try:
            yield
        finally:
            self._is_held.set()


@dataclass
class Machine:
    """The world of one seed: a disk, a history, and the process that comes and goes."""

    sim: Simulation
    disk: SimDisk
    rng: random.Random
    settings: LogSettings
    history: History = field(default_factory=History)
    outcome: Outcome = field(default_factory=Outcome)
    epoch: int = 0
    batches_made: int = 0
    leadership: "Leadership" = field(init=False)
    producer: IdempotentProducer = field(default_factory=lambda: IdempotentProducer(ProducerId(7)))

    # One life

    async def live(self) -> None:
        """Runs on the simulated host, and ends with it."""
        log = Log.open(self.disk, DIRECTORY, self.settings)
        self.leadership = Leadership()
        self.outcome.bytes_cut += log.report.bytes_cut
        self.outcome.unclean_opens += not log.report.clean
        self.check(log)
        self.epoch += self.rng.random() < 0.5
        await self.send_again(log)
        tasks = [asyncio.create_task(self.appender(log)) for _ in range(APPENDERS)]
        tasks.append(asyncio.create_task(self.shaper(log)))
        await asyncio.gather(*tasks)
        check_all(self.history, log, read_everything(log, bytes_max=self.rng.randrange(1, 4000)))
        with contextlib.suppress(*EXCUSED):
            await log.close()

    def check(self, log: Log) -> None:
        found = read_everything(log, bytes_max=self.rng.randrange(1, 4000))
        check_all(self.history, log, found)
        self.history.recovered(found, log.start_offset)
        if self.settings.flush is not Flush.GROUP:
            # More than its last batch may be lost: a client that is told so begins anew.
            self.producer = IdempotentProducer(ProducerId(self.producer.producer_id + 1))
        self.producer.last = self._last_sent()

    def _last_sent(self) -> tuple[bytes, AppendedBatch | None] | None:
        if self.producer.last is None:
            return None
        batch, appended = self.producer.last
        if appended is not None and appended not in self.history.batches:
            appended = None  # truncated or lost before it was kept: it may come again, anywhere
        return batch, appended

    async def send_again(self, log: Log) -> None:
        """A producer that heard nothing, or did and restarted, repeats itself; a log that has the batch knows it."""
        if self.producer.last is None:
            return
        batch, earlier = self.producer.last
        sent = await self.append(log, batch, producer=True)
        if sent is not None and earlier is not None:
            assert sent.is_duplicate, f"the batch at {earlier.base_offset} was sent again and was not recognised"
            assert sent.base_offset == earlier.base_offset

    async def appender(self, log: Log) -> None:
        for _ in range(self.rng.randrange(2, 12)):
            with contextlib.suppress(*EXCUSED):  # and tries again: a disk that was full may have room
                await self.append(log, self.plain_batch(), producer=False)
                if self.rng.random() < 0.3:
                    await asyncio.sleep(self.rng.uniform(0, 0.01))

    async def shaper(self, log: Log) -> None:
        """Everything that is not an append, and the idempotent producer, which has one batch under way at a time."""
        with contextlib.suppress(*EXCUSED):
            for _ in range(self.rng.randrange(0, 6)):
                await asyncio.sleep(self.rng.uniform(0, 0.01))
                await self.rng.choice([self.produce, self.produce, self.change_leader, self.truncate, self.delete])(log)

    # What a life does

    def plain_batch(self) -> bytes:
        self.batches_made += 1
        size = self.rng.choice((1, 20, 100, 600, 3000))
        values = [self.rng.randbytes(size) for _ in range(self.rng.randrange(1, 4))]
        codec = self.rng.choice((Codec.NONE, Codec.NONE, Codec.ZSTD))
        return encode_values(values, timestamp=TimestampMs(self.batches_made), codec=codec)

    async def append(self, log: Log, batch: bytes, *, producer: bool) -> Appended | None:
        async with self.leadership.held():
            buffer = bytearray(batch)
            try:
                sent = log.append(buffer, leader_epoch=LeaderEpoch(self.epoch))
            except PowerCut:
                self.history.attempted(buffer)
                raise
            if sent.is_duplicate:
                return sent
            written = self.history.appended(sent.base_offset, sent.last_offset, bytes(buffer))
            if producer:
                self.producer.last = (batch, written)
            await log.wait_kept(sent)
            if self.settings.flush is Flush.GROUP:
                self.history.kept(written)
            return sent

    async def produce(self, log: Log) -> None:
        self.batches_made += 1
        batch = self.producer.next_batch(self.rng, self.batches_made)
        self.producer.last = (batch, None)
        await self.append(log, batch, producer=True)

    async def change_leader(self, log: Log) -> None:
        self.epoch += 1

    async def truncate(self, log: Log) -> None:
        """Nobody appends meanwhile: a log is truncated only when it has lost its leadership."""
        async with self.leadership.lost():
            end = max(log.next_offset - self.rng.randrange(0, 40), log.start_offset)
            self.history.truncating(end)
            self.producer = IdempotentProducer(ProducerId(self.producer.producer_id + 1))  # the old one's may be cut
            await log.truncate(Offset(end))
            self.history.truncated(end)

    async def delete(self, log: Log) -> None:
        before = self.rng.randrange(log.start_offset, log.next_offset + 1)
        self.history.start_max = max(self.history.start_max, before)
        await log.delete_before(Offset(before))
        self.history.start_min = max(self.history.start_min, before)


def run_seed(
    seed: int,
    *,
    cycles: int = CYCLES_PER_SEED,
    flush: Flush = Flush.GROUP,
    on_cycle: Callable[[Outcome], None] | None = None,
) -> Outcome:
    """All cycles of one seed. Raises what went wrong, with the seed in its notes."""

    async def scenario(sim: Simulation) -> Outcome:
        rng = sim.rng
        settings = LogSettings(
            flush=flush,
            flush_interval_ms=rng.randrange(1, 30),
            segment_bytes=rng.choice((2000, 5000, 20_000)),
            index_interval_bytes=rng.choice((0, 200, 4096)),
            checkpoint_bytes=rng.choice((1, 3000, 1_000_000)),
        )
        disk = SimDisk(sim.loop.chance("disk"), spend=sim.loop.spend)
        machine = Machine(sim, disk, rng, settings)
        for _ in range(cycles):
            await one_cycle(machine)
            if on_cycle is not None:
                on_cycle(machine.outcome)
        machine.outcome.batches_kept = machine.history.kept_in_all
        machine.outcome.trace_hash = sim.trace_hash()
        return machine.outcome

    with Simulation(seed) as simulation:
        return simulation.run(scenario)


async def one_cycle(machine: Machine) -> None:
    sim, disk, rng = machine.sim, machine.disk, machine.rng
    host = sim.host("broker")
    disk.heal()
    disk.slow_sync(0.0, rng.choice((0.0, 0.002, 0.05)))
    timer: asyncio.TimerHandle | None = None
    end = rng.choice(("operation", "operation", "moment", "moment", "kill", "sync error", "full", "orderly"))
    match end:
        case "operation":
            disk.cut_power_at(rng.randrange(1, 120))
        case "moment":
            timer = sim.loop.call_later(rng.uniform(0, 0.1), host.cut_power)
        case "kill":
            timer = sim.loop.call_later(rng.uniform(0, 0.1), host.kill)
        case "sync error":
            disk.fail("sync", after=rng.randrange(0, 20))
        case "full":
            disk.fail("write", error=errno.ENOSPC, after=rng.randrange(0, 20), times=rng.randrange(1, 4))
    disk.on_power_cut = host.cut_power
    powered = False
    try:
        await host.run(machine.live())
        powered = True
        machine.outcome.orderly += 1
    except EXCUSED:
        powered = True  # the disk failed before the log was open
    except (HostDown, PowerCut):
        powered = end == "kill"
        machine.outcome.kills += powered
    if timer is not None:
        timer.cancel()
    host.kill()
    if not powered or rng.random() < 0.3:
        disk.crash()
        machine.outcome.power_cuts += 1
    else:
        disk.end_process()
    machine.outcome.cycles += 1
