"""/api/v1/queues/{topic}/dlq and /redrive: messages that no consumer of a group could use, and their way back.

A dead-letter topic is a topic: what was sent back stays there as long as the topic keeps it, and is not sent back
again. For that a redrive is a queue group of its own on it, one for each group and topic. It sends first, and
acknowledges then: where a broker fails in between, a message may be in its topic twice. Every group of the topic gets
what is sent back.
"""

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from millpond.api.http.forms import FORMS, INT32_MAX, Message, form_of_accept, shown
from millpond.api.http.problems import Refusal
from millpond.api.http.queue_messages import check, span
from millpond.api.http.reading import EARLIEST, Place
from millpond.api.http.receipts import draw_holder
from millpond.api.http.replies import Reply
from millpond.api.http.routes.queues import BYTES_MAX, Group, find_queue, ship
from millpond.api.http.routing import Call, Route
from millpond.api.http.services import Services
from millpond.api.http.shipment import Numbered
from millpond.broker.drivers.queue_links import Saying
from millpond.broker.drivers.queue_partition import KIND, Want
from millpond.broker.node import Node
from millpond.broker.operations import queues
from millpond.broker.operations.dead_letters import LETTER_TTL, PREFIX, SUFFIX
from millpond.core.delivery.delay_headers import ASKING, TOLD
from millpond.core.delivery.headers import TTL_MS, find
from millpond.core.delivery.states import Outcome
from millpond.core.metadata.image import Topic
from millpond.model.ids import TimestampMs, TopicPartition
from millpond.protocol.records import NewRecord, Record

LETTERS_DEFAULT: Final = 100
LETTERS_MAX: Final = 1_000
REDRIVE_MAX: Final = 10_000
AT_A_TIME: Final = 500
LOCK_MS: Final = 60_000
REDRIVES: Final = "millpond.redrive"
PAST: Final = ASKING | TOLD
"""Headers of a delay that is over."""

Letters = Annotated[int, span(1, LETTERS_MAX, description="Letters.")]
Redriven = Annotated[int, span(1, REDRIVE_MAX, description="Letters.")]
Cursor = Annotated[str, Meta(pattern="^[0-9]{1,10}[.][0-9]{1,18}$", examples=["0.0"])]
_CURSOR: Final = re.compile(r"([0-9]{1,10})\.([0-9]{1,18})")


class LettersQuery(Struct, forbid_unknown_fields=True):
    group: Group | None = None
    """Only letters of that group, from the dead-letter topic that it names."""
    count: Letters = LETTERS_DEFAULT
    after: Cursor | None = None
    """Goes on where the page before ended: its `next`."""


class Letter(Message, kw_only=True):
    message_id: str
    """Of the letter; `origin` is that of the message."""
    partition: int
    origin: str | None
    group: str | None
    attempts: int | None
    error: str | None


class LetterPage(Struct):
    topic: str
    """Where they are."""
    messages: list[Letter]
    next: str | None
    """None where there are no more now."""


class RedriveWish(Struct, forbid_unknown_fields=True):
    group: Group | None = None
    """Whose letters; of every group of the topic, where it is left out."""
    max: Redriven = REDRIVE_MAX


class Redrive(Struct):
    redriven: int


async def dlq(call: Call) -> Reply:
    services, query = call.services, call.query
    form = form_of_accept(call.request.headers.get(b"accept", b""))
    topic = find_queue(services.node, call.names["topic"])
    check("count", query.count, least=1, most=LETTERS_MAX)
    name = graveyard(services.node, topic.name, query.group)
    known = services.node.image.topics.get(name)
    page = LetterPage(name, [], None)
    partition, offset = _place(query.after)
    while known is not None and partition < len(known.partitions):
        at = TopicPartition(name, partition)
        first = await services.reading.offset_at(at, EARLIEST)
        reads = await services.reading.read(
            [Place(at, max(first, offset))], count=query.count - len(page.messages), wait_ms=0
        )
        if not reads:
            partition, offset = partition + 1, 0
            continue
        offset = reads[0].next_offset
        for record in reads[0].records:
            if _is_of(record, topic.name, query.group):
                page.messages.append(_letter(shown(form, record), record, at))
        if len(page.messages) >= query.count:
            page.next = f"{partition}.{offset}"
            break
    return Reply(200, form.value, msgspec.json.encode(page) + b"\n")


def graveyard(node: Node, topic: str, group: str | None) -> str:
    named = None if group is None else node.queues.config(group).dead_letter_topic
    return named or topic + SUFFIX


