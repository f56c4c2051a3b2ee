"""Delayed messages of the partitions this broker leads: parked in the partition's own log, moved to its end when due.

A batch that asks for a delay goes into the log as a control batch, which consumers skip; of one that asks for some of
its records only, these do, and the rest comes behind it. When a message is due, the leader appends it as an ordinary
record. Cancelling, rescheduling and carrying on are control batches too. So the log alone says what waits and what was
delivered; whoever leads next reads it there (docs/decisions/0020).

Invariant: what the machine knows is what the log says up to its end: a fact is applied in the step in which it was
appended. Only a leader whose lease holds appends any.
Driven by partitions.py, which tells of changes, by the use cases, and by timers of its own.
"""

import asyncio
import struct
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.partitions import PartitionTable
from millpond.broker.drivers.shelves import Shelves
from millpond.core.delivery.delay_headers import DELIVER_AT, MARKS, check_cap, plans, schedule_of
from millpond.core.delivery.delays import Delays, Waiting
from millpond.core.delivery.parked_format import (
    Aside,
    Cancelled,
    Carried,
    CheckpointPart,
    Fact,
    Moved,
    Numbers,
    Parked,
    PlacedPart,
    Rescheduled,
    Shelved,
    aside_batch,
    cancelled_batch,
    carried_batch,
    checkpoint_batch,
    fact_of,
    is_of_delays,
    last_whole,
    may_be_checkpoint,
    moved_batch,
    parked_batch,
    rescheduled_batch,
)
from millpond.core.delivery.wheel import FIRST, Due
from millpond.model.errors import (
    InvalidRecord,
    LogClosed,
    MessageNotFound,
    MillpondError,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    RequestTimedOut,
    StorageError,
)
from millpond.model.ids import NO_PRODUCER, Offset, TopicPartition
from millpond.model.latencies import Latencies
from millpond.model.limits import MIB
from millpond.model.ports import Buffer, Clock
from millpond.protocol.compression import Codec, decompress
from millpond.protocol.records import (
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    Record,
    check_batch,
    check_produced,
    decode_batch,
    encode_survivors,
    iter_batches,
    parse_header,
)
from millpond.protocol.records.header import CONTROL
from millpond.storage.log import Appended, check_size

LOOK_SECONDS_MAX: Final = 1.0
"""A wall clock may jump ahead while a timer waits; so often it is looked at."""
TURN_SECONDS_MIN: Final = 0.002
"""What is due within so long is delivered together: a batch and a sync cost as much for one as for twenty."""
PAUSE_SECONDS: Final = 0.5
"""After something went wrong."""
MOVES_PER_TURN: Final = 200
PREPARED_MS: Final = 60_000
"""So long ahead, messages are sorted by when they are due."""
PREPARES_PER_TURN: Final = 250
PREPARE_EVERY_SECONDS: Final = 0.005
SHELVED_MS, SHELVED_MS_IF_FULL = 3_000, 100
"""So long ahead it is found out where their records lie; less where what was found out is soon forgotten."""
SHELVED_STEP_MS: Final = 64
"""As the slots of the wheel are."""
SHELVES_PER_TURN: Final = 5
MOVED_BYTES: Final = 256 * 1024
"""Of records in one batch of moved messages, more or less."""
SCAN_BYTES: Final = MIB
HEADERS_PER_TURN: Final = 5_000
WINDS_PER_TURN: Final = 4_000
CHECKPOINT_BYTES: Final = 64 * MIB
"""So much is appended between two checkpoints, at least."""
CARRIES_PER_BATCH: Final = 200
CARRY_SECONDS_MAX: Final = 5.0
CARRIED_BYTES_MAX: Final = 16 * MIB
"""Carried on for one round of retention; the rest waits for the next."""
_NS_PER_MS: Final = 1_000_000
_LENGTH_AND_ATTRIBUTES: Final = struct.Struct("!8xi9xh")
"""Of a batch's header."""


class DelayFacts:
    """What all partitions of a broker did, for telemetry."""

    __slots__ = ("cancelled", "delivered", "lateness", "parked")

    def __init__(self) -> None:
        self.parked = self.delivered = self.cancelled = 0
        self.lateness = Latencies()


