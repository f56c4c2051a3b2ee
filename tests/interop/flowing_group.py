"""A group of confluent-kafka members, each in its thread, under a steady flow of messages; and all that happened.

Every member commits what it read before it asks for more. What it read and could not commit is its uncommitted tail,
the only thing somebody else may read again.
"""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.interop.broker_process import BrokerProcess
from tests.interop.confluent import new_consumer, new_producer
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
    def __init__(self, broker: BrokerProcess, name: str, topic: str, story: Story, **settings: object) -> None:
        self.name = name
        self._story = story
        self._leave = threading.Event()
        self._consumer = new_consumer(broker, client_id=name, **settings)
        self._consumer.subscribe(
            [topic], on_assign=self._told(ASSIGNED), on_revoke=self._told(REVOKED), on_lost=self._told(LOST)
        )
        self._thread = threading.Thread(target=self._read, name=name)
        self._thread.start()

    def _told(self, kind: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
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

    def _take(self, messages):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        good = [message for message in messages if message.error() is None]
        values = [message.value() for message in good]
        with self._story.lock:
            self._story.errors += [message.error() for message in messages if message.error()]
            self._story.read.update(values)
        ends = {message.partition(): message.offset() + 1 for message in good}
        try:
            kept = self._consumer.commit(
                offsets=[TopicPartition(good[0].topic(), number, end) for number, end in ends.items()],
                asynchronous=False,
            )
            refused = any(each.error for each in kept)
        except KafkaException:
            refused = True
        if refused:
            with self._story.lock:
                self._story.uncommitted.update(values)


class Flow:
    """Numbered messages over all partitions, until it is told to stop; every one acknowledged."""

    def __init__(self, broker: BrokerProcess, topic: str, *, partitions: int) -> None:
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

    def _on_delivery(self, error, message) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        if error:
            self.errors.append(error)
        else:
            self.acknowledged.append(message.value())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(FACT_SECONDS_MAX)
        assert not self._thread.is_alive(), "the flow cannot stop"


def seconds_until_shared(story: Story, wanted: dict[str, int]) -> float:
    began = time.monotonic()
    for _ in until(lambda: story.shares() == wanted, what=f"shares are {wanted}, they are {story.shares()}"):
        _PAUSE.wait(0.005)
    return time.monotonic() - began


_PAUSE = threading.Event()
"""Never set; waiting for it lets the members' threads run."""
