"""Messages that no consumer of a group could use, read page by page, and their way back.

A dead-letter topic is a topic: what was sent back stays there as long as the topic keeps it, and is neither shown nor
sent back again. For that a redrive is a queue group of its own on it, one for each group and topic, that goes by
offset. It sends first, and acknowledges then: where a broker fails in between, a message may be in its topic twice.
Every group of the topic gets what is sent back.
Driven by the doors, on the broker's loop.
"""

import re
from typing import Final, NamedTuple

from millpond.api.anywhere.producing import Producing
from millpond.api.anywhere.queues import BYTES_MAX, check_group, find_queue, ship
from millpond.api.anywhere.reading import EARLIEST, Place, Reading
from millpond.api.anywhere.receipts import draw_holder
from millpond.api.anywhere.refusals import check, wrong
from millpond.api.anywhere.shipment import Numbered
from millpond.broker.drivers.queue_links import Saying
from millpond.broker.drivers.queue_partition import Want
from millpond.broker.node import Node
from millpond.broker.operations import queues
from millpond.broker.operations.dead_letters import LETTER_TTL, PREFIX
from millpond.core.delivery.delay_headers import ASKING, TOLD
from millpond.core.delivery.headers import TTL_MS, find
from millpond.core.delivery.states import Outcome
from millpond.core.metadata.group_configs import REDRIVES, graveyard_of
from millpond.core.metadata.image import Topic
from millpond.model.ids import TimestampMs, TopicPartition
from millpond.protocol.records import NewRecord, Record

LETTERS_DEFAULT: Final = 100
LETTERS_MAX: Final = 1_000
REDRIVE_MAX: Final = 10_000
AT_A_TIME: Final = 500
LOCK_MS: Final = 60_000
PAST: Final = ASKING | TOLD
"""Headers of a delay that is over."""
CURSOR: Final = "[0-9]{1,10}[.][0-9]{1,18}"
_PARTITION_MAX: Final = 2**31 - 1


class Letter(NamedTuple):
    at: TopicPartition
    """Where the letter is; `origin` is where the message was."""
    record: Record
    origin: str
    group: str | None
    attempts: int | None
    error: str | None

    @property
    def message_id(self) -> str:
        return f"{self.at.topic}/{self.at.partition}/{self.record.offset}"


class Page(NamedTuple):
    topic: str
    """Where they are, but for those of groups that name another."""
    letters: list[Letter]
    next: str | None
    """None where there are no more now."""


async def page(node: Node, reading: Reading, name: str, group: str | None, *, count: int, after: str | None) -> Page:
    """Only letters of that group, from the dead-letter topic that it names, where a group is given; of all, those that
    were not sent back."""
    topic = find_queue(node, name)
    check("count", count, least=1, most=LETTERS_MAX)
    where = _graveyard(node, topic.name, group)
    places = await _places(node, topic, group)
    letters: list[Letter] = []
    sent_back: dict[tuple[str, str], dict[int, int]] = {}
    number, offset = _place(after)
    while number < len(places):
        yard, partition = places[number]
        at = TopicPartition(yard.name, partition)
        first = await reading.offset_at(at, EARLIEST)
        reads = await reading.read([Place(at, max(first, offset))], count=LETTERS_MAX, wait_ms=0)
        if not reads:
            number, offset = number + 1, 0
            continue
        offset = reads[0].next_offset
        for letter in [_letter(at, record) for record in reads[0].records if _is_of(record, topic.name, group)]:
            whose = (yard.name, letter.group or "")
            if whose not in sent_back:
                sent_back[whose] = await _sent_back(node, yard, topic, whose[1])
            if letter.record.offset >= sent_back[whose].get(partition, 0):
                letters.append(letter)
                if len(letters) == count:
                    return Page(where, letters, f"{number}.{letter.record.offset + 1}")
    return Page(where, letters, None)