class Surroundings(NamedTuple):
    """What the partitions of a broker share."""

    clock: Clock
    delay_ms_max: int
    facts: DelayFacts
    on_error: Callable[[BaseException], None]


Moving = tuple[Waiting, Shelved]


def _next_at(schedule: Shelved, now: int) -> int:
    return schedule_of(schedule.record().headers).after(now)


class PartitionDelays:
    """Of one partition, for as long as this broker leads it in one epoch."""

    def __init__(self, partition: Partition, shared: Surroundings) -> None:
        self._partition = partition
        self._log = partition.log
        self._origin = f"{partition.at.topic}/{partition.at.partition}/".encode()
        self._shared = shared
        self.leader_epoch = partition.leader_epoch
        self._machine = Delays()
        self._shelves = Shelves(partition)
        self._shelved_to = 0
        """What is due before is on shelves, or in `_unshelved`."""
        self._unshelved: list[Offset] = []
        self._checkpoint: Iterator[CheckpointPart] = iter(())
        """The parts that are not in the log yet."""
        self.is_loaded = False
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0
        self._carried: Appended | None = None
        """The last batch of messages that were carried on."""
        self._checkpoint_due = self._log.appended_bytes + CHECKPOINT_BYTES
        self._loading = asyncio.get_running_loop().create_task(self._load())

    def __len__(self) -> int:
        return len(self._machine)

    def close(self) -> None:
        self._is_closed = True
        self._loading.cancel()
        if self._timer is not None:
            self._timer.cancel()

    # Coming in

    def append(self, batch: Buffer, *, inflated_bytes_max: int) -> Appended:
        """A producer's batch: as it is, or parked where its records ask for a delay."""
        records = self._records(batch, inflated_bytes_max)
        dues = [
            None if each is None else each.signed
            for each in plans(records, now=self._now(), delay_ms_max=self._shared.delay_ms_max)
        ]
        if not any(dues):
            return self._partition.append(batch)
        header = parse_header(batch)
        check_produced(header)
        if header.size != len(batch):
            raise InvalidRecord(f"{len(batch)} bytes hold more than one batch; a producer sends one at a time")
        check_size(len(batch), self._partition.config.batch_bytes_max)
        if header.is_transactional:
            raise InvalidRecord("a record of a transaction asks for a delay; send it outside of transactions")
        wanted = array("q", [each for each in dues if each is not None])
        if len(wanted) < len(dues):
            delayed = {record.offset for record, due in zip(records, dues, strict=True) if due is not None}
            return self._put_aside(records, header, delayed, wanted)
        appended = self._partition.append(parked_batch(batch, wanted, now=self._now()), is_own=True)
        if not appended.is_duplicate:
            self._parked(Parked(appended.base_offset, wanted, memoryview(b"")))
        return appended

    def _put_aside(
        self, records: Sequence[Record], header: BatchHeader, delayed: Collection[int], dues: Numbers
    ) -> Appended:
        """Those that are delayed, and then the rest, which has the offsets that are told and the producer's numbers. So
        the note comes first: a batch that is sent again is known by the rest, and must not be without it."""
        rest = encode_survivors([each for each in records if each.offset not in delayed], of=header)
        rest_header = parse_header(rest)
        if header.producer_id != NO_PRODUCER and self._log.producers.find_duplicate(rest_header) is not None:
            return self._partition.append(rest, rest_header, is_own=True)
        place = self._log.next_offset
        ids = array("q", [place + 1 + each - header.base_offset for each in sorted(delayed)])
        aside = [each for each in records if each.offset in delayed]
        note = aside_batch(aside, ids, dues, rest=rest_header, codec=header.codec, now=self._now())
        self._partition.append(note, is_own=True)
        appended = self._partition.append(rest, rest_header, is_own=True)
        self._parked(Aside(place, ids, dues, memoryview(b""), rest_header.crc))
        return appended

    def _parked(self, fact: Parked | Aside) -> None:
        self._shared.facts.parked += len(fact.dues)
        self._apply(fact)
        self._ring()  # what is due at once is in order with what the producer sends next

    def _records(self, batch: Buffer, inflated_bytes_max: int) -> list[Record]:
        """None of a batch that can hold no delay."""
        header = parse_header(batch)
        data = bytes(batch[HEADER_BYTES : header.size])
        if header.codec is not Codec.NONE:
            check_batch(batch)
            data = decompress(header.codec, memoryview(data), bytes_max=inflated_bytes_max)
        if not any(mark in data for mark in MARKS):
            return []
        return decode_batch(memoryview(batch), inflated_bytes_max=inflated_bytes_max)

    # Going out

    def _on_timer(self) -> None:
        self._timer = None
        self._ring()

    def _ring(self) -> None:
        """Moves what is due, and sets the timer for what comes next."""
        if self._is_closed or not self.is_loaded:
            return
        pause, has_more = 0.0, False
        messages = self._machine.due(self._now(), count_max=MOVES_PER_TURN)
        try:
            for some in self._batches(messages):
                self._move(some)
            has_more = self._prepare()
        except (StorageError, NotLeader) as error:
            pause = PAUSE_SECONDS
            if isinstance(error, StorageError) and not isinstance(error, LogClosed):
                self._shared.on_error(error)
        except MillpondError as error:  # what was parked was read before: this is our own mistake
            pause = PAUSE_SECONDS
            self._shared.on_error(error)
        finally:
            self._machine.put_back(messages)
        self._set_timer(pause, has_more)

    def _prepare(self) -> bool:
        """A little of what has to be done anyway, so that it is done before many are due. Whether there is more."""
        now = self._now()
        if self._machine.prepare(now + PREPARED_MS, work_max=PREPARES_PER_TURN):
            return True
        return self._put_on_shelves(now) or self._write_checkpoint()

    def _put_on_shelves(self, now: int) -> bool:
        """What is due soon."""
        until = now + (SHELVED_MS_IF_FULL if self._shelves.is_full else SHELVED_MS)
        if self._shelved_to > until + SHELVED_STEP_MS:
            self._shelved_to = now  # the clock went back
        begin = max(now, self._shelved_to, self._machine.next_at() or until)
        if not self._unshelved and begin < until:
            self._shelved_to = begin // SHELVED_STEP_MS * SHELVED_STEP_MS + SHELVED_STEP_MS
            self._unshelved = self._machine.places_between(begin, self._shelved_to)
        count = 0
        while self._unshelved and count < SHELVES_PER_TURN:
            place = self._unshelved.pop()
            if place not in self._shelves and place >= self._log.start_offset:
                self._shelves.put_up(place)
                count += 1
        return bool(self._unshelved) or begin < self._shelved_to < until

    def _set_timer(self, pause_seconds: float, has_more: bool) -> None:
        due = self._machine.next_at()
        seconds = PREPARE_EVERY_SECONDS if has_more else LOOK_SECONDS_MAX
        if due is not None:
            left = due - self._now()
            seconds = min(max(left / 1000, TURN_SECONDS_MIN), seconds) if left > 0 else 0.0
        elif not has_more:
            return
        seconds = max(seconds, pause_seconds)
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._rings_at <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._rings_at = loop.time() + seconds
        self._timer = loop.call_at(self._rings_at, self._on_timer)

    def _batches(self, messages: list[Waiting]) -> Iterator[list[Moving]]:
        some: list[Moving] = []
        size = 0
        for each in messages:
            shelved = self._shelves.take(each.place, each.id)
            some.append((each, shelved))
            size += len(shelved.content)
            if size >= MOVED_BYTES:
                yield some
                some, size = [], 0
        if some:
            yield some

    def _move(self, some: list[Moving]) -> None:
        now = self._now()
        nexts = [_next_at(shelved, now) if each.is_recurring else None for each, shelved in some]
        batch = moved_batch(
            [(each.id, shelved, next_at) for (each, shelved), next_at in zip(some, nexts, strict=True)],
            origin=self._origin,
            codec=some[0][1].batch.codec,
            now=now,
            log_append_time=self._partition.config.log_append_time,
        )
        self._partition.append(batch, is_own=True)
        self._apply(Moved([(each.id, next_at) for (each, _), next_at in zip(some, nexts, strict=True)]))
        facts = self._shared.facts
        facts.delivered += len(some)
        for each, _ in some:
            facts.lateness.note((now - each.due) * _NS_PER_MS)

    # Orders

    async def cancel(self, id_: int, *, until: float | None = None) -> Waiting:
        """Returns when it is sure not to be delivered; raises MessageNotFound where it was, or never was."""
        found = self._find(id_)
        appended = self._note(cancelled_batch([id_], now=self._now()), Cancelled(array("q", [id_])))
        self._shared.facts.cancelled += 1
        await self._partition.wait_visible(appended, until=until)
        return found

    async def reschedule(self, id_: int, due: int, *, until: float | None = None) -> Waiting:
        """A schedule is put off once, and goes on from there."""
        found, now = self._find(id_), self._now()
        check_cap(due, now=now, delay_ms_max=self._shared.delay_ms_max, name=DELIVER_AT, text=str(due))
        due = max(due, 1)
        dues = array("q", [-due if found.is_recurring else due])
        appended = self._note(rescheduled_batch([id_], dues, now=now), Rescheduled(array("q", [id_]), dues))
        self._ring()
        await self._partition.wait_visible(appended, until=until)
        return found._replace(due=due)

    def first(self, count: int, *, after: Due = FIRST) -> list[Waiting]:
        """The next that come due."""
        self._require_loaded()
        return self._machine.first(count, after=after)

    def record_of(self, waiting: Waiting) -> Record:
        return self._shelves.take(waiting.place, waiting.id).record()

    def _find(self, id_: int) -> Waiting:
        self._require_loaded()
        found = self._machine.find(id_)
        if found is None:
            raise MessageNotFound(
                f"no message {self._name(id_)[:300]} waits to be delivered: it was delivered or cancelled, or never was"
            )
        return found

    def _require_loaded(self) -> None:
        self._partition.require_leader()
        if not self.is_loaded:
            raise OffsetNotAvailable(f"the new leader of {self._partition.at} still reads what waits there; ask again")

    # Making way

    async def make_way(self, before: Offset) -> Offset:
        """Carries on what waits and lies before an offset, as far as one round goes. How much may be removed then:
        nothing, while other replicas may lack what was carried on."""
        start = self._log.start_offset
        if not self.is_loaded or before <= start:
            return start
        carried_bytes, last = 0, -1
        while carried_bytes < CARRIED_BYTES_MAX and not self._is_closed:
            messages = self._machine.placed_before(before, after=last, count_max=CARRIES_PER_BATCH)
            if not messages:
                break
            self._carried, size = self._carry(messages)
            carried_bytes += size
            last = messages[-1].id
            await asyncio.sleep(0)
        if self._carried is not None:
            until = asyncio.get_running_loop().time() + CARRY_SECONDS_MAX
            with suppress(NotEnoughReplicasAfterAppend, RequestTimedOut):
                await self._partition.wait_visible(self._carried, until=until)
            if self._partition.high_watermark <= self._carried.last_offset:
                return start
        place = self._machine.first_place()
        return min(self._partition.high_watermark, place) if place is not None else self._partition.high_watermark

    def _carry(self, messages: list[Waiting]) -> tuple[Appended, int]:
        found = [self._shelves.take(each.place, each.id) for each in messages]
        records = [each.record() for each in found]
        ids = array("q", [each.id for each in messages])
        dues = array("q", [-each.due if each.is_recurring else each.due for each in messages])
        batch = carried_batch(records, ids, dues, codec=found[0].batch.codec, now=self._now())
        appended = self._partition.append(batch, is_own=True)
        self._apply(Carried(appended.base_offset, ids, dues, memoryview(b"")))
        return appended, len(batch)

    # What the log says

    def _note(self, batch: bytes, fact: Fact) -> Appended:
        appended = self._partition.append(batch, is_own=True)
        self._apply(fact)
        return appended

    def _apply(self, fact: Fact) -> None:
        if self.is_loaded:  # else it is read with the rest
            self._machine.apply(fact)

    def _write_checkpoint(self) -> bool:
        """Now and then, so that the next leader has little to read; a part in a turn. Whether there is more."""
        rows_bytes = 24 * len(self._machine)
        if self._log.appended_bytes >= self._checkpoint_due:
            self._checkpoint_due = self._log.appended_bytes + max(CHECKPOINT_BYTES, 20 * rows_bytes)
            self._checkpoint = self._machine.checkpoint()
        part = next(self._checkpoint, None)
        if part is None:
            return False
        rest, self._checkpoint = self._checkpoint, iter(())  # one that lacks a part is worth nothing
        self._partition.append(checkpoint_batch(part, now=self._now()), is_own=True)
        self._checkpoint = rest
        return part.part < part.parts - 1

    async def _load(self) -> None:
        while not self.is_loaded:
            try:
                await self._read_log()
            except LogClosed:
                return
            except MillpondError as error:
                self._shared.on_error(error)
                await asyncio.sleep(PAUSE_SECONDS * 10)
                self._machine = Delays()
        self._ring()

    async def _read_log(self) -> None:
        at = await self._last_checkpoint()
        scanned = 0
        aside: Aside | None = None
        while True:
            while at < self._log.next_offset:
                part = self._log.read(at, bytes_max=SCAN_BYTES)
                for position, header in iter_batches(part.data):
                    if aside is not None and header.crc == aside.rest_checksum:
                        self._machine.apply(aside)
                    aside = None
                    if is_of_delays(header.attributes):
                        fact = fact_of(part.data, position, header)
                        if isinstance(fact, Aside):
                            aside = fact
                        elif fact is not None:
                            self._machine.apply(fact)
                at = part.next_offset
                scanned += len(part.data)
                await asyncio.sleep(0)
            if self._machine.wind(self._now(), work_max=WINDS_PER_TURN) and at == self._log.next_offset:
                break
            await asyncio.sleep(0)
        self._checkpoint_due = self._log.appended_bytes + max(0, CHECKPOINT_BYTES - scanned)
        self.is_loaded = True

    async def _last_checkpoint(self) -> Offset:
        """Where the last one begins that is whole; the log's start where there is none."""
        seen = 0
        parts: list[PlacedPart] = []
        for segment in reversed(list(self._log.segments)):
            content, position = segment.content(), 0
            here: list[PlacedPart] = []
            while position < len(content):
                length, attributes = _LENGTH_AND_ATTRIBUTES.unpack_from(content, position)
                if attributes & CONTROL and may_be_checkpoint(content, position):
                    header = parse_header(content, position)
                    fact = fact_of(content, position, header)
                    if isinstance(fact, CheckpointPart):
                        here.append((header.base_offset, fact.part, fact.parts))
                position += length + LENGTH_END
                seen += 1
                if seen % HEADERS_PER_TURN == 0:
                    await asyncio.sleep(0)
            parts = here + parts  # a checkpoint may reach over segments
            found = last_whole(parts)
            if found is not None and found >= self._log.start_offset:
                return found
        return self._log.start_offset

    # Names

    def _name(self, id_: int) -> str:
        return f"{self._origin.decode()}{id_}"

    def _now(self) -> int:
        return self._shared.clock.wall_ms()


