"""One queue group on one partition that this broker leads: hands out messages, takes what became of them.

Invariant: nobody is told of a lease, or of an acknowledgement, before it is kept by all replicas in sync. Where
something could not be kept the ledger is ahead of what is: it is over, and the next who asks loads it anew.
Driven by queues.py, and by a timer of its own.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.queue_expiry import QueueExpiry
from millpond.broker.drivers.queue_keeper import QueueKeeper, Then
from millpond.broker.drivers.queue_reader import Batch, QueueReader, parked_runs
from millpond.broker.drivers.states import StateKey, States
from millpond.core.delivery.encoding import decode
from millpond.core.delivery.headers import is_expired, lane_of
from millpond.core.delivery.lanes import MARK_EVERY_MS, Offer
from millpond.core.delivery.ledger import Delivery, Ledger, Verdict
from millpond.core.delivery.runs import Run
from millpond.core.delivery.settings import DeliverySettings
from millpond.core.delivery.states import Doomed, Lane, Outcome
from millpond.model.errors import CoordinatorUnavailable, FencedState, LeaseLost, MillpondError, NotLeader
from millpond.model.ids import Offset
from millpond.model.instant import Instant
from millpond.model.ports import Clock, Rng
from millpond.protocol.records import Record, decode_batch, parse_header

KIND: Final = "share"
EXPIRY_PIECES_MAX: Final = 64
"""As much of the log is looked at in one go for messages whose time will end: 4 MiB."""
PAUSE_SECONDS: Final = 1.0
"""Before the dead-letter topic is tried again."""


class Want(Struct, frozen=True, gc=False):
    holder: str
    count_max: int
    bytes_max: int
    lock_ms: int
    whole_batches: bool = False
    """Rather a few messages too many than a part of a batch."""

    @property
    def is_met(self) -> bool:
        return self.count_max <= 0 or self.bytes_max <= 0

    def without(self, taken: "Taken") -> "Want":
        """What is wanted still."""
        count = sum(delivery.last - delivery.first + 1 for delivery in taken.deliveries)
        size = sum(map(len, taken.batches.values()))
        return replace(self, count_max=self.count_max - count, bytes_max=self.bytes_max - size)


class Taken(Struct, frozen=True):
    deliveries: list[Delivery]
    batches: dict[int, memoryview]
    """Those the messages are in, by base offset."""


class Held(NamedTuple):
    """Messages that somebody says to have."""

    first: int
    last: int
    holder: str


class DeadLetters(Protocol):
    """Where messages go that nobody could use."""

    async def producer_id(self) -> int: ...

    async def send(self, group: str, partition: Partition, run: Run[Doomed], *, producer_id: int) -> int | None:
        """The last of the run that is there now; None where none is, and it is worth trying again later."""


class Surroundings(NamedTuple):
    """What all of a broker's queue partitions share."""

    clock: Clock
    rng: Rng
    states: States
    dead_letters: DeadLetters
    on_error: Callable[[BaseException], None]
    ttl_ms_max: int


