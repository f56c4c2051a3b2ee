"""A registry with the driver it would have: time that passes, a log that is kept, clients that ask."""

import random
from dataclasses import replace

from millpond.core.groups.classic_events import (
    JoinGroup,
    JoinResult,
    LeaveGroup,
    Leaving,
    SyncGroup,
    SyncResult,
    Tick,
)
from millpond.core.groups.consumer_events import ConsumerHeartbeat, ConsumerHeartbeatResult, TopicsChanged
from millpond.core.groups.effects import Effect, Persist, Reply, Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.offsets import (
    CommitOffsets,
    FetchedOffsets,
    FetchOffsets,
    OffsetToCommit,
    PartitionErrors,
)
from millpond.core.groups.offsets_format import KeyValue, decode, encode
from millpond.core.groups.records import Record
from millpond.core.groups.registry import ForGroup, GroupRegistry, RegistryEvent
from millpond.core.groups.requests import DeleteGroup, DeleteGroupResult, Request
from millpond.core.groups.settings import GroupSettings
from millpond.core.groups.share_events import ShareHeartbeat, ShareHeartbeatResult
from millpond.core.groups.subscriptions import subscription
from millpond.model.ids import LeaderEpoch, Offset, TopicPartition
from millpond.model.instant import Instant
from tests.core.groups.consumer_conversation import topics
from tests.core.groups.conversation import instant

SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Coordinator:
    """A registry with what its driver would keep of it: one value a key, as a compacted log has it."""

    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.settings = settings
        self.now_ms = 0
        self.rng = random.Random(7)
        self.registry = GroupRegistry(settings, self.rng, now=instant(0))
        self.log: dict[bytes, bytes | None] = {}
        self.tokens = 0
        self.topics = topics(a=2, b=1)
        self.step(TopicsChanged(self.topics))

    def step(self, event: RegistryEvent) -> list[Effect]:
        effects = self.registry.step(event, now=self.now)
        self.perform(effects)
        return effects

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                key, value = encode(effect.record)
                self.log.pop(key, None)
                self.log[key] = value

    @property
    def now(self) -> Instant:
        return instant(self.now_ms)

    def ask(self, group: str, request: Request) -> object:
        self.tokens += 1
        token = Token(self.tokens)
        effects = self.step(ForGroup(group, replace(request, token=token)))
        (result,) = [each.result for each in effects if isinstance(each, Reply) and each.to == token]
        return result

    def wait(self, ms: int) -> None:
        until = self.now_ms + ms
        while (due := self.registry.next_deadline) is not None and due <= until:
            self.now_ms = max(due, self.now_ms)
            self.step(Tick())
        self.now_ms = until

    def restart(self) -> None:
        records: list[Record] = []
        for key, value in self.log.items():
            record = decode(*KeyValue(key, value))
            assert record is not None
            records.append(record)
        self.registry = GroupRegistry(self.settings, self.rng, now=self.now)
        self.perform(self.registry.restore(records, self.topics, now=self.now))

    # What clients do

    def join_classic(self, group: str = "g", *reads: str) -> str:
        """A group of one; answers its member id."""
        protocols = (("range", subscription(list(reads or ("a",)))),)
        event = JoinGroup(token=Token(0), protocols=protocols, session_timeout_ms=10_000, client_id="ana")
        first = self.ask(group, event)
        assert isinstance(first, JoinResult)
        joined = self.ask(group, replace(event, member_id=first.member_id))
        assert isinstance(joined, JoinResult)
        assert joined.error is GroupError.NONE, joined
        assigned = self.ask(
            group,
            SyncGroup(
                token=Token(0),
                member_id=joined.member_id,
                generation=joined.generation,
                assignments=((joined.member_id, b"a0"),),
            ),
        )
        assert isinstance(assigned, SyncResult)
        assert assigned.assignment == b"a0"
        return joined.member_id

    def leave_classic(self, member_id: str, group: str = "g") -> None:
        self.ask(group, LeaveGroup(token=Token(0), members=(Leaving(member_id=member_id),)))

    def join_consumer(self, group: str = "g", member_id: str = "ana") -> ConsumerHeartbeatResult:
        event = ConsumerHeartbeat(
            token=Token(0),
            member_id=member_id,
            member_epoch=0,
            topics=frozenset("a"),
            rebalance_timeout_ms=1_000,
            owned=frozenset(),
        )
        result = self.ask(group, event)
        assert isinstance(result, ConsumerHeartbeatResult)
        return result

    def leave_consumer(self, group: str = "g", member_id: str = "ana") -> None:
        self.ask(group, ConsumerHeartbeat(token=Token(0), member_id=member_id, member_epoch=-1))

    def join_share(self, group: str = "g", member_id: str = "ana", *, epoch: int = 0) -> ShareHeartbeatResult:
        event = ShareHeartbeat(token=Token(0), member_id=member_id, member_epoch=epoch, topics=frozenset("a"))
        result = self.ask(group, event)
        assert isinstance(result, ShareHeartbeatResult)
        return result

    def leave_share(self, group: str = "g", member_id: str = "ana") -> None:
        self.ask(group, ShareHeartbeat(token=Token(0), member_id=member_id, member_epoch=-1))

    def commit(
        self,
        at: TopicPartition,
        offset: int,
        *,
        group: str = "g",
        metadata: str = "",
        member_id: str = "",
        generation: int = -1,
    ) -> GroupError:
        commit = OffsetToCommit(at, Offset(offset), LeaderEpoch(3), metadata)
        result = self.ask(
            group, CommitOffsets(token=Token(0), offsets=(commit,), member_id=member_id, generation=generation)
        )
        assert isinstance(result, PartitionErrors)
        ((answered, error),) = result.partitions
        assert answered == at
        return error

    def fetch(self, *partitions: TopicPartition, group: str = "g") -> dict[TopicPartition, int | None]:
        result = self.ask(group, FetchOffsets(token=Token(0), partitions=partitions or None))
        assert isinstance(result, FetchedOffsets)
        return {at: committed.offset if committed else None for at, committed in result.offsets}

    def delete(self, group: str = "g") -> GroupError:
        result = self.ask(group, DeleteGroup(token=Token(0)))
        assert isinstance(result, DeleteGroupResult)
        return result.error

    def states(self, **filters: object) -> dict[str, str]:
        return {each.group: each.state for each in self.registry.listings(**filters)}  # type: ignore[arg-type]
