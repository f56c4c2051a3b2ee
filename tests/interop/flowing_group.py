"""A group of confluent-kafka members, each in its thread, under a steady flow of messages; and all that happened.

Every member commits what it read before it asks for more. What it read and could not commit is its uncommitted tail,
the only thing somebody else may read again.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.interop.confluent import Reachable, new_consumer, new_producer
from tests.interop.facts import FACT_SECONDS_MAX, until

ASSIGNED, REVOKED, LOST = "assigned", "revoked", "lost"
READ_MAX = 200
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Move:
    member: str
    kind: str
    partition: int


@dataclass
class Story:
    """Of one group. Appended to by the members' threads, each append whole."""

    moves: list[Move] = field(default_factory=list)
    read: Counter[bytes] = field(default_factory=Counter)
    uncommitted: set[bytes] = field(default_factory=set)
    refusals: Counter[str] = field(default_factory=Counter)
    """Of commits, by the error's name."""
    errors: list[object] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def owners(self) -> dict[int, str]:
        owned: dict[int, str] = {}
        for move in list(self.moves):
            if move.kind == ASSIGNED:
                owned[move.partition] = move.member
            elif owned.get(move.partition) == move.member:
                del owned[move.partition]
        return owned

    def shares(self) -> dict[str, int]:
        return dict(Counter(self.owners().values()))


class Member:
    def __init__(self, broker: Reachable, name: str, topic: str, story: Story, **settings: object) -> None:
        self.name = name
        self._topic = topic
        self._story = story
        self._leave = threading.Event()
        self._tails: dict[int, set[bytes]] = {}
        """By partition, what was read since its last commit that was kept."""
        self._consumer = new_consumer(broker, client_id=name, **settings)
        self._consumer.subscribe(
            [topic], on_assign=self._told(ASSIGNED), on_revoke=self._told(REVOKED), on_lost=self._told(LOST)
        )
        self._thread = threading.Thread(target=self._read, name=name)
        self._thread.start()

    def _told(self, kind: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        def on_move(_: Consumer, partitions: list[TopicPartition]) -> None:
            self._story.moves.extend(Move(self.name, kind, each.partition) for each in partitions)

        return on_move

    def leave(self) -> None:
        self._leave.set()
        self._thread.join(FACT_SECONDS_MAX)
        assert not self._thread.is_alive(), f"{self.name} cannot leave"

    def _read(self) -> None:
        while not self._leave.is_set():
            messages = self._consumer.consume(READ_MAX, POLL_SECONDS)
            if messages:
                self._take(messages)
        self._consumer.close()
        with self._story.lock:
            self._story.uncommitted.update(*self._tails.values())

    def _take(self, messages: list[Message]) -> None:
        good = [message for message in messages if message.error() is None]
        with self._story.lock:
            self._story.errors += [message.error() for message in messages if message.error()]
            self._story.read.update(_value(message) for message in good)
        ends: dict[int, TopicPartition] = {}
        for message in good:
            number, offset = message.partition(), message.offset()
            assert number is not None
            assert offset is not None
            assert self._topic == message.topic()
            self._tails.setdefault(number, set()).add(_value(message))
            ends[number] = TopicPartition(self._topic, number, offset + 1)
        for number in self._committed(list(ends.values())):
            del self._tails[number]

    def _committed(self, ends: list[TopicPartition]) -> list[int]:
        """The partitions whose offset was kept. In the middle of a rebalance that may be none, and is no error."""
        try:
            kept = self._consumer.commit(offsets=ends, asynchronous=False)
        except KafkaException as error:
            self._story.refusals[error.args[0].name()] += 1
            return []
        return [each.partition for each in kept if each.error is None]


def _value(message: Message) -> bytes:
    value = message.value()
    assert isinstance(value, bytes)
    return value


class Flow:
    """Numbered messages over all partitions, until it is told to stop; every one acknowledged."""

    def __init__(self, broker: Reachable, topic: str, *, partitions: int) -> None:
        self._producer = new_producer(broker, enable_idempotence=True)
        self._topic = topic
        self._partitions = partitions
        self._stop = threading.Event()
        self.acknowledged: list[bytes] = []
        self.errors: list[object] = []
        self._thread = threading.Thread(target=self._send, name="flow")
        self._thread.start()

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            for _ in range(10):
                self._producer.produce(
                    self._topic, b"%d" % number, partition=number % self._partitions, on_delivery=self._on_delivery
                )
                number += 1
            self._producer.poll(0.01)
        self._producer.flush(FACT_SECONDS_MAX)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error:
            self.errors.append(error)
        else:
            self.acknowledged.append(_value(message))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(FACT_SECONDS_MAX)
        assert not self._thread.is_alive(), "the flow cannot stop"


def seconds_until_shared(story: Story, wanted: dict[str, int], *, began: float) -> float:
    """Since `began`, a monotonic time: a leaving member's own goodbye counts too."""
    for _ in until(lambda: story.shares() == wanted, what=f"shares are {wanted}, they are {story.shares()}"):
        _PAUSE.wait(0.005)
    return time.monotonic() - began


def wait_read(story: Story, flow: Flow) -> None:
    for _ in until(lambda: len(story.read) >= len(flow.acknowledged), what="everything is read"):
        _PAUSE.wait(0.005)


_PAUSE = threading.Event()
"""Never set; waiting for it lets the members' threads run."""
