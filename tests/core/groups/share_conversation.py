"""Conversations with a share group, written down as text, as those with consumer groups are.

> ana joins
  note MemberJoined ana
  ana <- epoch 1, reads a0 a1, next in 1000 ms
"""

from dataclasses import dataclass, field

from millpond.core.groups.classic_events import Tick
from millpond.core.groups.consumer_events import JOINING, LEAVING, Topic, TopicsChanged
from millpond.core.groups.effects import Effect, Noted, Persist, Reply, Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import (
    Record,
    ShareGroupRecord,
    ShareMemberForgotten,
    ShareMemberRecord,
    TopicIdPartition,
)
from millpond.core.groups.settings import GroupSettings, Pace, Paces
from millpond.core.groups.share import ShareGroup
from millpond.core.groups.share_events import ShareEvent, ShareHeartbeat, ShareHeartbeatResult
from tests.core.groups.consumer_conversation import topics, written
from tests.core.groups.conversation import instant, noted


@dataclass
class Reader:
    epoch: int = 0
    reads: frozenset[TopicIdPartition] = frozenset()


@dataclass
class ShareConversation:
    topics: dict[str, Topic]
    settings: GroupSettings = field(default_factory=GroupSettings)
    pace: Pace = Paces().share
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.group = ShareGroup("g", self.settings, lambda _: Paces(share=self.pace), self.topics, now=instant(0))
        self.readers: dict[str, Reader] = {}
        self.lines: list[str] = []
        self.tokens = 0
        self.kept: dict[str, ShareMemberRecord] = {}
        self.kept_group: ShareGroupRecord | None = None

    def join(self, name: str, *names: str) -> GroupError:
        return self.say(f"{name} joins", name, member_epoch=JOINING, topics=frozenset(names or self.topics)).error

    def beat(self, name: str, *, epoch: int | None = None, topics: frozenset[str] | None = None) -> GroupError:
        said = self.readers.setdefault(name, Reader()).epoch if epoch is None else epoch
        return self.say(f"{name} heartbeats in {said}", name, member_epoch=said, topics=topics).error

    def leave(self, name: str) -> GroupError:
        return self.say(f"{name} leaves", name, member_epoch=LEAVING).error

    def change_topics(self, **sizes: int) -> None:
        self.lines.append(f"> topics are now {sizes}")
        self.topics = topics(**sizes)
        self.hear(TopicsChanged(self.topics))

    def wait(self, ms: int) -> None:
        until = self.now_ms + ms
        self.lines.append(f"> {ms} ms pass")
        while (due := self.group.next_deadline) is not None and due <= until:
            self.now_ms = max(due, self.now_ms)
            self.hear(Tick())
        self.now_ms = until

    def restart(self) -> None:
        assert self.kept_group is not None
        self.lines.append("> the coordinator restarts")
        self.group = ShareGroup.restore(
            self.kept_group,
            self.kept.values(),
            self.settings,
            lambda _: Paces(share=self.pace),
            self.topics,
            now=instant(self.now_ms),
        )

    def read(self) -> str:
        text, self.lines = "\n".join(self.lines), []
        return text

    def say(self, what: str, name: str, *, is_lost: bool = False, **said: object) -> ShareHeartbeatResult:
        """With `is_lost`, the answer never comes."""
        self.lines.append(f"> {what}")
        self.tokens += 1
        event = ShareHeartbeat(token=Token(self.tokens), member_id=name, client_id="client", **said)  # type: ignore[arg-type]
        (reply,) = [each.result for each in self.hear(event) if isinstance(each, Reply)]
        assert isinstance(reply, ShareHeartbeatResult)
        if is_lost:
            self.lines.append(f"  {name} hears nothing")
            return reply
        reader = self.readers.setdefault(name, Reader())
        if reply.error is GroupError.NONE:
            reader.epoch = max(reply.member_epoch, 0)
            reader.reads = reader.reads if reply.assignment is None else reply.assignment
        elif reply.error in {GroupError.FENCED_MEMBER_EPOCH, GroupError.UNKNOWN_MEMBER_ID}:
            reader.epoch, reader.reads = 0, frozenset()
        self.lines.append(f"  {name} <- {heard(reply)}")
        return reply

    def hear(self, event: ShareEvent) -> list[Effect]:
        effects = self.group.step(event, now=instant(self.now_ms))
        for effect in effects:
            match effect:
                case Persist(record):
                    self._keep(record)
                case Noted(fact):
                    self.lines.append(f"  note {noted(fact)}")
                case Reply():
                    pass
        return effects

    def _keep(self, record: Record) -> None:
        match record:
            case ShareGroupRecord():
                self.kept_group = record
                self.lines.append(f"  keep epoch {record.epoch}")
            case ShareMemberRecord():
                self.kept[record.member_id] = record
                self.lines.append(
                    f"  keep {record.member_id} in {record.epoch}: reads {written(record.assigned)}, "
                    f"should read {written(record.target)}"
                )
            case ShareMemberForgotten():
                del self.kept[record.member_id]
                self.lines.append(f"  forget {record.member_id}")
            case _:
                raise AssertionError(record)


def heard(result: ShareHeartbeatResult) -> str:
    if result.error is not GroupError.NONE:
        return f"{result.error.name}: {result.message}"
    reads = f", reads {written(result.assignment)}" if result.assignment is not None else ""
    interval = f", next in {result.heartbeat_interval_ms} ms" if result.member_epoch >= 0 else ""
    return f"epoch {result.member_epoch}{reads}{interval}"
