"""A share group (KIP-932): its members read partitions together, and the coordinator says who reads which.

Whatever changes who should read what (a member comes, goes or subscribes anew, topics come, go or grow) raises the
group's epoch and makes a new target, in the same step; each member is told with its next heartbeat. A partition may
have several readers, so nobody waits for anybody: which message is whose, the partition's leader decides.

Invariants: the group's epoch only grows, and a member's epoch never passes it; a partition that a member subscribed to
is in somebody's target.
Pure: `step` takes `now` and returns effects, to be performed in order. Every heartbeat is answered in its own step.
Driven by broker/drivers/groups.py.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import assert_never

from millpond.core.groups.assignors import Ask
from millpond.core.groups.classic_events import Tick
from millpond.core.groups.consumer_events import JOINING, LEAVING, Topic, TopicsChanged
from millpond.core.groups.deadlines import Deadlines
from millpond.core.groups.effects import Effect, MemberGone, MemberJoined, Noted, Persist, Reply, Why
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import ShareGroupRecord, ShareMemberForgotten, ShareMemberRecord
from millpond.core.groups.settings import GroupSettings, Paces
from millpond.core.groups.share_assignor import assign_shared
from millpond.core.groups.share_events import ShareEvent, ShareHeartbeat, ShareHeartbeatResult
from millpond.core.groups.share_members import NOTHING, ShareMember
from millpond.model.ids import TimestampMs
from millpond.model.instant import Instant


class State(Enum):
    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL: dict[State, set[State]] = {
    State.EMPTY: {State.STABLE, State.DEAD},
    State.STABLE: {State.EMPTY},
    State.DEAD: set(),
}


class Refused(Exception):
    """A heartbeat that is answered with an error, and changes nothing. Never leaves this module."""

    def __init__(self, error: GroupError, message: str) -> None:
        super().__init__(message)
        self.error = error


class ShareGroup:
    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        paces: Callable[[str], Paces],
        topics: Mapping[str, Topic],
        *,
        now: Instant,
    ) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.epoch = 0
        self.members: dict[str, ShareMember] = {}
        self.changed_at = TimestampMs(now.wall_ms)
        """When the state last changed, by the wall."""
        self._settings = settings
        self._paces = paces
        self._topics = topics
        self._subscribed: dict[str, frozenset[bytes]] = {}  # topic ids by member, as of the last target
        self._sizes: dict[bytes, int] = {}  # partition counts of those, as of the last target
        self._deadlines: Deadlines[str] = Deadlines()
        self._dirty: dict[str, ShareMember] = {}  # to be kept at the end of the step, once
        self._is_dirty = False
        self._out: list[Effect] = []

    @classmethod
    def restore(
        cls,
        record: ShareGroupRecord,
        members: Iterable[ShareMemberRecord],
        settings: GroupSettings,
        paces: Callable[[str], Paces],
        topics: Mapping[str, Topic],
        *,
        now: Instant,
    ) -> "ShareGroup":
        """As the log remembers it; every member gets a whole session to show itself again."""
        group = cls(record.group, settings, paces, topics, now=now)
        group.epoch = record.epoch
        for each in members:
            member = ShareMember.restored(each)
            group.members[member.member_id] = member
            group._begin_session(member, now)
        group._believe_targets()
        group.state = State.STABLE if group.members else State.EMPTY
        group.changed_at = record.changed_at
        return group

    def step(self, event: ShareEvent, *, now: Instant) -> list[Effect]:
        self._out = []
        match event:
            case ShareHeartbeat():
                result = self._heartbeat(event, now)
                self._settle(now)
                self._out.append(Reply(event.token, result))
            case TopicsChanged():
                self._topics = event.topics
                if self._resolve() != (self._subscribed, self._sizes):
                    self._retarget()
                self._settle(now)
            case Tick():
                self._expire(now)
                self._settle(now)
            case _:
                assert_never(event)
        return self._out

    @property
    def next_deadline(self) -> int | None:
        """On the monotonic clock: a `Tick` is due then."""
        return self._deadlines.next()

    def bury(self, *, now: Instant) -> None:
        """The group is deleted; only an empty one may be."""
        self._move(State.DEAD, now)

    def subscribed_topics(self) -> frozenset[str]:
        """By name, of the topics there are."""
        wanted = frozenset[str]().union(*(member.topics for member in self.members.values()))
        return wanted & self._topics.keys()

    # Heartbeats

    def _heartbeat(self, event: ShareHeartbeat, now: Instant) -> ShareHeartbeatResult:
        try:
            _check(event)
            if event.member_epoch == LEAVING:
                return self._leave(event)
            member = self._find_or_join(event) if event.member_epoch == JOINING else self._find(event)
        except Refused as refused:
            return ShareHeartbeatResult(error=refused.error, message=str(refused), member_id=event.member_id)
        before, told_before, topics_before = member.record(self.group_id), member.assigned, member.topics
        known = member.member_id in self.members
        member.update(event)
        if not known:
            self.members[member.member_id] = member
            self._out.append(Noted(MemberJoined(self.group_id, member.member_id)))
        if not known or member.topics != topics_before:
            self._retarget()
        is_behind = event.member_epoch in {JOINING, member.previous_epoch}  # the answer that told it more was lost
        member.advance(self.epoch)
        self._begin_session(member, now)
        if not known or member.record(self.group_id) != before:
            self._dirty[member.member_id] = member
        return ShareHeartbeatResult(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._paces(self.group_id).share.heartbeat_ms,
            assignment=member.assigned if is_behind or member.assigned != told_before else None,
        )

    def _find(self, event: ShareHeartbeat) -> ShareMember:
        member = self.members.get(event.member_id)
        if member is None:
            raise Refused(GroupError.UNKNOWN_MEMBER_ID, f"there is no member {event.member_id}")
        if event.member_epoch not in {member.epoch, member.previous_epoch}:
            raise Refused(
                GroupError.FENCED_MEMBER_EPOCH,
                f"{member.member_id} is in epoch {member.epoch}, not {event.member_epoch}; it has to join again",
            )
        return member

    def _find_or_join(self, event: ShareHeartbeat) -> ShareMember:
        if event.member_id in self.members:
            return self.members[event.member_id]
        if len(self.members) >= self._settings.members_max:
            raise Refused(GroupError.GROUP_MAX_SIZE_REACHED, f"the group has {len(self.members)} members already")
        return ShareMember(event.member_id)

    def _leave(self, event: ShareHeartbeat) -> ShareHeartbeatResult:
        member = self.members.get(event.member_id)
        if member is None:
            raise Refused(GroupError.UNKNOWN_MEMBER_ID, f"there is no member {event.member_id}")
        self._forget(member, Why.LEFT)
        self._retarget()
        return ShareHeartbeatResult(member_id=member.member_id, member_epoch=LEAVING)

    # Targets

    def _retarget(self) -> None:
        """Something changed that the target depends on: the next epoch begins."""
        self.epoch += 1
        self._subscribed, self._sizes = self._resolve()
        current = {member_id: member.target for member_id, member in self.members.items()}
        target = assign_shared(Ask(self._sizes, self._subscribed, current))
        self._is_dirty = True
        for member_id, member in self.members.items():
            share = target.get(member_id, NOTHING)
            if share != member.target:
                member.target = share
                self._dirty[member_id] = member

    def _believe_targets(self) -> None:
        """After a restart: if topics changed meanwhile, the next `TopicsChanged` is to find that out."""
        subscribed, sizes = self._resolve()
        targets = NOTHING.union(*(member.target for member in self.members.values()))
        if targets == frozenset(Ask(sizes, subscribed, {}).partitions()):
            self._subscribed, self._sizes = subscribed, sizes

    def _resolve(self) -> tuple[dict[str, frozenset[bytes]], dict[bytes, int]]:
        """Who subscribes to what, of the topics there are now, and how large those are."""
        subscribed: dict[str, frozenset[bytes]] = {}
        sizes: dict[bytes, int] = {}
        for member in self.members.values():
            topics = [self._topics[name] for name in member.topics if name in self._topics]
            subscribed[member.member_id] = frozenset(topic.topic_id for topic in topics)
            sizes.update(topics)
        return subscribed, sizes

    # Coming and going

    def _begin_session(self, member: ShareMember, now: Instant) -> None:
        patience_ms = self._paces(self.group_id).share.session_timeout_ms
        self._deadlines.set(member.member_id, now.monotonic_ms + patience_ms)

    def _expire(self, now: Instant) -> None:
        before = len(self.members)
        while (member_id := self._deadlines.take_due(now.monotonic_ms)) is not None:
            self._forget(self.members[member_id], Why.SESSION_EXPIRED)
        if len(self.members) < before:
            self._retarget()

    def _forget(self, member: ShareMember, why: Why) -> None:
        del self.members[member.member_id]
        self._dirty.pop(member.member_id, None)
        self._deadlines.clear(member.member_id)
        self._out.append(Noted(MemberGone(self.group_id, member.member_id, why)))
        self._out.append(Persist(ShareMemberForgotten(self.group_id, member.member_id)))

    def _settle(self, now: Instant) -> None:
        """Writes down what changed, and what the members come to for the group."""
        state = State.STABLE if self.members else State.EMPTY
        if state is not self.state:
            self._move(state, now)
            self._is_dirty = True
        if self._is_dirty:
            self._out.append(Persist(ShareGroupRecord(self.group_id, self.epoch, self.changed_at)))
        self._out.extend(Persist(member.record(self.group_id)) for member in self._dirty.values())
        self._dirty.clear()
        self._is_dirty = False

    def _move(self, state: State, now: Instant) -> None:
        assert state in LEGAL[self.state], f"{self.group_id}: {self.state} to {state}"
        self.state = state
        self.changed_at = TimestampMs(now.wall_ms)


def _check(event: ShareHeartbeat) -> None:
    """What can be said against the request without knowing who sent it."""
    if event.member_id == "":
        raise Refused(GroupError.INVALID_REQUEST, "the member id is missing: a member of a share group picks its own")
    if event.member_epoch < LEAVING:
        raise Refused(GroupError.INVALID_REQUEST, f"member epoch {event.member_epoch} means nothing")
    if event.rack_id == "":
        raise Refused(GroupError.INVALID_REQUEST, "the rack id is empty; leave it out instead")
    if event.member_epoch == JOINING and not event.topics:
        raise Refused(GroupError.INVALID_REQUEST, "a member joins with a subscription")
