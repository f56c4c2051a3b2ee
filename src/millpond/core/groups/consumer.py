"""A consumer group (KIP-848): the coordinator assigns, and each member comes to its assignment in its own time.

Whatever changes who should have what (a member comes, goes or subscribes anew, topics come, go or grow) raises the
group's epoch and makes a new target, in the same step. From then on each heartbeat brings its member one step nearer,
as `consumer_members.py` draws it. Nobody waits for the group, and a member that keeps its partitions never stops.

Invariants: a partition is held by one member at most, until that one has said that it gave it up, or is gone; the
group's epoch only grows, and a member's epoch never passes it; a partition is in the target of one member at most.
Pure: `step` takes `now` and returns effects, to be performed in order. Every heartbeat is answered in its own step.
Driven by broker/drivers/groups.py.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple, assert_never

from millpond.core.groups.assignors import Ask
from millpond.core.groups.classic_events import Tick
from millpond.core.groups.consumer_events import (
    AWAY,
    JOINING,
    LEAVING,
    ConsumerEvent,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Topic,
    TopicsChanged,
)
from millpond.core.groups.consumer_members import NOTHING, Member, MemberState
from millpond.core.groups.deadlines import Deadlines
from millpond.core.groups.effects import (
    Effect,
    MemberGone,
    MemberJoined,
    Noted,
    Persist,
    RebalanceBegan,
    RebalanceEnded,
    Reply,
    Why,
)
from millpond.core.groups.errors import GroupError
from millpond.core.groups.patterns import InvalidPattern, TopicPattern
from millpond.core.groups.records import (
    ConsumerGroupRecord,
    ConsumerMemberForgotten,
    ConsumerMemberRecord,
    TopicIdPartition,
)
from millpond.core.groups.settings import GroupSettings, Paces, usual_paces
from millpond.model.ids import TimestampMs
from millpond.model.instant import Instant


class State(Enum):
    EMPTY = "Empty"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL: dict[State, set[State]] = {
    State.EMPTY: {State.RECONCILING, State.STABLE, State.DEAD},
    State.RECONCILING: {State.STABLE, State.EMPTY},
    State.STABLE: {State.RECONCILING, State.EMPTY},
    State.DEAD: set(),
}


class Patience(Enum):
    SESSION = "the member has to show itself"
    REVOCATION = "the member has to give up what it was told to"


class Timer(NamedTuple):
    patience: Patience
    member_id: str


class Refused(Exception):
    """A heartbeat that is answered with an error, and changes nothing. Never leaves this module."""

    def __init__(self, error: GroupError, message: str) -> None:
        super().__init__(message)
        self.error = error


class ConsumerGroup:
    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        new_id: Callable[[str], str],
        topics: Mapping[str, Topic],
        *,
        now: Instant,
        paces: Callable[[str], Paces] = usual_paces,
    ) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.epoch = 0
        self.members: dict[str, Member] = {}
        self.changed_at = TimestampMs(now.wall_ms)
        """When the state last changed, by the wall."""
        self._settings = settings
        self._paces = paces
        self._new_id = new_id
        self._topics = topics
        self._instances: dict[str, str] = {}
        self._holders: dict[TopicIdPartition, str] = {}
        self._subscribed: dict[str, frozenset[bytes]] = {}  # topic ids by member, as of the last target
        self._shared: dict[bytes, int] = {}  # partition counts of those, as of the last target
        self._deadlines: Deadlines[Timer] = Deadlines()
        self._reconciling_since = now.monotonic_ms
        self._dirty: dict[str, Member] = {}  # to be kept at the end of the step, once
        self._out: list[Effect] = []

    @classmethod
    def restore(
        cls,
        record: ConsumerGroupRecord,
        members: Iterable[ConsumerMemberRecord],
        settings: GroupSettings,
        new_id: Callable[[str], str],
        topics: Mapping[str, Topic],
        *,
        now: Instant,
        paces: Callable[[str], Paces] = usual_paces,
    ) -> "ConsumerGroup":
        """As the log remembers it; every member gets a whole session to show itself again."""
        group = cls(record.group, settings, new_id, topics, now=now, paces=paces)
        group.epoch = record.epoch
        for each in members:
            member = Member.restored(each)
            group._admit(member)
            group._begin_session(member, now)
            group._watch_revocation(member, MemberState.STABLE, now)
        group._believe_targets()
        group.state = group._state_of_members()
        group.changed_at = record.changed_at
        return group

    def step(self, event: ConsumerEvent, *, now: Instant) -> list[Effect]:
        self._out = []
        match event:
            case ConsumerHeartbeat():
                result = self._heartbeat(event, now)
                self._settle(now)
                self._out.append(Reply(event.token, result))
            case TopicsChanged():
                self._topics = event.topics
                if self._resolve() != (self._subscribed, self._shared):
                    self._retarget(Why.TOPICS)
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

    @property
    def assignor(self) -> str:
        """The one most members ask for; one that asked in an earlier life may name one that is not offered any more."""
        offered = self._settings.assignors
        asked = [member.assignor for member in self.members.values() if member.assignor is not None]
        votes = Counter(each for each in asked if each in offered)
        return max(sorted(votes), key=votes.__getitem__) if votes else next(iter(offered))

    def bury(self, *, now: Instant) -> None:
        """The group is deleted; only an empty one may be."""
        self._move(State.DEAD, now)

    def admit_commit(self, *, member_id: str, member_epoch: int) -> GroupError:
        """Whether this member may read or write offsets now; without an id, only while nobody else is there."""
        if member_epoch < 0 and not self.members:
            return GroupError.NONE
        member = self.members.get(member_id)
        if member is None:
            return GroupError.UNKNOWN_MEMBER_ID
        return GroupError.NONE if member_epoch == member.epoch else GroupError.STALE_MEMBER_EPOCH

    def subscribed_topics(self) -> frozenset[str]:
        """By name, of the topics there are."""
        subscribed = frozenset[bytes]().union(*self._resolve()[0].values())
        return frozenset(name for name, topic in self._topics.items() if topic.topic_id in subscribed)

    # Heartbeats

    def _heartbeat(self, event: ConsumerHeartbeat, now: Instant) -> ConsumerHeartbeatResult:
        try:
            pattern = self._check(event)
            if event.member_epoch in {LEAVING, AWAY}:
                return self._leave(event, now)
            member = self._find_or_join(event) if event.member_epoch == JOINING else self._find(event)
            self._check_epoch(member, event)
        except Refused as refused:
            return ConsumerHeartbeatResult(error=refused.error, message=str(refused), member_id=event.member_id)
        before, assigned_before = member.record(self.group_id), member.assigned
        known = member.member_id in self.members
        if not known:
            self._admit(member)
        subscription_before = member.subscription
        member.update(event, pattern)
        if not known or member.subscription != subscription_before:
            self._retarget(Why.SUBSCRIPTION if known else Why.JOINED)
        self._reconcile(member, event, now)
        self._begin_session(member, now)
        if not known or member.record(self.group_id) != before:
            self._keep(member)
        spoke_fully = event.topics is not None and event.owned is not None and event.rebalance_timeout_ms > 0
        asked_fully = event.member_epoch == JOINING or spoke_fully
        return ConsumerHeartbeatResult(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._interval_ms(member),
            assignment=member.assigned if asked_fully or member.assigned != assigned_before else None,
        )

    def _check(self, event: ConsumerHeartbeat) -> TopicPattern | None:
        """What can be said against the request without knowing who sent it."""
        if event.member_epoch < AWAY:
            raise Refused(GroupError.INVALID_REQUEST, f"member epoch {event.member_epoch} means nothing")
        if event.member_epoch == AWAY and event.instance_id is None:
            raise Refused(GroupError.INVALID_REQUEST, "only a static member leaves with -2: the instance id is missing")
        if event.member_epoch == JOINING:
            if event.rebalance_timeout_ms <= 0:
                raise Refused(GroupError.INVALID_REQUEST, "a member joins with its rebalance timeout")
            if event.topics is None and not event.regex:
                raise Refused(GroupError.INVALID_REQUEST, "a member joins with a subscription")
            if event.owned:
                raise Refused(GroupError.INVALID_REQUEST, "a member joins without partitions")
        elif event.member_id == "":
            raise Refused(GroupError.INVALID_REQUEST, "the member id is missing")
        if event.assignor is not None and event.assignor not in self._settings.assignors:
            offered = ", ".join(self._settings.assignors)
            raise Refused(
                GroupError.UNSUPPORTED_ASSIGNOR, f"there is no assignor {event.assignor}; there are {offered}"
            )
        try:
            return TopicPattern(event.regex) if event.regex else None
        except InvalidPattern as wrong:
            raise Refused(GroupError.INVALID_REGULAR_EXPRESSION, str(wrong)) from None

    def _find(self, event: ConsumerHeartbeat) -> Member:
        if event.instance_id is not None:
            holder = self._instances.get(event.instance_id)
            if holder is None:
                raise Refused(GroupError.UNKNOWN_MEMBER_ID, f"there is no instance {event.instance_id}")
            if holder != event.member_id:
                raise Refused(GroupError.FENCED_INSTANCE_ID, f"instance {event.instance_id} is {holder} now")
        member = self.members.get(event.member_id)
        if member is None:
            raise Refused(GroupError.UNKNOWN_MEMBER_ID, f"there is no member {event.member_id}")
        return member

    def _find_or_join(self, event: ConsumerHeartbeat) -> Member:
        """The member that joins: a new one, one that begins again, or a static one that is back under a new id."""
        if event.instance_id in self._instances:
            old = self.members[self._instances[event.instance_id]]
            if old.member_id == event.member_id:
                return old
            if old.epoch != AWAY:
                raise Refused(GroupError.UNRELEASED_INSTANCE_ID, f"{old.member_id} has not left {event.instance_id}")
            return self._take_over(old, event)
        if event.member_id in self.members:
            return self.members[event.member_id]
        if len(self.members) >= self._settings.consumer_members_max:
            raise Refused(GroupError.GROUP_MAX_SIZE_REACHED, f"the group has {len(self.members)} members already")
        return Member(event.member_id or self._new_id(event.client_id), event.instance_id)

    def _check_epoch(self, member: Member, event: ConsumerHeartbeat) -> None:
        if event.member_epoch in {member.epoch, JOINING}:
            return
        # The answer that told it of its new epoch may have been lost; then it owns nothing that is not its own.
        lost = event.member_epoch == member.previous_epoch and event.owned is not None
        if not (lost and event.owned is not None and event.owned <= member.assigned):
            raise Refused(
                GroupError.FENCED_MEMBER_EPOCH,
                f"{member.member_id} is in epoch {member.epoch}, not {event.member_epoch}; it has to join again",
            )

    def _take_over(self, old: Member, event: ConsumerHeartbeat) -> Member:
        """Same instance, same share: the new process gets what the old one had."""
        self._forget(old, Why.REPLACED)
        member = Member(
            event.member_id or self._new_id(event.client_id),
            instance_id=old.instance_id,
            rack_id=old.rack_id,
            topics=old.topics,
            pattern=old.pattern,
            assignor=old.assignor,
            assigned=old.assigned,
            target=old.target,
        )
        self._admit(member)
        if old.member_id in self._subscribed:
            self._subscribed[member.member_id] = self._subscribed.pop(old.member_id)
        return member

    def _interval_ms(self, member: Member) -> int:
        settled = member.state is MemberState.STABLE
        at_rest_ms = self._paces(self.group_id).consumer.heartbeat_ms
        return at_rest_ms if settled else min(at_rest_ms, self._settings.consumer_reconciling_heartbeat_ms)

    # Targets, and the way there

    def _retarget(self, why: Why) -> None:
        """Something changed that the target depends on: the next epoch begins."""
        self.epoch += 1
        self._out.append(Noted(RebalanceBegan(self.group_id, why)))
        self._remember_shared()
        current = {member_id: member.target for member_id, member in self.members.items()}
        target = self._settings.assignors[self.assignor](Ask(self._shared, self._subscribed, current))
        self._out.append(Persist(ConsumerGroupRecord(self.group_id, self.epoch, self.changed_at)))
        for member_id, member in self.members.items():
            share = target.get(member_id, NOTHING)
            if share != member.target:
                member.target = share
                self._keep(member)
            if member.epoch == AWAY:
                self._trim(member)

    def _remember_shared(self) -> None:
        self._subscribed, self._shared = self._resolve()

    def _believe_targets(self) -> None:
        """After a restart: if topics changed meanwhile, the next `TopicsChanged` is to find that out."""
        subscribed, shared = self._resolve()
        targets = frozenset[TopicIdPartition]().union(*(member.target for member in self.members.values()))
        if targets == frozenset(Ask(shared, subscribed, {}).partitions()):
            self._subscribed, self._shared = subscribed, shared

    def _resolve(self) -> tuple[dict[str, frozenset[bytes]], dict[bytes, int]]:
        """Who subscribes to what, of the topics there are now, and how large those are."""
        by_pattern: dict[str, frozenset[str]] = {}
        subscribed: dict[str, frozenset[bytes]] = {}
        sizes: dict[bytes, int] = {}
        for member in self.members.values():
            names = member.topics
            if member.pattern is not None:
                text = member.pattern.text
                if text not in by_pattern:
                    by_pattern[text] = frozenset(filter(member.pattern.matches, self._topics))
                names |= by_pattern[text]
            topics = [self._topics[name] for name in names if name in self._topics]
            subscribed[member.member_id] = frozenset(topic.topic_id for topic in topics)
            sizes.update(topics)
        return subscribed, sizes

    def _reconcile(self, member: Member, event: ConsumerHeartbeat, now: Instant) -> None:
        state_before, revoking_before = member.state, member.revoking
        if event.member_epoch == JOINING:
            # Whoever joins owns nothing, so nothing has to be waited for; what is still its own it is given again.
            self._trim(member)
            member.state = MemberState.UNRELEASED_PARTITIONS
        holds_before = member.holds
        owned = NOTHING if event.member_epoch == JOINING else event.owned
        member.reconcile(
            group_epoch=self.epoch,
            owned=owned,
            is_free=lambda each: self._holders.get(each) in {None, member.member_id},
        )
        self._release(member, holds_before - member.holds)
        self._holders.update(dict.fromkeys(member.holds - holds_before, member.member_id))
        if member.revoking != revoking_before:
            state_before = MemberState.STABLE
        self._watch_revocation(member, state_before, now)

    def _release(self, member: Member, partitions: frozenset[TopicIdPartition]) -> None:
        for each in partitions:
            if self._holders.get(each) == member.member_id:
                del self._holders[each]

    def _trim(self, member: Member) -> None:
        """A static member that is away keeps its share until its session ends, and reads nothing: the rest is free."""
        self._release(member, member.holds - member.target)
        member.assigned, member.revoking = member.assigned & member.target, NOTHING
        member.state = MemberState.STABLE

    def _watch_revocation(self, member: Member, state_before: MemberState, now: Instant) -> None:
        timer = Timer(Patience.REVOCATION, member.member_id)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._deadlines.clear(timer)
        elif state_before is not MemberState.UNREVOKED_PARTITIONS:
            patience_ms = min(member.rebalance_timeout_ms, self._settings.consumer_rebalance_timeout_ms_max)
            self._deadlines.set(timer, now.monotonic_ms + max(patience_ms, 1))

    # Coming and going

    def _admit(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self._holders.update(dict.fromkeys(member.holds, member.member_id))
        self._out.append(Noted(MemberJoined(self.group_id, member.member_id)))

    def _begin_session(self, member: Member, now: Instant) -> None:
        at_ms = now.monotonic_ms + self._paces(self.group_id).consumer.session_timeout_ms
        self._deadlines.set(Timer(Patience.SESSION, member.member_id), at_ms)

    def _leave(self, event: ConsumerHeartbeat, now: Instant) -> ConsumerHeartbeatResult:
        member = self._find(event)
        if event.member_epoch == AWAY:
            member.advance(AWAY)
            self._trim(member)
            self._watch_revocation(member, member.state, now)
            self._begin_session(member, now)
            self._keep(member)
        else:
            self._forget(member, Why.LEFT)
            self._retarget(Why.LEFT)
        return ConsumerHeartbeatResult(member_id=member.member_id, member_epoch=event.member_epoch)

    def _expire(self, now: Instant) -> None:
        gone: Why | None = None
        while (timer := self._deadlines.take_due(now.monotonic_ms)) is not None:
            gone = Why.SESSION_EXPIRED if timer.patience is Patience.SESSION else Why.NOT_REVOKED
            self._forget(self.members[timer.member_id], gone)
        if gone is not None:
            self._retarget(gone)

    def _forget(self, member: Member, why: Why) -> None:
        del self.members[member.member_id]
        self._dirty.pop(member.member_id, None)
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._release(member, member.holds)
        for patience in Patience:
            self._deadlines.clear(Timer(patience, member.member_id))
        self._out.append(Noted(MemberGone(self.group_id, member.member_id, why)))
        self._out.append(Persist(ConsumerMemberForgotten(self.group_id, member.member_id)))

    # Small change

    def _keep(self, member: Member) -> None:
        self._dirty[member.member_id] = member

    def _state_of_members(self) -> State:
        if not self.members:
            return State.EMPTY
        here = [each for each in self.members.values() if each.epoch != AWAY]
        settled = all(each.epoch == self.epoch and each.state is MemberState.STABLE for each in here)
        return State.STABLE if settled else State.RECONCILING

    def _settle(self, now: Instant) -> None:
        """Writes down what changed, and what the members' states come to for the group."""
        if not (self._dirty or self._out):
            return  # a heartbeat that only says: still here
        for member in self._dirty.values():
            self._out.append(Persist(member.record(self.group_id)))
        self._dirty.clear()
        state = self._state_of_members()
        if state is self.state:
            return
        if state is State.RECONCILING:
            self._reconciling_since = now.monotonic_ms
        else:
            took_ms = now.monotonic_ms - self._reconciling_since if self.state is State.RECONCILING else 0
            self._out.append(Noted(RebalanceEnded(self.group_id, self.epoch, len(self.members), took_ms)))
        self._move(state, now)
        if state is State.EMPTY:
            self._out.append(Persist(ConsumerGroupRecord(self.group_id, self.epoch, self.changed_at)))

    def _move(self, state: State, now: Instant) -> None:
        assert state in LEGAL[self.state], f"{self.group_id}: {self.state} to {state}"
        self.state = state
        self.changed_at = TimestampMs(now.wall_ms)
