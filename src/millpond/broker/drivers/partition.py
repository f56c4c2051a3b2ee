"""A partition that this broker keeps, as its leader or as a follower: its log, how far consumers may read, who waits.

Invariants: the high watermark never moves back while this broker leads, and nothing above it is ever handed to a
consumer. What lies below it is as safe as the topic's flush mode promises, on every replica in sync. Only a leader that
holds its broker's lease takes records, acknowledges any, or gives any to consumers.
Driven by broker/operations, by partitions.py (who leads) and by followers.py; one task at a time.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from millpond.core.metadata.topic_configs import TopicConfig
from millpond.core.replication.following import high_watermark_of_follower
from millpond.core.replication.leading import Kept, Leading
from millpond.core.replication.members import Members
from millpond.core.replication.refusals import Refusals
from millpond.model.errors import (
    FencedLeaderEpoch,
    LogCorrupted,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    RequestTimedOut,
    UnknownLeaderEpoch,
)
from millpond.model.ids import NO_EPOCH, LeaderEpoch, Offset, TopicPartition
from millpond.model.ports import Buffer
from millpond.protocol.records import BatchHeader
from millpond.storage.commit import Ended
from millpond.storage.log import Appended, Log
from millpond.storage.segment import Slice
from millpond.storage.settings import LogSettings

Waiters = dict["asyncio.Future[None]", Offset]
"""And the offset that each waits for; where it is any, none is below it."""
ANY = Offset(-1)
HoldsLease = Callable[[], bool]


class Delaying(Protocol):
    """What a partition's delayed messages are to those who append to it or take from it."""

    def append(self, batch: Buffer, *, inflated_bytes_max: int) -> Appended:
        """A producer's batch, which may ask for delays."""

    async def make_way(self, before: Offset) -> Offset:
        """Carries on what waits and lies before an offset. How much may be removed then."""