async def _places(node: Node, topic: Topic, group: str | None) -> list[tuple[Topic, int]]:
    """Partitions with letters of the group, or of all groups, those of the topic's own dead-letter topic first."""
    groups = [group] if group is not None else [None, *await queues.groups(node, topic)]
    names = dict.fromkeys(_graveyard(node, topic.name, each) for each in groups)
    yards = [node.image.topics[each] for each in names if each in node.image.topics]
    return [(yard, partition) for yard in yards for partition in range(len(yard.partitions))]


async def _sent_back(node: Node, letters: Topic, topic: Topic, group: str) -> dict[int, int]:
    """By partition, before which offset all letters of the group were sent back."""
    return {each.partition: each.start for each in await queues.depths(node, _redrives(group, topic), letters)}


def _redrives(group: str, topic: Topic) -> str:
    return f"{REDRIVES}{group}.{topic.name}"


def _graveyard(node: Node, topic: str, group: str | None) -> str:
    return graveyard_of(topic, None if group is None else node.queues.config(group))


def _place(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    if re.fullmatch(CURSOR, cursor) is None or int(cursor.partition(".")[0]) > _PARTITION_MAX:
        raise wrong("after", f"after is {cursor[:40]!r}; allowed is the `next` of a page")
    partition, _, offset = cursor.partition(".")
    return int(partition), int(offset)


def _told(record: Record, name: str) -> str | None:
    value = find(record.headers, PREFIX + name)
    return None if value is None else value.decode(errors="replace")


def _is_of(record: Record, topic: str, group: str | None) -> bool:
    return _told(record, "topic") == topic and (group is None or _told(record, "group") == group)


def _letter(at: TopicPartition, record: Record) -> Letter:
    attempts = _told(record, "attempts")
    return Letter(
        at,
        record,
        origin=f"{_told(record, 'topic')}/{_told(record, 'partition')}/{_told(record, 'offset')}",
        group=_told(record, "group"),
        attempts=int(attempts) if attempts is not None and attempts.isdigit() else None,
        error=_told(record, "error"),
    )


async def redrive(node: Node, producing: Producing, name: str, group: str | None, *, count_max: int) -> int:
    """How many were sent back; of every group of the topic, where none is named."""
    topic = find_queue(node, name)
    check("max", count_max, least=1, most=REDRIVE_MAX)
    redriven = 0
    for each in [group] if group is not None else await queues.groups(node, topic):
        check_group(each)
        letters = node.image.topics.get(_graveyard(node, topic.name, each))
        while letters is not None and redriven < count_max:
            at_a_time = min(AT_A_TIME, count_max - redriven)
            count = await _redrive_some(node, producing, letters, topic, each, count_max=at_a_time)
            if count is None:
                break
            redriven += count
    return redriven


async def _redrive_some(
    node: Node, producing: Producing, letters: Topic, topic: Topic, group: str, *, count_max: int
) -> int | None:
    """None where there are no more. Letters that are another group's, or another topic's, are theirs to send back."""
    redrives = _redrives(group, topic)
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
            unburied = _unburied(record, now_ms=node.clock.wall_ms())
            placed.setdefault(_origin(producing, record, topic), []).append((count, unburied))
            count += 1
    if count:
        shipment = await ship(producing, placed, count=count)
        if shipment.errors:
            await queues.settle(node, redrives, letters, leases, Saying(Outcome.RELEASE, delay_ms=0))
            raise shipment.first_error
    failed = await queues.settle(node, redrives, letters, leases, Saying(Outcome.ACCEPT))
    if failed:
        raise next(iter(failed.values()))
    return count


def _origin(producing: Producing, record: Record, topic: Topic) -> TopicPartition:
    """By the key, else where it was."""
    number = _told(record, "partition")
    was = int(number) if record.key is None and number is not None and number.isdigit() else None
    return producing.place(topic.name, record.key, was if was is None or was < len(topic.partitions) else None)


def _unburied(record: Record, *, now_ms: int) -> NewRecord:
    kept = [each for each in record.headers if not each[0].startswith(PREFIX) and each[0] not in PAST]
    life = find(record.headers, LETTER_TTL)
    headers = tuple(kept if life is None else [*kept, (TTL_MS, life)])
    return NewRecord(record.value, record.key, TimestampMs(now_ms), headers)