class QueuePartition:
    def __init__(
        self, group: str, partition: Partition, settings: DeliverySettings, shared: Surroundings, *, start: Offset
    ) -> None:
        """Use `open` first. `start` is where a group begins that was never here."""
        self.group = group
        self.partition = partition
        self.settings = settings
        self._looks_at_messages = settings.looks_at_messages
        self.epoch = partition.leader_epoch
        self._shared = shared
        self._key = StateKey(KIND, group, partition.topic_id, partition.at.partition)
        self._ledger = Ledger(settings, shared.rng, start=start)
        self._keeper = QueueKeeper(self._key, self.epoch, shared.states, on_failure=self._note_failure)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        """When it rings."""
        self._burying: asyncio.Task[None] | None = None
        self._takers: dict[asyncio.Future[None], int] = {}
        """Who waits to take, the longest first, and `_wakes` when each last looked, which never falls along them."""
        self._watchers: dict[asyncio.Future[None], None] = {}
        self._wakes = 0
        self._reader = QueueReader(partition)
        self.failure: MillpondError | None = None
        """Why it is over, once it is."""

    @property
    def is_over(self) -> bool:
        """Or another broker leads since, or this one does anew."""
        return self.failure is not None or self.epoch != self.partition.leader_epoch

    @property
    def ledger(self) -> Ledger:
        """To look at; changes go through this class."""
        return self._ledger

    async def open(self) -> None:
        documents = await self._shared.states.load(self._key, self.epoch)
        if documents:
            self._ledger = Ledger.restore(self.settings, self._shared.rng, decode(documents), now=self._now())
        self._keeper.ledger = self._ledger
        self._expiry = QueueExpiry(self.partition, self._ledger, self._shared.clock, ttl_ms_max=self._shared.ttl_ms_max)
        await self.keep(is_new=not documents)
        self.partition.listeners.append(self._on_partition)
        self._go_on()

    def end(self, why: MillpondError) -> None:
        """Whoever waits looks for it anew."""
        if self.failure is not None:
            return
        self.failure = self._keeper.failure = why
        if self._timer is not None:
            self._timer.cancel()
        if self._burying is not None:
            self._burying.cancel()
        if self._on_partition in self.partition.listeners:
            self.partition.listeners.remove(self._on_partition)
        self._wake_all()

    def oldest_ms(self) -> int:
        """How long ago the first message was written that is not done with; 0 where there is none."""
        start = max(self._ledger.start, self.partition.log.start_offset)
        if start >= self.partition.high_watermark:
            return 0
        written = parse_header(self.partition.read(Offset(start), bytes_max=1).data).max_timestamp
        return max(0, self._shared.clock.wall_ms() - written)

    def depth(self, lane: Lane) -> int:
        """Messages that could be handed out now, also those that nobody has looked at yet."""
        ledger, end = self._ledger, self.partition.high_watermark
        if lane is not Lane.NORMAL:
            return ledger.depth(lane)
        return ledger.depth(lane) + ledger.ahead_within(ledger.frontier, end - 1) - self._parked()

    def _parked(self) -> int:
        """How many of the offsets that seem ready hold notes on delayed messages, as far as it is worth a look."""
        ledger, end = self._ledger, self.partition.high_watermark
        return sum(
            ledger.ready_within(first, last) + ledger.ahead_within(first, last)
            for first, last in parked_runs(self.partition, ledger.start, end)
        )

    # Handing out

    def take(self, want: Want) -> Taken:
        """What there is now, perhaps nothing. Nobody may have it before `keep` has returned."""
        self._require_open()
        return self._take(want, self._now())

    def exchange(self, verdicts: Collection[Verdict], want: Want) -> tuple[LeaseLost | None, Taken]:
        """Hears what a consumer says of what it had, as `say` does, and then has it take: both at one moment. That the
        first is refused, and why, is returned: it gets what there is all the same."""
        self._require_open()
        now = self._now()
        refusal = None
        try:
            self._ledger.acknowledge(verdicts, holder=want.holder, now=now)
        except LeaseLost as error:
            refusal = error
        return refusal, self._take(want, now, wakes=refusal is None)

    def _take(self, want: Want, now: Instant, *, wakes: bool = False) -> Taken:
        taken = Taken([], {})
        ledger = self._ledger
        wakes = ledger.trim(self.partition.log.start_offset) or wakes
        wakes = ledger.tick(now) or wakes
        if self._looks_at_messages and ledger.frontier < self.partition.high_watermark:
            wakes = self._admit() or wakes  # what has come since may go before what waits
        count_left = min(want.count_max, ledger.room_for(want.holder))
        bytes_left = want.bytes_max
        while count_left > 0 and bytes_left > 0:
            offer = ledger.offer(now)
            if offer is None:
                if not self._admit():
                    break
                continue
            if offer.first >= self.partition.high_watermark:  # a new leader that does not know yet how far it goes
                break
            count, size = self._take_offer(offer, want, taken, now, count_left, bytes_left)
            count_left -= count
            bytes_left -= size
        self._go_on(wakes=wakes)
        self.pass_on()
        return taken

    def _take_offer(
        self, offer: Offer, want: Want, taken: Taken, now: Instant, count_left: int, bytes_left: int
    ) -> tuple[int, int]:
        """How many messages and bytes it came to; all that were left where the next batch is too large for them.
        Else something of the offer is gone from the ledger in any case."""
        ledger = self._ledger
        ready = offer.last - offer.first + 1
        batches = self._reader.read(offer.first, wanted=min(count_left, ready), ready=ready, bytes_max=bytes_left)
        count = size = 0
        for batch in batches:
            if count >= count_left:
                break
            first, last = max(offer.first, batch.first), min(offer.last, batch.last)
            if first > last:
                break
            more = 0 if batch.first in taken.batches else len(batch.content)
            if taken.batches and size + more > bytes_left:
                return count, bytes_left
            if batch.header.is_control or batch.header.record_count == 0:
                ledger.skip(first, last)
                continue
            room = count_left - count
            if want.whole_batches and last - first >= room:
                room = min(last - first + 1, ledger.room_for(want.holder))
            if batch.mentioned.ttl or batch.header.record_count <= batch.header.last_offset_delta:
                runs = self._runs_there(batch, first, last, room)
            else:
                runs = [(first, min(last, first + room - 1))]
            for run_first, run_last in runs:
                lent = Offer(run_first, run_last, offer.lane)
                taken.deliveries.extend(ledger.acquire(lent, holder=want.holder, lock_ms=want.lock_ms, now=now))
                count += run_last - run_first + 1
            if runs:
                taken.batches[batch.first] = batch.content
                size += more
        return count, size

    def _runs_there(self, batch: Batch, first: int, last: int, room: int) -> list[tuple[int, int]]:
        """The first so many messages of a batch. Not those that have outlived their time, which is noted, nor offsets
        that have none: what was put aside for later."""
        wall_ms, ttl_ms_max = self._shared.clock.wall_ms(), self._shared.ttl_ms_max
        runs: list[tuple[int, int]] = []
        at = first
        for each in self._reader.decode(batch.first, batch.content):
            offset = each.offset
            if not first <= offset <= last:
                continue
            if at < offset:
                self._ledger.skip(at, offset - 1)
            at = offset + 1
            if is_expired(each, wall_ms=wall_ms, ttl_ms_max=ttl_ms_max):
                self._ledger.expire(offset)
                continue
            if runs and runs[-1][1] == offset - 1:
                runs[-1] = runs[-1][0], offset
            else:
                runs.append((offset, offset))
            room -= 1
            if not room:
                return runs
        if at <= last:
            self._ledger.skip(at, last)
        return runs

    def _admit(self) -> bool:
        """Lets more messages in; whether there were any."""
        ledger, end = self._ledger, self.partition.high_watermark
        ledger.pass_done()
        if ledger.frontier >= end:
            return False
        if not self._looks_at_messages:
            ledger.admit_until(end)
            return True
        if ledger.room_ahead <= 0:
            return False
        now_ms = self._shared.clock.wall_ms()
        looked_at = self._reader.look(ledger.frontier, is_next=not ledger.ready)
        for when, batches in groupby(looked_at, key=self._written_about):
            if when is None:
                for batch in batches:
                    self._admit_each(batch, now_ms)
            else:
                alike = list(batches)
                ledger.admit_plain(alike[0].first, alike[-1].last, written_wall_ms=min(when * MARK_EVERY_MS, now_ms))
        return True

    def _written_about(self, batch: Batch) -> int | None:
        """The time of a batch whose messages are let in all at once, with those of others of that time."""
        if self.settings.is_ordered_by_key or batch.mentioned.priority:
            return None
        return batch.header.max_timestamp // MARK_EVERY_MS

    def _admit_each(self, batch: Batch, now_ms: int) -> None:
        ledger = self._ledger
        if not batch.header.is_control:
            for record in decode_batch(batch.content):
                if record.offset >= ledger.frontier:
                    lane, written = lane_of(record.headers), min(record.timestamp, now_ms)
                    ledger.admit(record.offset, lane=lane, key=record.key, written_wall_ms=written)
        ledger.skip_until(batch.last + 1)

    def records(self, taken: Taken) -> list[tuple[Record, int]]:
        """Messages that were taken, each with its attempt. Offsets without a message are done on the way."""
        attempts = {at: each.attempt for each in taken.deliveries for at in range(each.first, each.last + 1)}
        found: dict[int, Record] = {
            record.offset: record
            for base, batch in taken.batches.items()
            for record in self._reader.decode(base, batch)
            if record.offset in attempts
        }
        for offset in attempts.keys() - found.keys():
            self._ledger.skip(offset, offset)
        return [(found[offset], attempt) for offset, attempt in attempts.items() if offset in found]

    # What became of them

    async def acknowledge(
        self,
        verdicts: Collection[Verdict],
        *,
        holder: str,
        delay_ms: int | None = None,
        lock_ms: int | None = None,
        reason: str = "",
    ) -> None:
        """All, or none: LeaseLost."""
        self.say(verdicts, holder=holder, delay_ms=delay_ms, lock_ms=lock_ms, reason=reason)
        await self.keep()

    def say(
        self,
        verdicts: Collection[Verdict],
        *,
        holder: str,
        delay_ms: int | None = None,
        lock_ms: int | None = None,
        reason: str = "",
    ) -> None:
        """The same; nobody may be told that it was heard before it is kept."""
        self._require_open()
        self._ledger.acknowledge(
            verdicts, holder=holder, now=self._now(), delay_ms=delay_ms, lock_ms=lock_ms, reason=reason
        )
        self._go_on()

    async def settle(
        self,
        held: Iterable[Held],
        outcome: Outcome,
        *,
        delay_ms: int | None = None,
        lock_ms: int | None = None,
        reason: str = "",
    ) -> list[Held]:
        """The same said of messages of several holders, as far as they have them; returned is what they have not."""
        self._require_open()
        now, ledger = self._now(), self._ledger
        ledger.tick(now)
        lost: list[Held] = []
        for first, last, holder in held:
            had = ledger.held(first, last, holder=holder)
            verdicts = [Verdict(each.first, each.last, outcome) for each in had]
            ledger.acknowledge(verdicts, holder=holder, now=now, delay_ms=delay_ms, lock_ms=lock_ms, reason=reason)
            at = first
            for each in had:
                if each.first > at:
                    lost.append(Held(at, each.first - 1, holder))
                at = each.last + 1
            if at <= last:
                lost.append(Held(at, last, holder))
        self._go_on()
        await self.keep()
        return lost

    def release_all(self, holder: str) -> None:
        """Its consumer is gone; who waits may have what it held."""
        if self.failure is None:
            self._ledger.release_all(holder, self._now())
            self._go_on()

    # Keeping

    async def keep(self, *, is_new: bool = False) -> None:
        """Returns when all that happened so far is kept, and was this broker's to decide."""
        # Its own: a caller that hangs up takes nothing back, since others depend on the same document.
        waiter = asyncio.get_running_loop().create_future()
        if self.after_kept(partial(_settle, waiter), is_new=is_new):
            await waiter
        self.partition.require_leader()

    def after_kept(self, then: Then, *, is_new: bool = False) -> bool:
        """The same for who needs no future; False, and no call, where it is so now. The leader may be another then."""
        if self.failure is not None:
            raise self.failure
        return self._keeper.after_kept(then, is_new=is_new)

    def _note_failure(self, error: Exception) -> Exception:
        if isinstance(error, FencedState):
            error = NotLeader(f"{self.partition.at} has another leader, who has the queue by now; ask for metadata")
        if isinstance(error, MillpondError):
            self.end(error)
        else:
            self.end(CoordinatorUnavailable(f"{self._key} could not be kept; ask again"))
        return error

    def _require_open(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.partition.require_leader()

    # Going on by itself

    def _go_on(self, *, wakes: bool = True) -> None:
        """After anything that may have changed what comes next."""
        if self.failure is not None:
            return
        if wakes and self._has_some():
            self._wake()
        if self._ledger.doomed_count and self._burying is None:
            self._burying = asyncio.get_running_loop().create_task(self._bury())
        self._set_timer()

    async def expire(self) -> None:
        """What has outlived its time, whether anybody comes for it or not; others have their turn meanwhile."""
        self._require_open()
        pieces = EXPIRY_PIECES_MAX
        while pieces and self._expiry.look_further():
            pieces -= 1
            await asyncio.sleep(0)
            self._require_open()
        if not self._expiry.is_due:
            return
        self._admit()
        while self._expiry.is_due:
            self._expiry.expire_next()
            await asyncio.sleep(0)
            self._require_open()
        self._go_on()
        await self.keep()

    def _set_timer(self) -> None:
        """One that rings before it has to is left alone: it is set anew then. Most leases are settled in time."""
        due_ms = self._ledger.next_deadline
        if due_ms is None or (self._timer is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        wait_seconds = max(0, due_ms - self._shared.clock.monotonic_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(wait_seconds, self._on_timer)
        self._timer_ms = due_ms

    def _on_timer(self) -> None:
        self._timer = None
        self._ledger.tick(self._now())
        self._go_on()

    async def _bury(self) -> None:
        """Until none is left; each is kept as doomed, with its number, before it is sent."""
        ledger, letters = self._ledger, self._shared.dead_letters
        try:
            while ledger.doomed_count and self.failure is None:
                is_named = ledger.producer_id >= 0 or await self._name_sender()
                await self.keep()
                run = ledger.doomed[0]
                last = None
                if is_named:
                    last = await letters.send(self.group, self.partition, run, producer_id=ledger.producer_id)
                if last is None:
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                ledger.buried(run.first, last)
                self._go_on()  # the next of its key may be had now
                await self.keep()
        except MillpondError:
            pass  # it is over, or will be tried by whoever leads next
        except Exception as error:
            self._shared.on_error(error)
        finally:
            self._burying = None

    async def _name_sender(self) -> bool:
        """In whose name letters go. It is no change of a message, and must be kept before it is used."""
        try:
            self._ledger.producer_id = await self._shared.dead_letters.producer_id()
        except MillpondError:
            return False  # there is no controller now; it is worth trying again
        await self.keep(is_new=True)
        return True

    # Waiting

    def add_waiter(self, waiter: "asyncio.Future[None]", *, takes: bool) -> None:
        """Its result is set when there may be messages, or this is over. Of those who take one is woken at a time, who
        calls `take` or `pass_on` then, whatever becomes of it; the others only look, and are woken all."""
        if takes:
            self._takers[waiter] = self._wakes
        else:
            self._watchers[waiter] = None

    def remove_waiter(self, waiter: "asyncio.Future[None]") -> None:
        self._takers.pop(waiter, None)
        self._watchers.pop(waiter, None)

    @property
    def mark(self) -> int:
        """Another number whenever there may be more to hand out than there was."""
        return self._wakes + self.partition.high_watermark

    def _has_some(self) -> bool:
        return self._ledger.frontier < self.partition.high_watermark or self._ledger.ready > 0

    def _on_partition(self) -> None:
        at = self.partition
        if at.leading is None or at.leader_epoch != self.epoch or at.log.is_closed or at.lets_go:
            self._wake_all()
        elif self._has_some():
            self._wake()

    def _wake(self) -> None:
        """There may be more than there was: somebody shall look again."""
        self._wakes += 1
        if self._watchers:
            watchers, self._watchers = self._watchers, {}
            for watcher in watchers:
                _settle(watcher, None)
        self.pass_on()

    def pass_on(self) -> None:
        """To who has waited longest, and not looked since there was last more: so nobody is woken for ever by others
        who, as it does, look and may not have what there is."""
        while self._takers and self._has_some():
            waiter, looked_at = next(iter(self._takers.items()))
            if looked_at == self._wakes:
                return
            del self._takers[waiter]
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_all(self) -> None:
        self._wakes += 1
        waiting, self._takers, self._watchers = [*self._takers, *self._watchers], {}, {}
        for waiter in waiting:
            _settle(waiter, None)

    def _now(self) -> Instant:
        return Instant(self._shared.clock.monotonic_ms(), self._shared.clock.wall_ms())


def _settle(waiter: "asyncio.Future[None]", failure: Exception | None) -> None:
    if waiter.done():
        return
    if failure is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(failure)
