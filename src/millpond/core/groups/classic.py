"""A classic consumer group: members join, a leader assigns, everybody syncs, heartbeats keep it so.

              join                    all joined again,            the leader's
    EMPTY ───────────▶ PREPARING      or time is up      COMPLETING   sync       STABLE
      ▲                 REBALANCE  ──────────────────▶   REBALANCE ───────────▶    │
      │  nobody left    ▲  │  ▲                             │  join, leave, expiry │
      └─────────────────┼──┘  └─────────────────────────────┘                      │
                        └──────────────────────────────────────────────────────────┘

Invariants: a generation is given out once and only grows; a request for a member of another generation changes
nothing; a join or sync that waits has a deadline behind it; the leader is a member, as long as there is one.
Pure: `step` takes `now` and returns effects, to be performed in order. Driven by broker/drivers/groups.py.
"""

from collections.abc import Callable
from enum import Enum
from typing import assert_never

from millpond.core.groups.classic_events import (
    ClassicEvent,
    Heartbeat,
    HeartbeatResult,
    JoinedMember,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    Leaving,
    SyncGroup,
    SyncResult,
    Tick,
)
from millpond.core.groups.classic_members import Member, Members
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
from millpond.core.groups.records import ClassicGroupRecord
from millpond.core.groups.settings import GroupSettings
from millpond.model.ids import TimestampMs
from millpond.model.instant import Instant


