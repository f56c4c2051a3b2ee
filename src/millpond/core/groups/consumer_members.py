"""One member of a consumer group, and how it comes from what it has to what it should have.

    STABLE                 has what it should
    UNREVOKED_PARTITIONS   was told to give something up, and has not said yet that it did; it stays in its epoch
    UNRELEASED_PARTITIONS  is in the newest epoch; something it should have is still another's

Each may follow each: targets change at any time. Revoking comes first, alone: only then the member moves to the new
epoch, and takes what is free.
Invariant: `assigned` and `revoking` are disjoint, and both are the member's until it has said otherwise.
Pure; `consumer.py` decides when.
"""

from collections.abc import Callable
from enum import Enum

from millpond.core.groups.consumer_events import ConsumerHeartbeat
from millpond.core.groups.patterns import TopicPattern
from millpond.core.groups.records import ConsumerMemberRecord, TopicIdPartition
from millpond.model.values import dataclass

Partitions = frozenset[TopicIdPartition]
NOTHING: Partitions = frozenset()


class MemberState(Enum):
    STABLE = "stable"
    UNREVOKED_PARTITIONS = "unrevoked partitions"
    UNRELEASED_PARTITIONS = "unreleased partitions"


@dataclass(slots=True)
class Member:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    topics: frozenset[str] = frozenset()
    pattern: TopicPattern | None = None
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING
    target: Partitions = NOTHING

    @property
    def holds(self) -> Partitions:
        """Nobody else may have these."""
        return self.assigned | self.revoking

    @property
    def subscription(self) -> tuple[frozenset[str], str | None, str | None]:
        """What the target depends on."""
        return self.topics, self.pattern.text if self.pattern else None, self.assignor

    def update(self, event: ConsumerHeartbeat, pattern: TopicPattern | None) -> None:
        """Takes over what the heartbeat says; what it leaves out has not changed."""
        self.client_id, self.client_host = event.client_id, event.client_host
        if event.rebalance_timeout_ms > 0:
            self.rebalance_timeout_ms = event.rebalance_timeout_ms
        if event.rack_id is not None:
            self.rack_id = event.rack_id
        if event.topics is not None:
            self.topics = event.topics
        if event.regex is not None:
            self.pattern = pattern
        if event.assignor is not None:
            self.assignor = event.assignor

    def reconcile(
        self, *, group_epoch: int, owned: Partitions | None, is_free: Callable[[TopicIdPartition], bool]
    ) -> None:
        """One step towards the target. `owned` is what the member says it has now, if it says so."""
        if self.state is MemberState.UNREVOKED_PARTITIONS:
            if owned is None or owned & self.revoking:
                return
            self.revoking = NOTHING
        elif self.state is MemberState.STABLE and self.epoch == group_epoch:
            return
        surplus = self.assigned - self.target
        if surplus and (owned is None or owned & surplus):
            self.assigned -= surplus
            self.revoking = surplus
            self.state = MemberState.UNREVOKED_PARTITIONS
            return
        self.assigned = (self.assigned & self.target) | {each for each in self.target - self.assigned if is_free(each)}
        waiting = self.assigned != self.target
        self.state = MemberState.UNRELEASED_PARTITIONS if waiting else MemberState.STABLE
        self.advance(group_epoch)

    def advance(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch

    def record(self, group: str) -> ConsumerMemberRecord:
        return ConsumerMemberRecord(
            group=group,
            member_id=self.member_id,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topics=self.topics,
            regex=self.pattern.text if self.pattern else None,
            assignor=self.assignor,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            assigned=self.assigned,
            revoking=self.revoking,
            target=self.target,
        )

    @classmethod
    def restored(cls, record: ConsumerMemberRecord) -> "Member":
        state = MemberState.STABLE
        if record.revoking:
            state = MemberState.UNREVOKED_PARTITIONS
        elif record.assigned != record.target:
            state = MemberState.UNRELEASED_PARTITIONS
        return cls(
            member_id=record.member_id,
            instance_id=record.instance_id,
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            topics=record.topics,
            pattern=TopicPattern(record.regex) if record.regex else None,
            assignor=record.assignor,
            epoch=record.epoch,
            previous_epoch=record.previous_epoch,
            state=state,
            assigned=record.assigned,
            revoking=record.revoking,
            target=record.target,
        )
