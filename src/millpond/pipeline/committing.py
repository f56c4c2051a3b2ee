"""One task's part of a commit on its way into the log (tokens.py says what a commit is).

Invariants: of one commit, one task and one partition the batches are sent one after the other, in the order of their
sequence numbers; so none is taken while one before it is missing. What is there from an earlier try is compared with
what would be sent now before anything is added to it, unless all is one batch, which is there whole or not at all.
Driven by sink.py, in the link's loop.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from millpond.client.cluster import Cluster, Purpose
from millpond.client.offsets import LATEST, offsets_at
from millpond.client.refusals import NEW_LEADER_CODES, refusal
from millpond.client.settings import ProducerSettings
from millpond.model.errors import BrokerUnreachable, OffsetOutOfRange, OutOfOrderSequence, StaleProducerEpoch
from millpond.model.ids import Offset, Sequence, TimestampMs, TopicPartition
from millpond.pipeline.decode import decode_batches
from millpond.pipeline.encode import Origin, cut_by_size, encode_rows, row_sizes
from millpond.pipeline.kernel import RECORD_BYTES_EXTRA
from millpond.pipeline.reading import fetch_some
from millpond.pipeline.tokens import Commit
from millpond.protocol.compression import Codec
from millpond.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

_KEPT_ALREADY: Final = 46
"""DUPLICATE_SEQUENCE_NUMBER: it is there, but the leader does not remember any more where."""
_ACKS_ALL: Final = -1


@dataclass(frozen=True, slots=True)
class Rows:
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None

    def __len__(self) -> int:
        return len(self.values)

    def part(self, which: slice) -> "Rows":
        start, stop = which.start, which.stop
        headers = None if self.headers is None else self.headers[start:stop]
        return Rows(self.keys[start:stop], self.values[start:stop], headers)

    def and_then(self, others: "Rows") -> "Rows":
        headers = None
        if self.headers is not None and others.headers is not None:
            headers = pa.concat_arrays([self.headers, others.headers])
        return Rows(pa.concat_arrays([self.keys, others.keys]), pa.concat_arrays([self.values, others.values]), headers)


class CommitWriter:
    """One task's part of a commit."""

    def __init__(self, cluster: Cluster, commit: Commit, *, task: int, codec: Codec, batch_bytes: int) -> None:
        self._cluster = cluster
        self._commit = commit
        self._producer = commit.producer(task)
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._settings = ProducerSettings()

    async def add(self, at: TopicPartition, rows: Rows) -> None:
        """Batches are cut by what is in them alone, however the rows were given: the same again on another try."""
        lane = self._lanes.setdefault(at, _Lane())
        waiting = rows if lane.waiting is None else lane.waiting.and_then(rows)
        *full, last = cut_by_size(row_sizes(waiting.keys, waiting.values, waiting.headers), bytes_max=self._batch_bytes)
        for part in full:
            if lane.end_before is None:
                lane.end_before = (await offsets_at(self._cluster, {at: LATEST}))[at]
            await self._send(at, lane, waiting.part(part))
        lane.waiting = waiting.part(last)

    async def finish(self) -> int:
        """When all is acknowledged; the number of batches."""
        for at, lane in self._lanes.items():
            if lane.waiting is not None:
                await self._send(at, lane, lane.waiting)
                lane.waiting = None
        for at, lane in self._lanes.items():
            await lane.settle()
            if lane.is_beyond_memory:  # a try that had these rows would have ended with this batch, and be remembered
                raise self._others(at)
        return sum(lane.batches for lane in self._lanes.values())

    async def close(self) -> None:
        for lane in self._lanes.values():
            await lane.cancel()

    async def _send(self, at: TopicPartition, lane: "_Lane", rows: Rows) -> None:
        """On its way, after the one before it has arrived."""
        await lane.settle()
        encoded = encode_rows(
            rows.keys,
            rows.values,
            rows.headers,
            timestamp=TimestampMs(self._cluster.settings.wall_ms()),
            codec=self._codec,
            origin=Origin(*self._producer, Sequence(lane.sequence)),
        )
        lane.sequence += len(rows)
        lane.batches += 1
        lane.sending = asyncio.get_running_loop().create_task(self._deliver(at, lane, rows, encoded))

    async def _deliver(self, at: TopicPartition, lane: "_Lane", rows: Rows, encoded: bytes) -> None:
        try:
            base_offset = await self._cluster.retrying(
                lambda: self._try(at, encoded), seconds_max=self._settings.delivery_seconds_max
            )
        except OutOfOrderSequence:
            raise self._others(at) from None
        except StaleProducerEpoch:
            raise StaleProducerEpoch(
                f"{at}: commit {self._commit.number} of {self._commit.name} comes after a later one was written; "
                "another run of this query is ahead of this one. Stop one of them, or begin with a new checkpoint"
            ) from None
        lane.is_beyond_memory = base_offset is None
        if base_offset is not None and lane.end_before is not None and base_offset < lane.end_before:
            await self._compare(at, Offset(base_offset), rows)

    def _others(self, at: TopicPartition) -> OutOfOrderSequence:
        return OutOfOrderSequence(
            f"{at}: commit {self._commit.number} of {self._commit.name} was begun with other rows, or in another "
            "order, than it has now. What was written stays, and nothing is written twice; rows must come in the "
            "same order each time: sort them (sortWithinPartitions) before they are written, leave out what differs "
            "from run to run, or set delivery to at-least-once"
        )

    async def _compare(self, at: TopicPartition, base_offset: Offset, rows: Rows) -> None:
        """With what an earlier try has left there; where some of it is gone by now, there is nothing to go by."""
        try:
            fetched = await fetch_some(self._cluster, at, base_offset, len(rows.values) * RECORD_BYTES_EXTRA)
        except OffsetOutOfRange:
            return
        kept = decode_batches(
            fetched.data,
            topic=at.topic,
            partition=at.partition,
            columns=("key", "value"),
            start=base_offset,
            end=base_offset + len(rows),
        )
        if kept.num_rows == len(rows) and not (
            kept.column("key").equals(rows.keys) and kept.column("value").equals(rows.values)
        ):
            raise self._others(at)

    async def _try(self, at: TopicPartition, encoded: bytes) -> int | None:
        """Where it is; None where it is there and nobody remembers where."""
        leader = self._cluster.view.leader_of(at)
        if leader is None:
            await self._cluster.refresh([at.topic])
            leader = self._cluster.view.leader_of(at)
        if leader is None:
            raise BrokerUnreachable(f"{at}: nobody leads it at the moment")
        seconds_max = self._cluster.settings.request_seconds_max
        part = PartitionProduceData(index=at.partition, records=encoded)
        request = ProduceRequest(
            acks=_ACKS_ALL,
            timeout_ms=int(seconds_max * 1000),
            topic_data=[TopicProduceData(name=at.topic, partition_data=[part])],
        )
        try:
            connection = await self._cluster.connection(leader.node, Purpose.DATA)
            answer = await connection.ask(request, ProduceResponse, seconds_max=seconds_max + 1)
        except BrokerUnreachable:
            self._cluster.forget_leader(at, leader.node)
            raise
        found = answer.responses[0].partition_responses[0]
        if found.error_code in NEW_LEADER_CODES:
            self._cluster.forget_leader(at, leader.node)
        if found.error_code == _KEPT_ALREADY:
            return None
        if found.error_code:
            raise refusal(found.error_code, found.error_message, of=str(at))
        return found.base_offset


class _Lane:
    """What goes to one partition."""

    def __init__(self) -> None:
        self.waiting: Rows | None = None
        """Not enough for a batch, or just enough: nobody knows before the next row."""
        self.sending: asyncio.Task[None] | None = None
        self.sequence = 0
        self.batches = 0
        self.end_before: int | None = None
        """Of the partition, before the first of several batches was sent: what is before it is of an earlier try."""
        self.is_beyond_memory = False
        """The last batch that was sent is there from earlier, so long ago that its leader does not say where."""

    async def settle(self) -> None:
        if self.sending is not None:
            await self.sending
            self.sending = None

    async def cancel(self) -> None:
        if self.sending is not None:
            self.sending.cancel()
            await asyncio.gather(self.sending, return_exceptions=True)
