"""The partitions a consumer reads: where it is in each, what has been fetched, and what has been handed out.

    committed ≤ done ≤ position ≤ fetch_at
                 │        │          └ what to ask the broker for next
                 │        └ what to hand out next
                 └ everything before it has been dealt with, as far as is known

Messages of a `take` count as dealt with when the next one begins: by then the application came back for more. Whoever
works on messages in the background (processing.py) says itself what is done.

Invariant: messages of a partition are handed out in order, each once, unless somebody seeks. What was fetched for a
place that has been left meanwhile is dropped.
Pure. Batches stay as they came until they are handed out. Driven by consumer.py and fetcher.py.
"""

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from millpond.client.messages import Message
from millpond.model.errors import MillpondError
from millpond.model.ids import TopicPartition
from millpond.model.ports import Buffer
from millpond.protocol.records import LENGTH_END, decode_batch_as, parse_header

_MESSAGE: Final[Any] = partial(tuple.__new__, Message)
UNKNOWN: Final = -1


class Held:
    """One partition."""

    __slots__ = (
        "at", "buffered", "buffered_bytes", "done_to", "error", "fetch_at", "high_watermark", "index", "is_held",
        "is_paused", "messages", "next_offset", "not_before", "seek_time", "tail",
    )  # fmt: skip

    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self.tail = (at.topic, at.partition)
        self.fetch_at = UNKNOWN
        """UNKNOWN until it is found out where to begin."""
        self.next_offset = UNKNOWN
        """The position when `messages` are all handed out."""
        self.seek_time: int | None = None
        """To begin with the first message not older than this; below zero start or end, as ListOffsets has it."""
        self.is_paused = False
        self.is_held = True
        """Not given up, nor lost."""
        self.high_watermark = UNKNOWN
        self.not_before = 0.0
        self.error: MillpondError | None = None
        """To be raised to whoever polls next."""
        self.done_to: int | None = None
        """Said by somebody who works in the background; None where being handed out is enough."""
        self.messages: list[Message] = []
        self.index = 0
        """Of the next to be handed out of those."""
        self.buffered: deque[tuple[memoryview, int]] = deque()
        """Batches back to back, and the place of the next one to be decoded."""
        self.buffered_bytes = 0

    @property
    def position(self) -> int:
        """The offset to be handed out next; UNKNOWN where that has to be found out first."""
        return self.messages[self.index].offset if self.index < len(self.messages) else self.next_offset

    @property
    def has_some(self) -> bool:
        return self.index < len(self.messages) or bool(self.buffered)

    def seek(self, offset: int) -> None:
        self._drop()
        self.fetch_at = self.next_offset = offset
        self.seek_time = None

    def seek_to_time(self, timestamp: int) -> None:
        self._drop()
        self.fetch_at = self.next_offset = UNKNOWN
        self.seek_time = timestamp

    def _drop(self) -> None:
        self.messages, self.index = [], 0
        self.buffered.clear()
        self.buffered_bytes = 0
        self.error = None
        self.done_to = None

    def fetched(self, data: Buffer, *, asked: int, next_offset: int) -> None:
        """An answer to a fetch from `asked` on."""
        if asked == self.fetch_at and self.is_held:
            self.buffered.append((memoryview(data), 0))
            self.buffered_bytes += len(data)
            self.fetch_at = next_offset

    def decode(self) -> bool:
        """Makes messages of the next batch; False where there is none."""
        while self.buffered:
            data, place = self.buffered[0]
            header = parse_header(data, place)
            messages: list[Message] = []
            if not header.is_control:
                messages = decode_batch_as(_MESSAGE, self.tail, data, place)
            start, self.next_offset = self.next_offset, header.next_offset
            after = place + header.length + LENGTH_END
            if after < len(data):
                self.buffered[0] = (data, after)
            else:
                self.buffered.popleft()
                self.buffered_bytes -= len(data)
            if messages and messages[0].offset < start:
                messages = [each for each in messages if each.offset >= start]
            self.messages, self.index = messages, 0
            if self.messages:
                return True
        return False


class Positions:
    def __init__(self) -> None:
        self.held: dict[TopicPartition, Held] = {}
        self._turn: deque[Held] = deque()
        self._handed: dict[TopicPartition, int] = {}
        """The first offset handed out by the last `take`, by partition."""

    def hold(self, places: Iterable[TopicPartition]) -> list[Held]:
        """Begins to read these; those that are new."""
        new = [Held(at) for at in places if at not in self.held]
        self.held.update((each.at, each) for each in new)
        self._turn.extend(new)
        return new

    def release(self, places: Iterable[TopicPartition]) -> None:
        for at in places:
            gone = self.held.pop(at, None)
            if gone is not None:
                gone.is_held = False
                self._handed.pop(at, None)
        self._turn = deque(each for each in self._turn if each.is_held)

    @property
    def buffered_bytes(self) -> int:
        return sum(each.buffered_bytes for each in self.held.values())

    @property
    def has_some(self) -> bool:
        """Something that could be handed out now."""
        return any(each.has_some and not each.is_paused for each in self.held.values())

    # Handing out

    def settle(self) -> None:
        """What was handed out is dealt with: the application is back for more."""
        self._handed.clear()

    def take(self, messages_max: int) -> list[Message]:
        """Some messages, partition by partition in turn; none where none are there. Raises what a fetch came to."""
        taken: list[Message] = []
        for _ in range(len(self._turn)):
            held = self._turn[0]
            if not held.is_paused:
                if held.error is not None and not held.has_some and not taken:
                    error, held.error = held.error, None
                    raise error
                self._take_from(held, taken, messages_max)
                if len(taken) >= messages_max:
                    break
            self._turn.rotate(-1)
        return taken

    def _take_from(self, held: Held, taken: list[Message], messages_max: int) -> None:
        while len(taken) < messages_max and (held.index < len(held.messages) or held.decode()):
            room = messages_max - len(taken)
            part = held.messages[held.index : held.index + room]
            self._handed.setdefault(held.at, part[0].offset)
            held.index += len(part)
            taken += part

    def next_with_messages(self) -> Held | None:
        """The next partition in turn that has messages ready, for those who take them one by one."""
        for _ in range(len(self._turn)):
            held = self._turn[0]
            self._turn.rotate(-1)
            if not held.is_paused:
                if held.index < len(held.messages) or held.decode():
                    return held
                if held.error is not None:
                    error, held.error = held.error, None
                    raise error
        return None

    # Looking

    def done(self, *, one: Message | None = None) -> dict[TopicPartition, int]:
        """Up to where each partition is dealt with, for committing; `one` is a message that is being worked on."""
        found: dict[TopicPartition, int] = {}
        for at, held in self.held.items():
            if held.done_to is not None:
                found[at] = held.done_to
            elif one is not None and at == one.at:
                found[at] = one.offset
            elif (done := self._handed.get(at, held.position)) != UNKNOWN:
                found[at] = done
        return found

    def handed(self) -> dict[TopicPartition, int]:
        """Up to where each partition was handed out."""
        return {at: held.position for at, held in self.held.items() if held.position != UNKNOWN}
