"""The states that one partition of `__share_group_state` keeps, at the broker that leads it.

What is known is what the log holds, up to its very end; so an answer goes out once everything up to the end is kept by
all replicas in sync. Where an append failed, the log is read anew.

Invariant: what was answered with DONE survives the loss of this broker, and no older writer is answered so after it.
Driven by states.py.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from millpond.broker.drivers.partition import Partition
from millpond.core.delivery.kept import Answer, KeptStates, Record, Request
from millpond.core.delivery.kept_format import decode_record, encode_record
from millpond.model.errors import (
    InvalidRecord,
    MillpondError,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    RequestTimedOut,
    StorageError,
)
from millpond.model.ids import Offset, TimestampMs
from millpond.model.limits import MIB
from millpond.model.ports import Clock
from millpond.protocol.records import NewRecord, decode_batch, encode_batch, iter_batches
from millpond.storage.commit import Ended
from millpond.storage.log import Appended

APPEND_BYTES_MAX = MIB
"""One batch holds so much and one record; the topic's `max.message.bytes` is above it."""
PRUNE_BYTES_MIN = 16 * MIB
"""Four segments of the topic. A log that is no larger is left alone: what a prune leaves takes at most what is needed
and two segments, so it is never due again at once."""
SWEEP_SECONDS = 60.0
"""After a shard was loaded: by then this broker's metadata shows every topic that its keys may be about."""
UNAVAILABLE = (NotLeader, StorageError, NotEnoughReplicasAfterAppend, RequestTimedOut, InvalidRecord)
"""Why nothing can be kept now. What was asked may have been appended, and be kept later."""


class Surroundings(NamedTuple):
    """What all shards of a broker share."""

    clock: Clock
    has_topic: Callable[[bytes], bool]
    on_error: Callable[[BaseException], None]


class Begun(NamedTuple):
    """What may be answered once it is kept."""

    answers: list[Answer]
    appended: Appended


