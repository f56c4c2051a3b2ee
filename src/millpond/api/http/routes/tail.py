"""GET /api/v1/topics/{topic}/tail: messages as they come, as server-sent events.

    id: 2:17
    data: {"offset": 17, ..., "topic": "orders", "partition": 2}

Begins at the end, or where `offset` or `timestamp` say. Whoever comes back with `Last-Event-ID` goes on behind that
message in its partition. While nothing comes, a comment says every ALIVE_MS that the connection lives.
"""

from collections.abc import AsyncIterator
from typing import Final

import msgspec
from msgspec import Struct

from millpond.api.anywhere.reading import Place, Read
from millpond.api.anywhere.refusals import Refusal
from millpond.api.http.forms import Form, Partition, Timestamp, form_of_accept, shown_placed
from millpond.api.http.replies import Reply
from millpond.api.http.routes.consume import Start, start_of
from millpond.api.http.routing import Call, Route
from millpond.api.http.services import Services
from millpond.model.errors import MillpondError
from millpond.model.ids import TopicPartition

EVENT_STREAM: Final = "text/event-stream"
ALIVE_MS: Final = 15_000
MESSAGES_PER_READ: Final = 500
FAILURES_MAX: Final = 3


class TailQuery(Struct, forbid_unknown_fields=True):
    partition: Partition | None = None
    """All of them, where it is left out."""
    offset: Start | None = None
    """The latest, where neither this nor a timestamp is given."""
    timestamp: Timestamp | None = None


async def tail(call: Call) -> Reply:
    query, reading = call.query, call.services.reading
    name = call.names["topic"]
    reading.check(TopicPartition(name, query.partition or 0))
    if query.offset is not None and query.timestamp is not None:
        raise Refusal(400, "invalid_field", "offset and timestamp are both given; leave one out", field="timestamp")
    count = len(call.services.node.image.topics[name].partitions)
    numbers = range(count) if query.partition is None else (query.partition,)
    offset = query.offset or ("latest" if query.timestamp is None else None)
    positions = {
        (at := TopicPartition(name, number)): await start_of(reading, at, offset, query.timestamp) for number in numbers
    }
    positions |= _last_seen(name, call.request.headers.get(b"last-event-id", b""), positions)
    accept = call.request.headers.get(b"accept", b"")
    form = Form.TEXT if EVENT_STREAM.encode() in accept else form_of_accept(accept)
    is_whole = query.partition is None
    return Reply(200, EVENT_STREAM, stream=_events(call.services, name, positions, form, is_whole=is_whole))


def _last_seen(name: str, event_id: bytes, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    number, colon, offset = event_id.partition(b":")
    if not colon or not number.isdigit() or not offset.isdigit() or len(number) > 9 or len(offset) > 18:
        return {}
    at = TopicPartition(name, int(number))
    return {at: int(offset) + 1} if at in positions else {}


async def _events(
    services: Services, name: str, positions: dict[TopicPartition, int], form: Form, *, is_whole: bool
) -> AsyncIterator[bytes]:
    """Ends, with a reason, when the topic is gone or cannot be read; and when the broker stops."""
    failures, partitions = 0, services.node.partitions
    yield b": tailing\n\n"
    while not partitions.lets_go:
        topic = services.node.image.topics.get(name)
        if topic is not None and is_whole:  # it may have grown
            positions |= {TopicPartition(name, new): 0 for new in range(len(positions), len(topic.partitions))}
        places = [Place(at, offset) for at, offset in positions.items()]
        try:
            reads = await services.reading.read(places, count=MESSAGES_PER_READ, wait_ms=ALIVE_MS)
            failures = 0
        except MillpondError as error:
            failures += 1
            if not error.retriable or failures > FAILURES_MAX:
                yield b"event: problem\ndata: %b\n\n" % msgspec.json.encode({"detail": str(error)})
                return
            continue
        positions |= {read.at: read.next_offset for read in reads}
        # Who was served goes to the end of the line, so that one busy partition does not keep the others waiting.
        for read in reads:
            positions[read.at] = positions.pop(read.at)
        if reads or not partitions.lets_go:
            yield b"".join([_event(form, read) for read in reads]) or b": alive\n\n"


def _event(form: Form, read: Read) -> bytes:
    return b"".join(
        b"id: %d:%d\ndata: %b\n\n"
        % (read.at.partition, record.offset, msgspec.json.encode(shown_placed(form, record, *read.at)))
        for record in read.records
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/topics/{topic}/tail",
        summary="Messages as they come, as server-sent events",
        handler=tail,
        query=TailQuery,
        gives=(EVENT_STREAM,),
    ),
)