class DelayKeeper:
    """Of all partitions this broker leads."""

    def __init__(self, partitions: PartitionTable, shared: Surroundings) -> None:
        self._partitions = partitions
        self._shared = shared
        self.facts = shared.facts
        self._kept: dict[Partition, PartitionDelays] = {}
        partitions.listen(self.look)
        self.look()

    def look(self) -> None:
        """Who leads may have changed, or what topics are set to."""
        wanted = {
            each: each.leader_epoch
            for each in self._partitions
            if each.leading is not None and each.config.delay and not each.config.compact
        }
        for partition, delays in list(self._kept.items()):
            if wanted.get(partition) != delays.leader_epoch:
                delays.close()
                partition.delays = None
                del self._kept[partition]
        for partition in [each for each in wanted if each not in self._kept]:
            self._kept[partition] = partition.delays = PartitionDelays(partition, self._shared)

    def of(self, topic: str, partition: int) -> PartitionDelays | None:
        """None where this broker does not lead it, or it has no delays."""
        found = self._partitions.named(topic, partition)
        return None if found is None else self._kept.get(found)

    def pending(self) -> Iterable[tuple[TopicPartition, int]]:
        return [(partition.at, len(delays)) for partition, delays in self._kept.items()]

    async def close(self) -> None:
        for delays in self._kept.values():
            delays.close()
            with suppress(asyncio.CancelledError):
                await delays._loading
        self._kept.clear()