class Partition:
    __slots__ = (
        "_followers_waiting",
        "_holds_lease",
        "_waiting",
        "at",
        "config",
        "damaged_in",
        "delays",
        "fetched_bytes",
        "fetched_messages",
        "high_watermark",
        "leader_epoch",
        "leading",
        "lets_go",
        "listeners",
        "log",
        "on_damage",
        "refusals",
        "topic_id",
    )

    def __init__(
        self, at: TopicPartition, topic_id: bytes, log: Log, config: TopicConfig, *, holds_lease: HoldsLease | None
    ) -> None:
        """Nobody's until `lead` or `follow`. `holds_lease` is None for a broker that is alone."""
        self.at = at
        self.topic_id = topic_id
        self.log = log
        self.config = config
        self._holds_lease = holds_lease
        self.leader_epoch = NO_EPOCH
        self.leading: Leading | None = None
        """None while another broker leads, or nobody does."""
        self.high_watermark = log.start_offset
        self.refusals = Refusals()
        self.delays: Delaying | None = None
        """Who looks after delayed messages, where this broker leads and the topic has any; see delays.py."""
        self.on_damage: Callable[[LogCorrupted], object] = _tell_nobody
        """Is told of what is not as it was written: clients only try again, and nobody would know."""
        self.damaged_in: LeaderEpoch | None = None
        """The epoch in which this broker led, and somebody read what is not as it was written. From then on it follows
        nobody with this log: see in_sync.py and followers.py."""
        self.lets_go = False
        """Nobody waits for messages any more: the broker stops."""
        self.fetched_bytes = self.fetched_messages = 0
        """By consumers, since the log was opened; telemetry shows them."""
        self._waiting: Waiters = {}
        self._followers_waiting: Waiters = {}
        self.listeners: list[Callable[[], object]] = []
        """Called when there is more to read, or anything changed about who leads; they may not raise."""
        # By the log itself, not by whoever waits for it: a client that hangs up must not hide what is kept.
        log.on_durable = self._note_kept

    def __repr__(self) -> str:
        return f"Partition({self.at}, {self.log.start_offset} to {self.high_watermark})"

    def use(self, config: TopicConfig, settings: LogSettings) -> None:
        """From now on."""
        self.config = config
        self.log.use(settings)

    # Who leads

    def lead(self, leader_epoch: LeaderEpoch, members: Members, *, broker: int, lag_ms_max: int, now_ms: int) -> None:
        """Also called when anything but the leader changes."""
        if self.leading is not None and leader_epoch == self.leader_epoch:
            self.leading.image_changed(members, now=now_ms)
        else:
            self.leader_epoch = leader_epoch
            self.leading = Leading(
                broker=broker,
                leader_epoch=leader_epoch,
                epoch_start=self.log.next_offset,
                synced_end=self._kept_end(),
                high_watermark=self.high_watermark,
                members=members,
                lag_ms_max=lag_ms_max,
                now=now_ms,
            )
        self.note_progress()
        self.wake()  # also those who wait for a leader's word that will not come in time, such as too few in sync

    def follow(self, leader_epoch: LeaderEpoch) -> None:
        """Another leads from this epoch on, or nobody: whoever waits here has to look for it."""
        self.leader_epoch = leader_epoch
        self.leading = None
        self.wake()

    @property
    def is_led_here(self) -> bool:
        """And surely so: this broker's lease holds."""
        return self.leading is not None and (self._holds_lease is None or self._holds_lease())

    def require_leader(self) -> Leading:
        leading = self.leading
        if leading is None or (self._holds_lease is not None and not self._holds_lease()):
            raise NotLeader(f"this broker does not lead {self.at}, or cannot be sure that it does; ask for metadata")
        return leading

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        """Refuses a client that believes in another leader than there is."""
        if epoch in (NO_EPOCH, self.leader_epoch):
            return
        refusal = FencedLeaderEpoch if epoch < self.leader_epoch else UnknownLeaderEpoch
        raise refusal(f"leader epoch of {self.at} is {self.leader_epoch}, the request says {epoch}; ask for metadata")

    # Leading

    def append(self, batch: Buffer, header: BatchHeader | None = None, *, is_own: bool = False) -> Appended:
        """At once, so that what one connection sends in order is appended in order. `header` as for the log."""
        self.require_leader()
        log = self.log
        appended = log.append(batch, header, leader_epoch=self.leader_epoch, is_own=is_own)
        if log.flushes_by_group:
            log.commit.request()  # also where the client hangs up before anybody waits
        else:
            self._note_kept()
        if self._followers_waiting:
            self._followers_waiting = _wake(self._followers_waiting)
        return appended

    def may_acknowledge(self, appended: Appended, *, leader_epoch: LeaderEpoch, acks_all: bool) -> bool:
        """Whether what was appended in that epoch is kept already: on every replica in sync, or on this one.

        In the same epoch nobody else can have led since, so what lies at its offsets is still what was appended.
        """
        if self.leading is None or self.leader_epoch != leader_epoch:
            return False
        if self.high_watermark > appended.last_offset:
            return True
        return not acks_all and self._kept_end() > appended.last_offset and self.is_led_here

    @property
    def has_followers(self) -> bool:
        return self.leading is not None and len(self.leading.members.replicas) > 1

    async def wait_kept(self, appended: Appended) -> None:
        """Returns when the batch is as safe here as the topic promises, and this broker surely led until then."""
        await self.log.wait_kept(appended)
        self.require_leader()

    async def wait_visible(self, appended: Appended, *, until: float | None = None) -> None:
        """Returns when the batch is so on every replica in sync, and consumers can see it."""
        await self.log.wait_kept(appended)
        epoch = self.leader_epoch
        while self.high_watermark <= appended.last_offset:
            leading = self.leading
            if leading is None or self.leader_epoch != epoch:
                raise NotLeader(f"{self.at} has another leader since; send the batch again")
            if leading.is_kept(Offset(appended.last_offset + 1)) is Kept.NOT_ENOUGH:
                raise NotEnoughReplicasAfterAppend(
                    f"{self.at} has {len(leading.members.isr)} replicas in sync, and min.insync.replicas is "
                    f"{leading.members.insync_min}; the batch is in the log and may yet be kept"
                )
            await self._wait_for(appended.last_offset, until)

    def after_visible(self, appended: Appended, then: Ended, *, until: float) -> None:
        """Calls `then` once, without a task: when the batch may be so, the time is up, or anything else has changed."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting[waiter] = appended.last_offset
        timer = loop.call_at(until, end_wait, waiter)
        waiter.add_done_callback(partial(self._waited, timer, then))
        if self.log.is_unsynced(appended):
            self.log.after_sync(appended, self._round_ended)

    def _waited(self, timer: asyncio.TimerHandle, then: Ended, waiter: "asyncio.Future[None]") -> None:
        timer.cancel()
        self._waiting.pop(waiter, None)
        then(None)

    def _round_ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self.wake()  # nobody else would tell those who wait for copies that there is nothing to wait for

    async def _wait_for(self, offset: Offset, until: float | None) -> None:
        """Returns when the high watermark is above `offset`, or anything else has changed."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting[waiter] = offset
        timer = None if until is None else loop.call_at(until, self._time_out, waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting.pop(waiter, None)

    def _time_out(self, waiter: "asyncio.Future[None]") -> None:
        if not waiter.done():
            waiter.set_exception(RequestTimedOut(f"{self.at} was not replicated in time; it may yet be"))

    def follower_fetched(self, replica: int, *, broker_epoch: int, offset: Offset, now_ms: int) -> None:
        leading = self.leading
        if leading is not None and leading.fetched(
            replica, broker_epoch=broker_epoch, offset=offset, leader_end=self.log.next_offset, now=now_ms
        ):
            self.note_progress()

    @property
    def is_flushed_by_group(self) -> bool:
        return self.log.flushes_by_group

    def _kept_end(self) -> Offset:
        """How far the log is as safe here as the topic's flush mode promises."""
        return self.log.kept_end

    def _note_kept(self) -> None:
        leading = self.leading
        if leading is not None and leading.own_synced(self._kept_end()):
            self.note_progress()

    def note_progress(self) -> None:
        """The machine may have moved the high watermark."""
        leading = self.leading
        if leading is not None and leading.high_watermark > self.high_watermark:
            self.high_watermark = leading.high_watermark
            if self._waiting:
                self._waiting = _wake(self._waiting, until=self.high_watermark)
            if self.listeners:
                self._tell_listeners()

    def read(self, start: Offset, *, bytes_max: int) -> Slice:
        """For a consumer."""
        return self._read(start, bytes_max=bytes_max, until=self.high_watermark)

    def read_all(self, start: Offset, *, bytes_max: int) -> Slice:
        """For a follower, who has what consumers may not see yet."""
        return self._read(start, bytes_max=bytes_max, until=None)

    def _read(self, start: Offset, *, bytes_max: int, until: Offset | None) -> Slice:
        try:
            return self.log.read(start, bytes_max=bytes_max, until=until)
        except LogCorrupted as error:
            if self.leading is not None:  # lags are read at followers too, whose leader has heard how far they go
                self.damaged_in = self.leader_epoch
            self.on_damage(error)
            raise

    # Following

    def begin_anew(self, log: Log) -> None:
        """With another log in the place of its own, which is closed."""
        self.log = log
        self.damaged_in = None
        self.high_watermark = log.start_offset
        log.on_durable = self._note_kept

    def learn_high_watermark(self, told: Offset) -> None:
        self.high_watermark = high_watermark_of_follower(self.high_watermark, told=told, log_end=self.log.next_offset)

    # Waiting for more

    def add_waiter(self, waiter: "asyncio.Future[None]", *, for_follower: bool = False) -> None:
        """Its result is set when there is more to read, or the partition goes."""
        (self._followers_waiting if for_follower else self._waiting)[waiter] = ANY

    def remove_waiter(self, waiter: "asyncio.Future[None]") -> None:
        self._waiting.pop(waiter, None)
        self._followers_waiting.pop(waiter, None)

    def let_go(self) -> None:
        self.lets_go = True
        self.wake()

    def _tell_listeners(self) -> None:
        for listener in tuple(self.listeners):
            listener()

    def wake(self) -> None:
        self._waiting = _wake(self._waiting)
        self._tell_listeners()
        if self.leading is None or self.log.is_closed:
            self._followers_waiting = _wake(self._followers_waiting)


def _tell_nobody(error: LogCorrupted) -> None:
    pass


def end_wait(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def _wake(waiting: Waiters, *, until: Offset | None = None) -> Waiters:
    """Those who wait for less than `until`, or everybody; returns who is left."""
    left: Waiters = {}
    for waiter, offset in waiting.items():
        if until is not None and offset >= until:
            left[waiter] = offset
        elif not waiter.done():
            waiter.set_result(None)
    return left
