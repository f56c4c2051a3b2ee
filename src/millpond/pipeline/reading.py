"""A span of a partition as Arrow record batches: the next answer is on its way while the last one is decoded.

A leader that is known and answers well is asked on a wire (wire.py), which costs a fraction of the usual way; whatever
else happens is left to the usual way, which waits, retries, and looks for new leaders.

Invariant: every message of the span that the log has comes once, in order, or an error says what is missing. Where
messages have gone before they were read, that is an error that says so, unless losing them was allowed.
Driven by source.py, in Spark's tasks.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

import pyarrow as pa

from millpond.client.cluster import Cluster, Purpose
from millpond.client.offsets import EARLIEST, offsets_at
from millpond.client.refusals import NEW_LEADER_CODES, refusal
from millpond.client.view import Leader
from millpond.model.errors import BrokerUnreachable, NotLeader, OffsetOutOfRange
from millpond.model.ids import TopicPartition
from millpond.pipeline.decode import decode_in_parts
from millpond.pipeline.link import Link
from millpond.pipeline.planning import Span
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from millpond.protocol.records import HEADER_BYTES, LENGTH_END, parse_header

WAIT_MS: Final = 500
SAMPLE_BYTES: Final = 64 * 1024
OFFSET_BYTES_GUESSED: Final = 512
"""Until some were seen: with a record of more, a small span takes two fetches."""
_LENGTH_AT: Final = 8
_length_at: Final = Struct("!i").unpack_from


@dataclass(frozen=True, slots=True)
class Fetched:
    asked: int
    """From this offset on; the first batch may begin before it."""
    data: memoryview
    """Whole batches, back to back; empty where the log had none."""
    next_offset: int
    high_watermark: int


def read_span(
    link: Link, span: Span, *, columns: tuple[str, ...], fetch_bytes: int, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    reader = _SpanReader(link, span, fetch_bytes, fail_on_data_loss)
    for fetched in reader.answers():
        for batch in decode_in_parts(
            fetched.data,
            topic=span.at.topic,
            partition=span.at.partition,
            columns=columns,
            start=fetched.asked,
            end=span.end,
        ):
            if batch.num_rows:
                yield batch


class _SpanReader:
    def __init__(self, link: Link, span: Span, fetch_bytes: int, fail_on_data_loss: bool) -> None:
        self._link = link
        self._span = span
        self._fetch_bytes = fetch_bytes
        self._fail_on_data_loss = fail_on_data_loss
        self._offset_bytes = OFFSET_BYTES_GUESSED
        """What an offset takes on the wire, as far as is known: a small span asks for no more than it needs."""
        self._asked: int | None = None
        """The node that was asked for what comes next."""

    def answers(self) -> Iterator[Fetched]:
        """Each is good until the next one is asked for."""
        place, end = self._span.start, self._span.end
        try:
            self._ask(place)
            while place < end:
                try:
                    fetched = self._answer(place)
                except OffsetOutOfRange:
                    place = self._after_loss(place)
                    continue
                place = fetched.next_offset
                self._offset_bytes = max(1, len(fetched.data) // max(1, place - fetched.asked))
                self._ask(place)
                yield fetched
        finally:
            if self._asked is not None:
                self._link.cut_wire(self._asked)

    def _ask(self, place: int) -> None:
        """The leader, if it is known, for what comes at `place`; who fails here is asked again, in the usual way."""
        leader = self._link.cluster.view.leader_of(self._span.at)
        if place >= self._span.end or leader is None:
            return
        try:
            wire = self._link.wire(leader.node)
            if not wire.is_waiting:  # for another reader's answer
                wire.ask(_request(self._span.at, leader, place, self._bytes_max(place)))
                self._asked = leader.node
        except BrokerUnreachable:
            self._link.cut_wire(leader.node)

    def _bytes_max(self, place: int) -> int:
        return min(self._fetch_bytes, SAMPLE_BYTES + (self._span.end - place) * self._offset_bytes)

    def _answer(self, place: int) -> Fetched:
        node, self._asked = self._asked, None
        if node is not None:
            try:
                found = _found(self._link.wire(node).answer(FetchResponse), place)
                if isinstance(found, Fetched) and found.data:
                    return found
            except BrokerUnreachable:
                self._link.cut_wire(node)
        # Not what was hoped for: the usual way finds out why, and waits, or looks for another leader.
        work = fetch_some(self._link.cluster, self._span.at, place, self._fetch_bytes)
        return self._link.run(work)

    def _after_loss(self, place: int) -> int:
        """Where to go on; raises where nothing may be lost."""
        at, end = self._span.at, self._span.end
        first = self._link.offsets({at: EARLIEST})[at]
        went = min(first, end) if first > place else end
        reason = (
            f"it now begins at {first}: they were deleted by retention, or by hand, before they were read"
            if first > place
            else "its log ends before them: the topic was made anew, or a broker without them was elected"
        )
        if self._fail_on_data_loss:
            raise OffsetOutOfRange(
                f"{at}: the messages from offset {place} to {went - 1} are gone; {reason}. Keep more "
                "(retention.ms, retention.bytes) or read sooner; set failOnDataLoss to false to go on without them"
            )
        return went


async def fetch_some(cluster: Cluster, at: TopicPartition, offset: int, bytes_max: int) -> Fetched:
    """At least one batch from `offset` on; waits for one, since it was there when the span was planned."""

    async def fetch() -> Fetched:
        found = await _fetch_once(cluster, at, offset, bytes_max)
        if not found.data:
            # A new leader may not know yet how far consumers may read.
            raise NotLeader(f"{at}: offset {offset} was there, and now the log ends at {found.high_watermark}")
        return found

    try:
        return await cluster.retrying(fetch)
    except NotLeader as error:
        raise OffsetOutOfRange(str(error)) from None


async def _fetch_once(cluster: Cluster, at: TopicPartition, offset: int, bytes_max: int) -> Fetched:
    leader = cluster.view.leader_of(at)
    if leader is None:
        await cluster.refresh([at.topic])
        leader = cluster.view.leader_of(at)
    if leader is None:
        raise BrokerUnreachable(f"{at}: nobody leads it at the moment")
    request = _request(at, leader, offset, bytes_max)
    try:
        connection = await cluster.connection(leader.node, Purpose.DATA)
        seconds_max = cluster.settings.request_seconds_max
        answer = await connection.ask(request, FetchResponse, seconds_max=seconds_max)
    except BrokerUnreachable:
        cluster.forget_leader(at, leader.node)
        raise
    found = _found(answer, offset)
    if isinstance(found, Fetched):
        return found
    if found in NEW_LEADER_CODES:
        cluster.forget_leader(at, leader.node)
    raise refusal(found, None, of=str(at))


def _request(at: TopicPartition, leader: Leader, offset: int, bytes_max: int) -> FetchRequest:
    wish = FetchPartition(
        partition=at.partition,
        current_leader_epoch=leader.epoch,
        fetch_offset=offset,
        partition_max_bytes=bytes_max,
    )
    return FetchRequest(
        max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=bytes_max, topics=[FetchTopic(topic=at.topic, partitions=[wish])]
    )


def _found(answer: FetchResponse, offset: int) -> Fetched | int:
    """What was fetched, or the code that says why nothing was."""
    (part,) = answer.responses[0].partitions if answer.responses else (None,)
    code = answer.error_code or (part.error_code if part is not None else 0)
    if code or part is None:
        return code
    data, next_offset = _whole(memoryview(part.records or b""), offset)
    return Fetched(offset, data, next_offset, part.high_watermark)


def _whole(data: memoryview, offset: int) -> tuple[memoryview, int]:
    """The batches that came whole, and the offset after them: the last one tells it."""
    place, last, size = 0, -1, len(data)
    while place + HEADER_BYTES <= size:
        (length,) = _length_at(data, place + _LENGTH_AT)
        if length < 0 or place + LENGTH_END + length > size:
            break
        last, place = place, place + LENGTH_END + length
    return data[:place], offset if last < 0 else parse_header(data, last).next_offset


def bytes_per_offset(link: Link, starts: dict[TopicPartition, int]) -> dict[TopicPartition, float]:
    """Of the first messages from each start on: on the wire, as they are compressed.

    Where those are gone, of the first that are there: whether losing them is allowed is for who reads them to say.
    """

    async def sample(at: TopicPartition, start: int) -> tuple[TopicPartition, float]:
        try:
            found = await _fetch_once(link.cluster, at, start, SAMPLE_BYTES)
        except OffsetOutOfRange:
            first = (await offsets_at(link.cluster, {at: EARLIEST}))[at]
            found = await _fetch_once(link.cluster, at, first, SAMPLE_BYTES)
        base = parse_header(found.data).base_offset if found.data else start
        return at, len(found.data) / max(1, found.next_offset - base)

    async def sample_all() -> list[tuple[TopicPartition, float]]:
        return await asyncio.gather(*(sample(at, start) for at, start in starts.items()))

    return dict(link.run(link.cluster.retrying(sample_all)))