class State(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL: dict[State, set[State]] = {
    State.EMPTY: {State.PREPARING_REBALANCE, State.DEAD},
    State.PREPARING_REBALANCE: {State.COMPLETING_REBALANCE, State.EMPTY},
    State.COMPLETING_REBALANCE: {State.STABLE, State.PREPARING_REBALANCE},
    State.STABLE: {State.PREPARING_REBALANCE},
    State.DEAD: set(),
}


class Timer(Enum):
    """Deadlines of the whole group; those of a member are kept under its id."""

    JOIN = "the rebalance goes on without those who have not joined again"
    SYNC = "members that never fetched their assignment are taken for dead"


class ClassicGroup:
    def __init__(self, group_id: str, settings: GroupSettings, new_id: Callable[[str], str], *, now: Instant) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members = Members()
        self.changed_at = TimestampMs(now.wall_ms)
        """When the state last changed, by the wall."""
        self._settings = settings
        self._new_id = new_id
        self._promised: dict[str, None] = {}  # ids handed out with MEMBER_ID_REQUIRED, not used yet
        self._unsynced: set[str] = set()
        self._deadlines: Deadlines[str | Timer] = Deadlines()
        # The first rebalance of an empty group waits for company: how long it may still, and whether somebody came.
        self._delay_left_ms: int | None = None
        self._delay_prolonged = False
        self._rebalancing_since = now.monotonic_ms
        self._is_first = False  # the rebalance that is on: whether it began with nobody, and so waits for no promise
        self._out: list[Effect] = []

    @classmethod
    def restore(
        cls, record: ClassicGroupRecord, settings: GroupSettings, new_id: Callable[[str], str], *, now: Instant
    ) -> "ClassicGroup":
        """As the log remembers it; every member gets a whole session to show itself again."""
        group = cls(record.group, settings, new_id, now=now)
        group.generation = record.generation
        group.protocol_type = record.protocol_type or None
        group.protocol = record.protocol
        group.leader = record.leader
        group.changed_at = record.changed_at
        for each in record.members:
            member = Member.restored(each, record.protocol)
            group.members.add(member)
            group._begin_session(member, now)
        if len(group.members):
            group.state = State.STABLE
        return group

    def step(self, event: ClassicEvent, *, now: Instant) -> list[Effect]:
        self._out = []
        match event:
            case JoinGroup():
                self._join(event, now)
            case SyncGroup():
                self._sync(event, now)
            case Heartbeat():
                self._reply(event, HeartbeatResult(self._heartbeat(event, now)))
            case LeaveGroup():
                self._leave(event, now)
            case Tick():
                self._expire(now)
            case _:
                assert_never(event)
        return self._out

    @property
    def next_deadline(self) -> int | None:
        """On the monotonic clock: a `Tick` is due then."""
        return self._deadlines.next()

    @property
    def promised(self) -> frozenset[str]:
        return frozenset(self._promised)

    def subscribed_topics(self) -> frozenset[str] | None:
        """None where nobody can tell."""
        return self.members.subscribed_topics(self.protocol_type, self.protocol)

    def bury(self, *, now: Instant) -> None:
        """The group is deleted; only an empty one may be."""
        self._move(State.DEAD, now)

    def admit_commit(self, *, member_id: str, instance_id: str | None, generation: int, now: Instant) -> GroupError:
        """Whether this member may commit offsets now; if so, that counts as a heartbeat.

        Consumers that assign their partitions themselves, and administrators, come without a member id; they may
        write while nobody else is there.
        """
        if generation < 0 and self.state is State.EMPTY:
            return GroupError.NONE
        member = self.members.find(member_id, instance_id)
        if isinstance(member, GroupError):
            return member
        if generation != self.generation:
            return GroupError.ILLEGAL_GENERATION
        if self.state is State.COMPLETING_REBALANCE:
            return GroupError.REBALANCE_IN_PROGRESS  # its partitions may be another's already
        self._begin_session(member, now)
        return GroupError.NONE

    # Joining

    def _join(self, event: JoinGroup, now: Instant) -> None:
        error = self._check_join(event)
        if error is not GroupError.NONE:
            self._reply(event, JoinResult(error=error, member_id=event.member_id))
        elif event.member_id == "":
            self._join_unknown(event, now)
        elif event.member_id in self._promised and event.instance_id is None:
            self._add(event, event.member_id, now)
        else:
            self._join_known(event, now)

    def _check_join(self, event: JoinGroup) -> GroupError:
        settings = self._settings
        if self.state is State.DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        if not settings.session_timeout_ms_min <= event.session_timeout_ms <= settings.session_timeout_ms_max:
            return GroupError.INVALID_SESSION_TIMEOUT
        if not self._agrees(event):
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        newcomer = self.members.get(event.member_id) is None and self.members.of_instance(event.instance_id) is None
        promises = 0 if event.member_id in self._promised else len(self._promised)
        if newcomer and max(len(self.members), promises) >= settings.members_max:
            return GroupError.GROUP_MAX_SIZE_REACHED
        return GroupError.NONE

    def _agrees(self, event: JoinGroup) -> bool:
        """Whether with this join the group still has a protocol that all members speak."""
        if not event.protocol_type or not event.protocols:
            return False
        replaced = self.members.of_instance(event.instance_id)
        others = [each for each in self.members if each.member_id != event.member_id and each is not replaced]
        if not others:
            return True
        return event.protocol_type == self.protocol_type and any(
            all(each.supports(name) for each in others) for name, _ in event.protocols
        )

    def _join_unknown(self, event: JoinGroup, now: Instant) -> None:
        holder = self.members.of_instance(event.instance_id)
        if holder is not None:
            self._take_over(holder, event, now)
            return
        member_id = self._new_id(event.instance_id or event.client_id)
        if event.instance_id is not None or not event.requires_known_member_id:
            self._add(event, member_id, now)
            return
        # A client that never comes back with the id costs a name and a deadline, not a rebalance.
        self._promised[member_id] = None
        self._deadlines.set(member_id, now.monotonic_ms + event.session_timeout_ms)
        self._reply(event, JoinResult(error=GroupError.MEMBER_ID_REQUIRED, member_id=member_id))

    def _add(self, event: JoinGroup, member_id: str, now: Instant) -> None:
        self._promised.pop(member_id, None)
        member = Member.of(event, member_id)
        member.joining = event.token
        self.members.add(member)
        self._believe_type(event)
        self._deadlines.set(member_id, now.monotonic_ms + self._settings.new_member_join_timeout_ms)
        if self.leader is None:
            self.leader = member_id
        self._delay_prolonged = True
        self._out.append(Noted(MemberJoined(self.group_id, member_id)))
        self._rebalance(Why.JOINED, now)

    def _join_known(self, event: JoinGroup, now: Instant) -> None:
        member = self.members.find(event.member_id, event.instance_id)
        if isinstance(member, GroupError):
            self._reply(event, JoinResult(error=member, member_id=event.member_id))
            return
        unchanged = member.protocols == event.protocols
        if self.state is State.COMPLETING_REBALANCE and unchanged:
            self._unsynced.add(member.member_id)  # the answer to its join was lost, or it comes late
            self._begin_session(member, now)
            self._reply(event, self._joined(member))
        elif self.state is State.STABLE and unchanged and member.member_id != self.leader:
            self._begin_session(member, now)
            self._reply(event, self._joined(member))
        else:
            # A leader that joins again asks for a rebalance: that is how it says that topics have changed.
            self._join_again(member, event)
            self._rebalance(Why.REJOINED, now)

    def _join_again(self, member: Member, event: JoinGroup) -> None:
        if member.joining is not None:  # sent twice: the first one's connection is gone
            again = JoinResult(error=GroupError.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            self._out.append(Reply(member.joining, again))
        member.update(event)
        member.joining = event.token
        self._believe_type(event)
        if not member.is_new:
            self._deadlines.clear(member.member_id)  # it waits for us now

    def _take_over(self, old: Member, event: JoinGroup, now: Instant) -> None:
        """A static member's process was restarted: same member, same assignment, under a new id."""
        self._dismiss(old, GroupError.FENCED_INSTANCE_ID)
        self.members.remove(old)
        self._unsynced.discard(old.member_id)
        member = Member.of(event, self._new_id(event.instance_id or event.client_id))
        member.assignment, member.is_new = old.assignment, False
        self.members.add(member)
        self._believe_type(event)
        leader_before = self.leader
        if self.leader == old.member_id:
            self.leader = member.member_id
        self._out.append(Noted(MemberGone(self.group_id, old.member_id, Why.REPLACED)))
        self._out.append(Noted(MemberJoined(self.group_id, member.member_id)))
        if self.state is State.STABLE and self._elected_protocol() == self.protocol:
            self._begin_session(member, now)
            self._persist()
            self._reply(event, self._returned(member, leader_before))
        else:
            member.joining = event.token
            self._rebalance(Why.RETURNED, now)

    def _returned(self, member: Member, leader_before: str | None) -> JoinResult:
        if member.member_id == self.leader and not member.can_skip_assignment:
            # An older client told that it leads would assign anew, and nobody would come for it: it hears the id it
            # had, takes itself for a follower, and fetches the assignment it had.
            return self._joined(member, leader=leader_before, members=())
        return self._joined(member, skip_assignment=member.member_id == self.leader)

    # Rebalancing

    def _rebalance(self, why: Why, now: Instant) -> None:
        """Gathers the members for a next generation, unless that has begun already."""
        if self.state is not State.PREPARING_REBALANCE:
            self._begin_rebalance(why, now)
        if self._delay_left_ms is None:
            self._complete_if_all_joined(now)

    def _begin_rebalance(self, why: Why, now: Instant) -> None:
        for member in self.members:
            if member.syncing is not None:
                self._answer_sync(member, SyncResult(error=GroupError.REBALANCE_IN_PROGRESS))
                self._begin_session(member, now)
        self._unsynced.clear()
        self._deadlines.clear(Timer.SYNC)
        self._out.append(Noted(RebalanceBegan(self.group_id, why)))
        self._rebalancing_since = now.monotonic_ms
        longest_ms = self._longest_rebalance_ms()
        delay_ms = min(self._settings.initial_rebalance_delay_ms, longest_ms)
        self._is_first = self.state is State.EMPTY
        if self._is_first and delay_ms > 0:
            self._delay_left_ms = longest_ms - delay_ms
            self._delay_prolonged = False
            self._deadlines.set(Timer.JOIN, now.monotonic_ms + delay_ms)
        else:
            self._delay_left_ms = None
            self._deadlines.set(Timer.JOIN, now.monotonic_ms + longest_ms)
        self._move(State.PREPARING_REBALANCE, now)

    def _complete_if_all_joined(self, now: Instant) -> None:
        if (self._is_first or not self._promised) and all(member.joining is not None for member in self.members):
            self._complete_join(now)

    def _join_time_is_up(self, now: Instant) -> None:
        if self._delay_left_ms and self._delay_prolonged:
            delay_ms = min(self._settings.initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms -= delay_ms
            self._delay_prolonged = False
            self._deadlines.set(Timer.JOIN, now.monotonic_ms + delay_ms)
            return
        for member in [each for each in self.members if each.joining is None and each.instance_id is None]:
            self._remove(member, Why.NOT_REJOINED)
        if len(self.members) and all(member.joining is None for member in self.members):
            # Only static members are left, and all are away: there is nobody to lead yet. Their sessions go on.
            self._delay_left_ms = None
            self._deadlines.set(Timer.JOIN, now.monotonic_ms + self._longest_rebalance_ms())
            return
        self._complete_join(now)

    def _complete_join(self, now: Instant) -> None:
        self._delay_left_ms = None
        self._deadlines.clear(Timer.JOIN)
        self.generation += 1
        if not len(self.members):
            self.protocol, self.leader = None, None
            self._move(State.EMPTY, now)
            self._persist()
            self._note_end(now)
            return
        leader = self.members.get(self.leader or "")
        if leader is None or leader.joining is None:
            leader = next(member for member in self.members if member.joining is not None)
            self.leader = leader.member_id
        self.protocol = self.members.elect_protocol(leader)
        self._move(State.COMPLETING_REBALANCE, now)
        self._deadlines.set(Timer.SYNC, now.monotonic_ms + self._longest_rebalance_ms())
        for member in self.members:
            member.assignment = b""
            if member.joining is not None:
                self._out.append(Reply(member.joining, self._joined(member)))
                member.joining, member.is_new = None, False
                self._unsynced.add(member.member_id)
                self._begin_session(member, now)

    def _joined(
        self,
        member: Member,
        *,
        leader: str | None = None,
        members: tuple[JoinedMember, ...] | None = None,
        skip_assignment: bool = False,
    ) -> JoinResult:
        if members is None and member.member_id == self.leader:
            members = tuple(
                JoinedMember(each.member_id, each.instance_id, each.metadata_for(self.protocol))
                for each in self.members
            )
        return JoinResult(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=leader or self.leader or "",
            members=members or (),
            skip_assignment=skip_assignment,
        )

    # Syncing, and staying

    def _sync(self, event: SyncGroup, now: Instant) -> None:
        member = self._speaker(event)
        if isinstance(member, GroupError):
            self._reply(event, SyncResult(error=member))
        elif self._contradicts(event):
            self._reply(event, SyncResult(error=GroupError.INCONSISTENT_GROUP_PROTOCOL))
        elif self.state is State.COMPLETING_REBALANCE:
            self._gather_sync(member, event, now)
        elif self.state is State.STABLE:
            self._has_come_for_it(member)
            self._begin_session(member, now)
            self._reply(event, self._synced(member))
        else:
            self._reply(event, SyncResult(error=GroupError.REBALANCE_IN_PROGRESS))

    def _contradicts(self, event: SyncGroup) -> bool:
        return (event.protocol_type is not None and event.protocol_type != self.protocol_type) or (
            event.protocol is not None and event.protocol != self.protocol
        )

    def _gather_sync(self, member: Member, event: SyncGroup, now: Instant) -> None:
        if member.syncing is not None:  # sent twice: the first one's connection is gone
            self._answer_sync(member, SyncResult(error=GroupError.REBALANCE_IN_PROGRESS))
        member.syncing = event.token
        self._has_come_for_it(member)
        self._deadlines.clear(member.member_id)  # it waits for us now
        if member.member_id != self.leader:
            return
        assignments = dict(event.assignments)
        for each in self.members:
            each.assignment = assignments.get(each.member_id, b"")
        self._move(State.STABLE, now)
        self._persist()
        for each in self.members:
            if each.syncing is not None:
                self._answer_sync(each, self._synced(each))
                self._begin_session(each, now)
        self._note_end(now)

    def _has_come_for_it(self, member: Member) -> None:
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._deadlines.clear(Timer.SYNC)

    def _synced(self, member: Member) -> SyncResult:
        return SyncResult(protocol_type=self.protocol_type, protocol=self.protocol, assignment=member.assignment)

    def _heartbeat(self, event: Heartbeat, now: Instant) -> GroupError:
        member = self._speaker(event)
        if isinstance(member, GroupError):
            return member
        self._begin_session(member, now)
        preparing = self.state is State.PREPARING_REBALANCE
        return GroupError.REBALANCE_IN_PROGRESS if preparing else GroupError.NONE

    def _speaker(self, event: SyncGroup | Heartbeat) -> Member | GroupError:
        member = self.members.find(event.member_id, event.instance_id)
        if isinstance(member, Member) and event.generation != self.generation:
            return GroupError.ILLEGAL_GENERATION
        return member

    def _begin_session(self, member: Member, now: Instant) -> None:
        """While a join or sync waits for us there is no session to keep: the group's own deadlines bound the wait."""
        if member.is_new or (member.joining is None and member.syncing is None):
            timeout_ms = self._settings.new_member_join_timeout_ms if member.is_new else member.session_timeout_ms
            self._deadlines.set(member.member_id, now.monotonic_ms + timeout_ms)

    # Leaving

    def _leave(self, event: LeaveGroup, now: Instant) -> None:
        members_before = len(self.members)
        answers = tuple((leaving, self._let_go(leaving)) for leaving in event.members)
        self._reply(event, LeaveResult(GroupError.NONE, answers))
        if len(self.members) < members_before:
            self._go_on_without(Why.LEFT, now)
        else:
            self._stop_waiting(now)

    def _let_go(self, leaving: Leaving) -> GroupError:
        if leaving.instance_id is None and leaving.member_id in self._promised:
            self._break_promise(leaving.member_id)
            return GroupError.NONE
        member: Member | GroupError | None
        if leaving.instance_id is not None and leaving.member_id == "":
            member = self.members.of_instance(leaving.instance_id)  # an administrator names the instance only
        else:
            member = self.members.find(leaving.member_id, leaving.instance_id)
        if member is None:
            return GroupError.UNKNOWN_MEMBER_ID
        if isinstance(member, GroupError):
            return member
        self._remove(member, Why.LEFT)
        return GroupError.NONE

    def _expire(self, now: Instant) -> None:
        # One at a time: what is done for the first may give the second more time.
        while (key := self._deadlines.take_due(now.monotonic_ms)) is not None:
            if key is Timer.JOIN:
                self._join_time_is_up(now)
            elif key is Timer.SYNC:
                self._sync_time_is_up(now)
            elif isinstance(key, str):
                self._member_time_is_up(key, now)

    def _member_time_is_up(self, member_id: str, now: Instant) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self._remove(member, Why.SESSION_EXPIRED)
            self._go_on_without(Why.SESSION_EXPIRED, now)
        elif member_id in self._promised:
            self._break_promise(member_id)
            self._stop_waiting(now)

    def _sync_time_is_up(self, now: Instant) -> None:
        if not self._unsynced:
            return
        for member in [each for each in self.members if each.member_id in self._unsynced]:
            self._remove(member, Why.NOT_SYNCED)
        self._go_on_without(Why.NOT_SYNCED, now)

    def _break_promise(self, member_id: str) -> None:
        del self._promised[member_id]
        self._deadlines.clear(member_id)

    def _remove(self, member: Member, why: Why) -> None:
        self._dismiss(member, GroupError.UNKNOWN_MEMBER_ID)
        self.members.remove(member)
        self._unsynced.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = next((each.member_id for each in self.members), None)
        self._out.append(Noted(MemberGone(self.group_id, member.member_id, why)))

    def _dismiss(self, member: Member, error: GroupError) -> None:
        """Ends whatever the member waits for."""
        self._deadlines.clear(member.member_id)
        if member.joining is not None:
            self._out.append(Reply(member.joining, JoinResult(error=error, member_id=member.member_id)))
            member.joining = None
        if member.syncing is not None:
            self._answer_sync(member, SyncResult(error=error))

    def _go_on_without(self, why: Why, now: Instant) -> None:
        """Somebody is gone: those who stay share what is left."""
        if self.state is State.PREPARING_REBALANCE:
            self._stop_waiting(now)
        else:
            self._rebalance(why, now)

    def _stop_waiting(self, now: Instant) -> None:
        """Somebody for whom a rebalance may have waited will not come."""
        company_may_come = self._delay_left_ms is not None and len(self.members) > 0
        if self.state is State.PREPARING_REBALANCE and not company_may_come:
            self._complete_if_all_joined(now)

    def _believe_type(self, event: JoinGroup) -> None:
        if len(self.members) == 1:
            self.protocol_type = event.protocol_type

    def _longest_rebalance_ms(self) -> int:
        return max(
            (member.rebalance_timeout_ms for member in self.members if member.rebalance_timeout_ms > 0), default=1
        )

    def _elected_protocol(self) -> str | None:
        leader = self.members.get(self.leader or "")
        return self.members.elect_protocol(leader) if leader is not None else None

    def _answer_sync(self, member: Member, result: SyncResult) -> None:
        assert member.syncing is not None
        self._out.append(Reply(member.syncing, result))
        member.syncing = None

    def _reply(self, event: JoinGroup | SyncGroup | Heartbeat | LeaveGroup, result: object) -> None:
        self._out.append(Reply(event.token, result))

    def _persist(self) -> None:
        self._out.append(Persist(self.record()))

    def record(self) -> ClassicGroupRecord:
        return ClassicGroupRecord(
            group=self.group_id,
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            members=tuple(member.record(self.protocol) for member in self.members),
            changed_at=self.changed_at,
        )

    def _note_end(self, now: Instant) -> None:
        took_ms = now.monotonic_ms - self._rebalancing_since
        self._out.append(Noted(RebalanceEnded(self.group_id, self.generation, len(self.members), took_ms)))

    def _move(self, state: State, now: Instant) -> None:
        assert state in LEGAL[self.state], f"{self.group_id}: {self.state} to {state}"
        self.state = state
        self.changed_at = TimestampMs(now.wall_ms)