def _place(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    found = _CURSOR.fullmatch(cursor)
    if found is None or int(found[1]) > INT32_MAX:
        raise Refusal(400, "invalid_field", f"after is {cursor[:40]!r}; allowed is the `next` of a page", field="after")
    return int(found[1]), int(found[2])


def _told(record: Record, name: str) -> str | None:
    value = find(record.headers, PREFIX + name)
    return None if value is None else value.decode(errors="replace")


def _is_of(record: Record, topic: str, group: str | None) -> bool:
    return _told(record, "topic") == topic and (group is None or _told(record, "group") == group)


def _letter(message: Message, record: Record, at: TopicPartition) -> Letter:
    attempts = _told(record, "attempts")
    return Letter(
        message.offset,
        message.timestamp,
        message.key,
        message.value,
        message.headers,
        message.key_base64,
        message.value_base64,
        message_id=f"{at.topic}/{at.partition}/{record.offset}",
        partition=at.partition,
        origin=f"{_told(record, 'topic')}/{_told(record, 'partition')}/{_told(record, 'offset')}",
        group=_told(record, "group"),
        attempts=int(attempts) if attempts is not None and attempts.isdigit() else None,
        error=_told(record, "error"),
    )


async def redrive(call: Call) -> Redrive:
    services, wish = call.services, call.body
    node = services.node
    topic = find_queue(node, call.names["topic"])
    check("max", wish.max, least=1, most=REDRIVE_MAX)
    redriven = 0
    for group in [wish.group] if wish.group is not None else await _groups(node, topic):
        letters = node.image.topics.get(graveyard(node, topic.name, group))
        while letters is not None and redriven < wish.max:
            count = await _redrive_some(services, letters, topic, group, count_max=min(AT_A_TIME, wish.max - redriven))
            if count is None:
                break
            redriven += count
    return Redrive(redriven)


async def _groups(node: Node, topic: Topic) -> list[str]:
    return sorted({key.group for key in await node.states.find(KIND, topic_id=topic.topic_id)})


async def _redrive_some(services: Services, letters: Topic, topic: Topic, group: str, *, count_max: int) -> int | None:
    """None where there are no more. Letters that are another group's, or another topic's, are theirs to send back."""
    node = services.node
    redrives = f"{REDRIVES}.{group}.{topic.name}"
    want = Want(draw_holder(node.rng), count_max, BYTES_MAX, LOCK_MS)
    handed = await queues.receive(node, redrives, letters, want, wait_ms=0)
    taken = [(partition, record) for partition, records, _ in handed for record, _ in records]
    if not taken:
        return None
    leases = [queues.Lease(partition, record.offset, want.holder) for partition, record in taken]
    placed: dict[TopicPartition, list[Numbered]] = {}
    count = 0
    for _, record in taken:
        if _is_of(record, topic.name, group):
            placed.setdefault(_origin(services, record, topic), []).append((count, _unburied(record, services)))
            count += 1
    if count:
        shipment = await ship(services, placed, count=count)
        if shipment.errors:
            await queues.settle(node, redrives, letters, leases, Saying(Outcome.RELEASE, delay_ms=0))
            raise shipment.first_error
    failed = await queues.settle(node, redrives, letters, leases, Saying(Outcome.ACCEPT))
    if failed:
        raise next(iter(failed.values()))
    return count


def _origin(services: Services, record: Record, topic: Topic) -> TopicPartition:
    """By the key, else where it was."""
    number = _told(record, "partition")
    was = int(number) if record.key is None and number is not None and number.isdigit() else None
    return services.producing.place(topic.name, record.key, was if was is None or was < len(topic.partitions) else None)


def _unburied(record: Record, services: Services) -> NewRecord:
    kept = [each for each in record.headers if not each[0].startswith(PREFIX) and each[0] not in PAST]
    life = find(record.headers, LETTER_TTL)
    headers = tuple(kept if life is None else [*kept, (TTL_MS, life)])
    return NewRecord(record.value, record.key, TimestampMs(services.node.clock.wall_ms()), headers)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/queues/{topic}/dlq",
        summary="Read the dead letters of a queue",
        handler=dlq,
        query=LettersQuery,
        answer=LetterPage,
        gives=tuple(FORMS),
    ),
    Route(
        method="POST",
        path="/api/v1/queues/{topic}/redrive",
        summary="Send the dead letters of a group back to their topic",
        handler=redrive,
        body=RedriveWish,
        answer=Redrive,
    ),
)
