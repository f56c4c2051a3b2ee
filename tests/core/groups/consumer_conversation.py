"""Conversations with a consumer group, written down as text.

    > ana joins
      note MemberJoined ana
      ana <- epoch 1, has a0 a1, next in 700 ms

A client here does what it is told at once: it owns what it was assigned, and says so with its next heartbeat.
Partitions are written as the first letter of their topic and a number.
"""

from dataclasses import dataclass, field

from millpond.core.groups.classic_events import Tick
from millpond.core.groups.consumer import ConsumerGroup
from millpond.core.groups.consumer_events import (
    AWAY,
    JOINING,
    LEAVING,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Topic,
    TopicsChanged,
)
from millpond.core.groups.effects import Effect, Noted, Persist, Reply, Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import (
    ConsumerGroupRecord,
    ConsumerMemberForgotten,
    ConsumerMemberRecord,
    Record,
    TopicIdPartition,
)
from millpond.core.groups.settings import GroupSettings
from tests.core.groups.conversation import Ids, instant, noted


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def topics(**sizes: int) -> dict[str, Topic]:
    return {name: Topic(topic_id(name), size) for name, size in sizes.items()}


def written(partitions: frozenset[TopicIdPartition]) -> str:
    return " ".join(f"{chr(each.topic_id[0])}{each.partition}" for each in sorted(partitions)) or "nothing"


@dataclass
class Consumer:
    member_id: str
    epoch: int = 0
    instance_id: str | None = None
    owned: frozenset[TopicIdPartition] = frozenset()
    told: bool = True
    """Whether the coordinator has heard what it owns now."""


@dataclass
class ConsumerConversation:
    topics: dict[str, Topic]
    settings: GroupSettings = field(default_factory=GroupSettings)
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.ids = Ids()
        self.group = ConsumerGroup("g", self.settings, self.ids, self.topics, now=instant(0))
        self.consumers: dict[str, Consumer] = {}
        self.lines: list[str] = []
        self.tokens = 0
        self.kept: dict[str, ConsumerMemberRecord] = {}
        self.kept_group: ConsumerGroupRecord | None = None

    def consumer(self, name: str) -> Consumer:
        return self.consumers.setdefault(name, Consumer(name))

    def join(self, name: str, *names: str, regex: str | None = None, assignor: str | None = None) -> GroupError:
        consumer = self.consumer(name)
        return self._say(
            f"{name} joins",
            consumer,
            member_epoch=JOINING,
            instance_id=consumer.instance_id,
            rebalance_timeout_ms=30_000,
            topics=None if regex else frozenset(names or self.topics),
            regex=regex,
            assignor=assignor,
            owned=frozenset(),
        )

    def beat(self, name: str, *, epoch: int | None = None, **more: object) -> GroupError:
        """A heartbeat; the consumer says what it owns where that has changed."""
        consumer = self.consumer(name)
        said = consumer.epoch if epoch is None else epoch
        more = {"owned": None if consumer.told else consumer.owned, **more}
        has = more["owned"]
        rest = f", has {written(has)}" if isinstance(has, frozenset) else ""
        return self._say(f"{name} heartbeats in {said}{rest}", consumer, member_epoch=said, **more)

    def silent_beat(self, name: str) -> GroupError:
        """A heartbeat while it still works on giving up what it was told to."""
        return self.beat(name, owned=None)

    def leave(self, name: str, *, back_soon: bool = False) -> GroupError:
        consumer = self.consumer(name)
        said = f"{name} leaves" + (", and will be back" if back_soon else "")
        epoch = AWAY if back_soon else LEAVING
        error = self._say(said, consumer, member_epoch=epoch, instance_id=consumer.instance_id)
        if not back_soon:
            del self.consumers[name]
        return error

    def settle(self) -> None:
        """Heartbeats all around, until nobody is told anything new."""
        for _ in range(10):
            before = {name: (each.epoch, each.owned, each.told) for name, each in self.consumers.items()}
            for name in before:
                self.beat(name)
            if before == {name: (each.epoch, each.owned, each.told) for name, each in self.consumers.items()}:
                return
        raise AssertionError("it does not settle")

    def change_topics(self, **sizes: int) -> None:
        self.lines.append(f"> topics are now {sizes}")
        self.topics = topics(**sizes)
        self._hear(self.group.step(TopicsChanged(self.topics), now=instant(self.now_ms)))

    def wait(self, ms: int) -> None:
        until = self.now_ms + ms
        self.lines.append(f"> {ms} ms pass")
        while (due := self.group.next_deadline) is not None and due <= until:
            self.now_ms = max(due, self.now_ms)
            effects = self.group.step(Tick(), now=instant(self.now_ms))
            if effects:
                self.lines.append(f"  at {self.now_ms} ms")
            self._hear(effects)
        self.now_ms = until

    def restart(self) -> None:
        assert self.kept_group is not None
        self.lines.append("> the coordinator restarts")
        self.group = ConsumerGroup.restore(
            self.kept_group, self.kept.values(), self.settings, self.ids, self.topics, now=instant(self.now_ms)
        )

    def read(self) -> str:
        text, self.lines = "\n".join(self.lines), []
        return text

    def _say(self, what: str, consumer: Consumer, **said: object) -> GroupError:
        self.lines.append(f"> {what}")
        self.tokens += 1
        event = ConsumerHeartbeat(
            token=Token(self.tokens),
            member_id=consumer.member_id,
            client_id="client",
            **said,  # type: ignore[arg-type]
        )
        result = self._hear(self.group.step(event, now=instant(self.now_ms)))
        assert result is not None, "a heartbeat is answered in its own step"
        if result.error is GroupError.NONE:
            consumer.member_id, consumer.epoch = result.member_id, result.member_epoch
            consumer.told = True
            if result.assignment is not None:
                consumer.told = result.assignment == consumer.owned
                consumer.owned = result.assignment
        owner = next(name for name, each in self.consumers.items() if each is consumer)
        self.lines.append(f"  {owner} <- {heard(result)}")
        return result.error

    def _hear(self, effects: list[Effect]) -> ConsumerHeartbeatResult | None:
        answer: ConsumerHeartbeatResult | None = None
        for effect in effects:
            match effect:
                case Reply(_, result):
                    assert isinstance(result, ConsumerHeartbeatResult)
                    answer = result
                case Persist(record):
                    self._keep(record)
                case Noted(fact):
                    self.lines.append(f"  note {noted(fact)}")
        return answer

    def _keep(self, record: Record) -> None:
        match record:
            case ConsumerGroupRecord():
                self.kept_group = record
                self.lines.append(f"  keep epoch {record.epoch}")
            case ConsumerMemberRecord():
                self.kept[record.member_id] = record
                revoking = f", gives up {written(record.revoking)}" if record.revoking else ""
                self.lines.append(
                    f"  keep {record.member_id} in {record.epoch}: has {written(record.assigned)}{revoking}, "
                    f"should have {written(record.target)}"
                )
            case ConsumerMemberForgotten():
                del self.kept[record.member_id]
                self.lines.append(f"  forget {record.member_id}")
            case _:
                raise AssertionError(record)


def heard(result: ConsumerHeartbeatResult) -> str:
    if result.error is not GroupError.NONE:
        return f"{result.error.name}: {result.message}"
    has = f", has {written(result.assignment)}" if result.assignment is not None else ""
    interval = f", next in {result.heartbeat_interval_ms} ms" if result.member_epoch >= 0 else ""
    return f"epoch {result.member_epoch}{has}{interval}"