class StateShard:
    def __init__(self, partition: Partition, shared: Surroundings) -> None:
        self._partition = partition
        self.leader_epoch = partition.leader_epoch
        self._shared = shared
        self._states: KeptStates | None = None
        """None until the log was read, and after an append that failed."""
        self._unreadable: InvalidRecord | None = None
        self._reading = asyncio.Lock()
        self._pruning: asyncio.Task[None] | None = None
        self._pruned_at = 0
        """How much the log had taken in when it was last pruned."""
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        if self._pruning is not None:
            self._pruning.cancel()
        if self._sweep is not None:
            self._sweep.cancel()

    async def perform(self, requests: Sequence[Request], *, until: float) -> list[Answer]:
        """An answer for each, when everything they depend on is kept. Raises one of UNAVAILABLE."""
        answers = self._step(await self._loaded(), requests)
        await self._wait_kept(until)
        self._prune_soon()
        return answers

    def begin(self, requests: Sequence[Request]) -> Begun | None:
        """The same at once, up to the wait; None where the log must be read first, or other replicas are waited for."""
        if self._states is None or self._partition.has_followers:
            return None
        self._require_ours()
        answers = self._step(self._states, requests)
        return Begun(answers, self._last())

    def after_sync(self, begun: Begun, then: Ended) -> None:
        """Calls `then` when it is time to `finish`: not before this returns."""
        log = self._partition.log
        if log.is_unsynced(begun.appended):
            log.after_sync(begun.appended, then)
            log.commit.hurry()  # whoever has something to keep has waited for others already
        else:
            asyncio.get_running_loop().call_soon(then, None)

    def finish(self, begun: Begun) -> bool:
        """Whether it is kept; else it has to be performed again, and waited for."""
        log = self._partition.log
        if self._is_closed or self._states is None or log.truncations != begun.appended.truncations:
            return False
        if not self._partition.may_acknowledge(begun.appended, leader_epoch=self.leader_epoch, acks_all=True):
            return False
        self._prune_soon()
        return True

    def _step(self, states: KeptStates, requests: Sequence[Request]) -> list[Answer]:
        answers = []
        records: list[Record] = []
        for request in requests:
            more, answer = states.step(request, at=Offset(self._partition.log.next_offset + len(records)))
            records += more
            answers.append(answer)
        self._append(records)
        return answers

    def forget_topics(self, topic_ids: Collection[bytes]) -> None:
        """As soon as it may: what is not forgotten now will be after the next load."""
        if self._states is None:
            return
        try:
            self._require_ours()
            self._forget(self._states, topic_ids)
        except UNAVAILABLE:
            self._states = None

    # The log

    async def _loaded(self) -> KeptStates:
        self._require_ours()
        if self._states is None:
            async with self._reading:
                if self._states is None:
                    self._states = await self._read()
            self._require_ours()
        return self._states

    def _require_ours(self) -> None:
        """Else another may keep the states by now, and be ahead of what is here."""
        self._partition.require_leader()
        if self._is_closed or self._partition.leader_epoch != self.leader_epoch:
            raise NotLeader(f"{self._partition.at} has another leader since; ask for metadata")

    async def _read(self) -> KeptStates:
        """Part by part, so that others have their turn. Nobody appends meanwhile: only this shard does.

        A record that cannot be read makes all of them unavailable, rather than let one of them forget something.
        """
        if self._unreadable is not None:
            raise self._unreadable
        states, log = KeptStates(), self._partition.log
        at = log.start_offset
        while at < log.next_offset:
            part = log.read(at, bytes_max=MIB)
            try:
                _apply_all(states, part.data, since=at)
            except InvalidRecord as error:
                self._unreadable = error
                self._shared.on_error(error)
                raise
            at = part.next_offset
            await asyncio.sleep(0)
            self._require_ours()
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep_now)
        return states

    def _append(self, records: Sequence[Record]) -> None:
        """Of what was applied already: where it fails, too much is known."""
        stamp = TimestampMs(self._shared.clock.wall_ms())
        try:
            batch: list[NewRecord] = []
            size = 0
            for record in records:
                key, value = encode_record(record)
                batch.append(NewRecord(value, key=key, timestamp=stamp))
                size += len(key) + len(value or b"")
                if size >= APPEND_BYTES_MAX:
                    self._partition.append(bytearray(encode_batch(batch)))
                    batch, size = [], 0
            if batch:
                self._partition.append(bytearray(encode_batch(batch)))
        except MillpondError:
            self._states = None
            raise

    async def _wait_kept(self, until: float | None) -> None:
        """All that is in the log by now."""
        last = self._last()
        if last.last_offset >= self._partition.log.start_offset:
            await self._partition.wait_visible(last, until=until)

    def _last(self) -> Appended:
        log = self._partition.log
        last = Offset(log.next_offset - 1)
        return Appended(last, last, log.truncations)

    # Making it shorter

    def _prune_soon(self) -> None:
        if self._pruning is None and not self._is_closed and self._is_long():
            self._pruning = asyncio.get_running_loop().create_task(self._prune())

    def _is_long(self) -> bool:
        """More than it need be, and than it was left with."""
        log, states = self._partition.log, self._states
        if states is None or log.appended_bytes - self._pruned_at < states.needed_bytes:
            return False
        return log.size_bytes() > max(PRUNE_BYTES_MIN, 2 * states.needed_bytes)

    async def _prune(self) -> None:
        """Keys that hold the start back are written once more, at the end. What lies before goes when that is kept.

        Nothing is written twice in one go, however large the segments are in which files go.
        """
        log = self._partition.log
        end = log.next_offset
        try:
            while self._is_long() and self._states is not None:
                self._require_ours()
                states = self._states
                oldest = states.oldest
                if oldest is not None and log.start_offset == oldest < end:
                    self._apply_and_append(states, states.rewrites(bytes_max=APPEND_BYTES_MAX))
                cut = log.next_offset if states.oldest is None else states.oldest
                if cut <= log.start_offset:  # each round takes something, or it is the last: nothing in it has to wait
                    break
                await self._wait_kept(until=None)
                await log.delete_before(cut)
        except UNAVAILABLE:
            pass  # there will be another time
        finally:
            self._pruned_at = log.appended_bytes
            self._pruning = None

    def _sweep_now(self) -> None:
        """Topics may have gone while nobody had their states in memory."""
        states = self._states
        if states is not None:
            self.forget_topics({key.topic_id for key in states.states if not self._shared.has_topic(key.topic_id)})

    def _forget(self, states: KeptStates, topic_ids: Collection[bytes]) -> None:
        self._apply_and_append(states, states.of_topics(topic_ids))

    def _apply_and_append(self, states: KeptStates, records: Sequence[Record]) -> None:
        for place, record in enumerate(records):
            states.apply(record, Offset(self._partition.log.next_offset + place))
        self._append(records)


def _apply_all(states: KeptStates, data: memoryview, *, since: Offset) -> None:
    """The first batch may begin before what is still there."""
    for position, _ in iter_batches(data):
        for record in decode_batch(data, position):
            if record.offset >= since and record.key is not None:
                states.apply(decode_record(record.key, record.value), record.offset)
