"""All groups of one coordinator: the door through which its driver speaks to them.

A group is what its first member makes it: classic, consumer or share. Once empty, a classic or consumer group may
become the other, and keeps its offsets and its count of generations. A share group stays one until it is deleted: what
it has read is kept elsewhere, message by message. Groups that nobody used and nothing is kept of are not remembered.

Invariant: every request is answered once, in this step or a later one; what is pending has a deadline.
Pure: `step` takes `now` and returns effects, to be performed in order. Driven by broker/drivers/groups.py.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from enum import Enum
from typing import assert_never

from millpond.core.groups.classic import ClassicGroup
from millpond.core.groups.classic import State as ClassicState
from millpond.core.groups.classic_events import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeaveResult,
    SyncGroup,
    Tick,
)
from millpond.core.groups.consumer import ConsumerGroup
from millpond.core.groups.consumer import State as ConsumerState
from millpond.core.groups.consumer_events import (
    JOINING,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Topic,
    TopicsChanged,
)
from millpond.core.groups.deadlines import Deadlines
from millpond.core.groups.descriptions import Description, GroupListing, GroupType, Machine, description_of, listing_of
from millpond.core.groups.effects import Effect, Persist, Reply
from millpond.core.groups.errors import GroupError
from millpond.core.groups.lag import Lag, LogFacts, lag_of
from millpond.core.groups.offsets import (
    CommitOffsets,
    DeleteOffsets,
    FetchedOffsets,
    FetchOffsets,
    GroupOffsets,
    PartitionErrors,
)
from millpond.core.groups.records import (
    ClassicGroupRecord,
    ConsumerGroupForgotten,
    ConsumerGroupRecord,
    ConsumerMemberForgotten,
    ConsumerMemberRecord,
    GroupForgotten,
    OffsetCommitted,
    OffsetForgotten,
    Record,
    ShareGroupForgotten,
    ShareGroupRecord,
    ShareMemberForgotten,
    ShareMemberRecord,
)
from millpond.core.groups.requests import ClassicRequest, DeleteGroup, DeleteGroupResult, Request, refusal
from millpond.core.groups.settings import GroupSettings, Paces, usual_paces
from millpond.core.groups.share import ShareGroup
from millpond.core.groups.share import State as ShareState
from millpond.core.groups.share_events import ShareHeartbeat, ShareHeartbeatResult
from millpond.core.groups.subscriptions import CONSUMER
from millpond.model.ids import TopicPartition
from millpond.model.instant import Instant
from millpond.model.ports import Rng
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True)
class ForGroup:
    group: str
    request: Request


RegistryEvent = ForGroup | TopicsChanged | Tick


CLIENT_ID_CHARS_MAX = 255
"""Of a client id, what goes into the ids of members: old versions of the protocol must have room for those."""


class Upkeep(Enum):
    OFFSETS = "offsets whose time is over are forgotten"


@dataclass(slots=True)
class Group:
    machine: Machine
    offsets: GroupOffsets
    """A share group has none."""

    @property
    def is_empty(self) -> bool:
        return self.machine.state in {ClassicState.EMPTY, ConsumerState.EMPTY, ShareState.EMPTY}

    @property
    def count(self) -> int:
        """Generations so far, or the epoch: 0 where the group never was one, and the log has nothing of it."""
        return self.machine.generation if isinstance(self.machine, ClassicGroup) else self.machine.epoch

    @property
    def is_blank(self) -> bool:
        return not self.count and self.is_empty and not len(self.offsets) and not self._has_promised

    @property
    def is_unused(self) -> bool:
        """Not so a share group: an empty queue is still a queue."""
        is_share = isinstance(self.machine, ShareGroup)
        return not is_share and self.is_empty and not len(self.offsets) and not self._has_promised

    @property
    def _has_promised(self) -> bool:
        return isinstance(self.machine, ClassicGroup) and bool(self.machine.promised)


_ENDS: dict[type[Record], type[Record]] = {
    GroupForgotten: ClassicGroupRecord,
    ConsumerGroupForgotten: ConsumerGroupRecord,
    ShareGroupForgotten: ShareGroupRecord,
}


@dataclass(slots=True)
class _Remembered:
    """What the log says of one group, while it is read."""

    offsets: GroupOffsets
    machine: ClassicGroupRecord | ConsumerGroupRecord | ShareGroupRecord | None = None
    members: dict[str, ConsumerMemberRecord] = field(default_factory=dict)
    sharers: dict[str, ShareMemberRecord] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        match record:
            case OffsetCommitted() | OffsetForgotten():
                self.offsets.restore(record)
            case ClassicGroupRecord() | ConsumerGroupRecord() | ShareGroupRecord():
                self.machine = record
            case GroupForgotten() | ConsumerGroupForgotten() | ShareGroupForgotten():
                self.machine = None if isinstance(self.machine, _ENDS[type(record)]) else self.machine
            case ConsumerMemberRecord():
                self.members[record.member_id] = record
            case ConsumerMemberForgotten():
                self.members.pop(record.member_id, None)
            case ShareMemberRecord():
                self.sharers[record.member_id] = record
            case ShareMemberForgotten():
                self.sharers.pop(record.member_id, None)
            case _:
                assert_never(record)


class GroupRegistry:
    def __init__(
        self, settings: GroupSettings, rng: Rng, *, now: Instant, paces: Callable[[str], Paces] = usual_paces
    ) -> None:
        """`paces` is asked for a group's, by name, whenever they matter: settings may change."""
        self._settings = settings
        self._rng = rng
        self._paces = paces
        self._groups: dict[str, Group] = {}
        self._topics: Mapping[str, Topic] = {}
        self._deadlines: Deadlines[str | Upkeep] = Deadlines()
        self._deadlines.set(Upkeep.OFFSETS, now.monotonic_ms + settings.offsets_check_ms)

    def __len__(self) -> int:
        return len(self._groups)

    def step(self, event: RegistryEvent, *, now: Instant) -> list[Effect]:
        match event:
            case ForGroup():
                return self._ask(event.group, event.request, now)
            case TopicsChanged():
                return self._change_topics(event, now)
            case Tick():
                return self._pass_time(now)
            case _:
                assert_never(event)

    @property
    def next_deadline(self) -> int | None:
        """On the monotonic clock: a `Tick` is due then."""
        return self._deadlines.next()

    def restore(self, records: Iterable[Record], topics: Mapping[str, Topic], *, now: Instant) -> list[Effect]:
        """Everything anew, from what was kept, oldest first; the effects are what came of topics that changed since."""
        remembered: dict[str, _Remembered] = {}
        for record in records:
            if record.group not in remembered:
                remembered[record.group] = _Remembered(GroupOffsets(record.group, self._settings))
            remembered[record.group].take(record)
        self._topics = topics
        self._groups = {name: self._restored(name, each, now) for name, each in remembered.items()}
        effects = [effect for name in sorted(self._groups) for effect in self._tell_topics(name, now)]
        for name in list(self._groups):
            self._look_after(name)
        return effects

    # For operators: reads only

    def listings(self, *, states: Collection[str] = (), types: Collection[GroupType] = ()) -> tuple[GroupListing, ...]:
        """Empty filters let everything through; names of states count without their case."""
        wanted = {state.lower() for state in states}
        every = (listing_of(self._groups[name].machine) for name in sorted(self._groups))
        return tuple(
            each for each in every if (not wanted or each.state.lower() in wanted) and (not types or each.type in types)
        )

    def describe(self, name: str) -> Description | None:
        group = self._groups.get(name)
        return description_of(group.machine) if group is not None else None

    def lag(self, name: str, logs: Mapping[TopicPartition, LogFacts], *, wall_ms: int) -> tuple[Lag, ...]:
        group = self._groups.get(name)
        return lag_of(group.offsets, logs, wall_ms=wall_ms) if group is not None else ()

    def committed(self, name: str) -> tuple[OffsetCommitted, ...]:
        group = self._groups.get(name)
        return tuple(group.offsets) if group is not None else ()

    # Requests

    def _ask(self, name: str, request: Request, now: Instant) -> list[Effect]:
        match request:
            case JoinGroup() | SyncGroup() | Heartbeat() | LeaveGroup():
                effects = self._ask_classic(name, request, now)
            case ConsumerHeartbeat():
                effects = self._ask_consumer(name, request, now)
            case ShareHeartbeat():
                effects = self._ask_share(name, request, now)
            case CommitOffsets():
                effects = self._commit(name, request, now)
            case FetchOffsets():
                effects = [Reply(request.token, self._fetch(name, request))]
            case DeleteOffsets():
                effects = self._delete_offsets(name, request)
            case DeleteGroup():
                effects = self._delete_group(name, request, now)
            case _:
                assert_never(request)
        self._look_after(name)
        return effects

    def _ask_classic(self, name: str, request: ClassicRequest, now: Instant) -> list[Effect]:
        if name == "":
            return [_misfit(request, GroupError.INVALID_GROUP_ID)]
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(self._new_classic(name, now), GroupOffsets(name, self._settings))
        effects: list[Effect] = []
        if isinstance(group.machine, ShareGroup):
            return [_misfit(request, GroupError.UNKNOWN_MEMBER_ID)]
        if isinstance(group.machine, ConsumerGroup):
            if not (group.is_empty and isinstance(request, JoinGroup)):
                return [_misfit(request, GroupError.UNKNOWN_MEMBER_ID)]
            effects += self._end_machine(group, now)
            machine = self._new_classic(name, now)
            machine.generation, group.machine = group.count, machine
        assert isinstance(group.machine, ClassicGroup)
        return effects + group.machine.step(request, now=now)

    def _ask_consumer(self, name: str, request: ConsumerHeartbeat, now: Instant) -> list[Effect]:
        group = self._groups.get(name)
        error, message = GroupError.NONE, ""
        if name == "":
            error, message = GroupError.INVALID_GROUP_ID, "the group id is missing"
        elif group is not None and isinstance(group.machine, ClassicGroup) and not group.is_empty:
            error, message = GroupError.GROUP_ID_NOT_FOUND, f"{name} is a classic group, and in use"
        elif group is not None and isinstance(group.machine, ShareGroup):
            error, message = GroupError.GROUP_ID_NOT_FOUND, f"{name} is a share group"
        elif request.member_epoch != JOINING and (group is None or isinstance(group.machine, ClassicGroup)):
            error, message = GroupError.UNKNOWN_MEMBER_ID, f"{name} has no members"
        if error is not GroupError.NONE:
            return [Reply(request.token, ConsumerHeartbeatResult(error=error, message=message))]
        effects: list[Effect] = []
        if group is None:
            group = self._groups[name] = Group(self._new_consumer(name, now), GroupOffsets(name, self._settings))
        elif isinstance(group.machine, ClassicGroup):
            effects += self._end_machine(group, now)
            machine = self._new_consumer(name, now)
            machine.epoch, group.machine = group.count, machine
        assert isinstance(group.machine, ConsumerGroup)
        return effects + group.machine.step(request, now=now)

    def _ask_share(self, name: str, request: ShareHeartbeat, now: Instant) -> list[Effect]:
        group = self._groups.get(name)
        error, message = GroupError.NONE, ""
        if name == "":
            error, message = GroupError.INVALID_GROUP_ID, "the group id is missing"
        elif group is not None and not isinstance(group.machine, ShareGroup):
            error, message = (
                GroupError.GROUP_ID_NOT_FOUND,
                f"{name} is no share group; delete it first, or take another",
            )
        elif group is None and request.member_epoch != JOINING:
            # Kafka says that there is no such group, which Java's clients take for the end; so they join again.
            error, message = GroupError.UNKNOWN_MEMBER_ID, f"{name} has no members"
        if error is not GroupError.NONE:
            return [Reply(request.token, ShareHeartbeatResult(error=error, message=message))]
        if group is None:
            machine = ShareGroup(name, self._settings, self._paces, self._topics, now=now)
            group = self._groups[name] = Group(machine, GroupOffsets(name, self._settings))
        assert isinstance(group.machine, ShareGroup)
        return group.machine.step(request, now=now)

    def _commit(self, name: str, request: CommitOffsets, now: Instant) -> list[Effect]:
        group = self._groups.get(name) or Group(self._new_classic(name, now), GroupOffsets(name, self._settings))
        error = _admission(group, request, now)
        if error is not GroupError.NONE:
            return [refusal(request, error)]
        self._groups[name] = group
        records, answers = group.offsets.commit(request, wall_ms=now.wall_ms)
        return [*map(Persist, records), Reply(request.token, PartitionErrors(GroupError.NONE, answers))]

    def _fetch(self, name: str, request: FetchOffsets) -> FetchedOffsets:
        group = self._groups.get(name)
        if group is None:
            return FetchedOffsets(GroupError.NONE, tuple((at, None) for at in request.partitions or ()))
        if isinstance(group.machine, ShareGroup):
            return FetchedOffsets(GroupError.GROUP_ID_NOT_FOUND)
        speaks_as_member = request.member_id != "" or request.member_epoch >= 0
        if isinstance(group.machine, ConsumerGroup) and speaks_as_member:
            error = group.machine.admit_commit(member_id=request.member_id, member_epoch=request.member_epoch)
            if error is not GroupError.NONE:
                return FetchedOffsets(error)
        return FetchedOffsets(GroupError.NONE, group.offsets.fetch(request.partitions))

    def _delete_offsets(self, name: str, request: DeleteOffsets) -> list[Effect]:
        group = self._groups.get(name)
        if name == "":
            return [refusal(request, GroupError.INVALID_GROUP_ID)]
        if group is None or isinstance(group.machine, ShareGroup):
            return [refusal(request, GroupError.GROUP_ID_NOT_FOUND)]
        topics = group.machine.subscribed_topics()
        if topics is None:
            return [refusal(request, GroupError.NON_EMPTY_GROUP)]
        records, answers = group.offsets.delete(request.partitions, is_subscribed=topics.__contains__)
        return [*map(Persist, records), Reply(request.token, PartitionErrors(GroupError.NONE, answers))]

    def _delete_group(self, name: str, request: DeleteGroup, now: Instant) -> list[Effect]:
        group = self._groups.get(name)
        if group is None:
            return [refusal(request, GroupError.GROUP_ID_NOT_FOUND)]
        if not group.is_empty:
            return [refusal(request, GroupError.NON_EMPTY_GROUP)]
        return [*self._forget(name, group, now), Reply(request.token, DeleteGroupResult())]

    # Topics and time

    def _change_topics(self, event: TopicsChanged, now: Instant) -> list[Effect]:
        gone = [name for name, topic in self._topics.items() if not _is_still(topic, event.topics.get(name))]
        self._topics = event.topics
        effects: list[Effect] = []
        for name in sorted(self._groups):
            effects += [Persist(each) for topic in gone for each in self._groups[name].offsets.forget_topic(topic)]
            effects += self._tell_topics(name, now)
            self._look_after(name)
        return effects

    def _tell_topics(self, name: str, now: Instant) -> list[Effect]:
        machine = self._groups[name].machine
        return [] if isinstance(machine, ClassicGroup) else machine.step(TopicsChanged(self._topics), now=now)

    def _pass_time(self, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        while (key := self._deadlines.take_due(now.monotonic_ms)) is not None:
            if key is Upkeep.OFFSETS:
                effects += self._expire_offsets(now)
                self._deadlines.set(key, now.monotonic_ms + self._settings.offsets_check_ms)
            else:
                effects += self._groups[key].machine.step(Tick(), now=now)
                self._look_after(key)
        return effects

    def _expire_offsets(self, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for name, group in list(self._groups.items()):
            topics = group.machine.subscribed_topics()
            if topics is None:
                continue
            empty_since = group.machine.changed_at if group.is_empty and group.count else None
            expired = group.offsets.expire(
                wall_ms=now.wall_ms, empty_since=empty_since, is_subscribed=topics.__contains__
            )
            effects += map(Persist, expired)
            if group.is_unused:
                effects += self._forget(name, group, now)
        return effects

    # Coming and going of groups

    def _look_after(self, name: str) -> None:
        """After anything that happened to a group: when it is to be woken, and whether it is worth remembering."""
        group = self._groups.get(name)
        if group is not None and group.is_blank:
            del self._groups[name]
            group = None
        due = group.machine.next_deadline if group is not None else None
        if due is None:
            self._deadlines.clear(name)
        else:
            self._deadlines.set(name, due)

    def _forget(self, name: str, group: Group, now: Instant) -> list[Effect]:
        del self._groups[name]
        self._deadlines.clear(name)
        return [*map(Persist, group.offsets.forget_all()), *self._end_machine(group, now)]

    def _end_machine(self, group: Group, now: Instant) -> list[Effect]:
        """The group's offsets may live on, under a machine of the other kind."""
        machine = group.machine
        machine.bury(now=now)
        if not group.count:
            return []
        match machine:
            case ClassicGroup():
                return [Persist(GroupForgotten(machine.group_id))]
            case ConsumerGroup():
                return [Persist(ConsumerGroupForgotten(machine.group_id))]
            case ShareGroup():
                return [Persist(ShareGroupForgotten(machine.group_id))]

    def _restored(self, name: str, remembered: _Remembered, now: Instant) -> Group:
        machine: Machine
        match remembered.machine:
            case ClassicGroupRecord() as record:
                machine = ClassicGroup.restore(record, self._settings, self._new_id, now=now)
            case ConsumerGroupRecord() as record:
                members = remembered.members.values()
                machine = ConsumerGroup.restore(
                    record, members, self._settings, self._new_id, self._topics, now=now, paces=self._paces
                )
            case ShareGroupRecord() as record:
                sharers = remembered.sharers.values()
                machine = ShareGroup.restore(record, sharers, self._settings, self._paces, self._topics, now=now)
            case None:
                machine = self._new_classic(name, now)
        return Group(machine, remembered.offsets)

    def _new_classic(self, name: str, now: Instant) -> ClassicGroup:
        return ClassicGroup(name, self._settings, self._new_id, now=now)

    def _new_consumer(self, name: str, now: Instant) -> ConsumerGroup:
        return ConsumerGroup(name, self._settings, self._new_id, self._topics, now=now, paces=self._paces)

    def _new_id(self, client_id: str) -> str:
        digits = f"{self._rng.getrandbits(128):032x}"
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return "-".join((client_id[:CLIENT_ID_CHARS_MAX] or CONSUMER, *parts))


def _admission(group: Group, request: CommitOffsets, now: Instant) -> GroupError:
    if isinstance(group.machine, ShareGroup):
        return GroupError.GROUP_ID_NOT_FOUND
    if isinstance(group.machine, ConsumerGroup):
        return group.machine.admit_commit(member_id=request.member_id, member_epoch=request.generation)
    return group.machine.admit_commit(
        member_id=request.member_id, instance_id=request.instance_id, generation=request.generation, now=now
    )


def _is_still(topic: Topic, now: Topic | None) -> bool:
    return now is not None and now.topic_id == topic.topic_id


def _misfit(request: ClassicRequest, error: GroupError) -> Reply:
    """To a request that does not fit the group at all, though its coordinator is the right one."""
    if isinstance(request, JoinGroup) and error is GroupError.UNKNOWN_MEMBER_ID:
        error = GroupError.INCONSISTENT_GROUP_PROTOCOL
    if isinstance(request, LeaveGroup) and error is GroupError.UNKNOWN_MEMBER_ID:
        return Reply(request.token, LeaveResult(members=tuple((each, error) for each in request.members)))
    return refusal(request, error)
