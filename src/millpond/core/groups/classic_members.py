"""The members of one classic group: who they are, which protocol they agree on, what the log keeps of them.

Invariant: an instance id names at most one member, and that member is in the group.
Pure; `classic.py` decides.
"""

from collections import Counter
from collections.abc import Iterator

from millpond.core.groups.classic_events import JoinGroup, Protocols
from millpond.core.groups.effects import Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import ClassicMemberRecord
from millpond.core.groups.subscriptions import CONSUMER, subscribed_topics
from millpond.model.values import dataclass


@dataclass(slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = True
    """Its first join is not answered yet."""
    joining: Token | None = None
    """Its join, while that waits for an answer."""
    syncing: Token | None = None
    can_skip_assignment: bool = False

    @classmethod
    def of(cls, event: JoinGroup, member_id: str) -> "Member":
        return cls(
            member_id=member_id,
            instance_id=event.instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            session_timeout_ms=event.session_timeout_ms,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            protocols=event.protocols,
            can_skip_assignment=event.can_skip_assignment,
        )

    @classmethod
    def restored(cls, record: ClassicMemberRecord, protocol: str | None) -> "Member":
        return cls(
            member_id=record.member_id,
            instance_id=record.instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            session_timeout_ms=record.session_timeout_ms,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            protocols=((protocol, record.subscription),) if protocol is not None else (),
            assignment=record.assignment,
            is_new=False,
        )

    def update(self, event: JoinGroup) -> None:
        """A join again may say everything anew, except who it is."""
        self.protocols = event.protocols
        self.session_timeout_ms = event.session_timeout_ms
        self.rebalance_timeout_ms = event.rebalance_timeout_ms
        self.client_id = event.client_id
        self.client_host = event.client_host
        self.can_skip_assignment = event.can_skip_assignment

    def supports(self, protocol: str) -> bool:
        return any(name == protocol for name, _ in self.protocols)

    def metadata_for(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def record(self, protocol: str | None) -> ClassicMemberRecord:
        return ClassicMemberRecord(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata_for(protocol),
            assignment=self.assignment,
        )


class Members:
    """In the order in which they came."""

    __slots__ = ("_by_id", "_by_instance")

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def of_instance(self, instance_id: str | None) -> Member | None:
        return self._by_id[self._by_instance[instance_id]] if instance_id in self._by_instance else None

    def add(self, member: Member) -> None:
        assert member.member_id not in self._by_id
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._by_instance
            self._by_instance[member.instance_id] = member.member_id

    def remove(self, member: Member) -> None:
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]

    def find(self, member_id: str, instance_id: str | None) -> Member | GroupError:
        """Whoever speaks, or why it may not: every request that names a member begins here."""
        if instance_id is not None:
            holder = self.of_instance(instance_id)
            if holder is None:
                return GroupError.UNKNOWN_MEMBER_ID
            return holder if holder.member_id == member_id else GroupError.FENCED_INSTANCE_ID
        return self._by_id.get(member_id, GroupError.UNKNOWN_MEMBER_ID)

    def subscribed_topics(self, protocol_type: str | None, protocol: str | None) -> frozenset[str] | None:
        """The topics they read; None where they are no consumers, and nobody can tell."""
        if protocol_type != CONSUMER and len(self):
            return None
        metadata = [each.metadata_for(protocol) or (each.protocols[0][1] if each.protocols else b"") for each in self]
        return frozenset(topic for each in metadata for topic in subscribed_topics(each))

    def shared_protocols(self) -> set[str]:
        shared: set[str] | None = None
        for member in self:
            names = {name for name, _ in member.protocols}
            shared = names if shared is None else shared & names
        return shared or set()

    def elect_protocol(self, leader: Member) -> str:
        """Each member votes for the first of its list that all support; a tie goes to the leader's taste."""
        shared = self.shared_protocols()
        assert shared, "a member that shares no protocol is not let in"
        votes = Counter(next(name for name, _ in member.protocols if name in shared) for member in self)
        most = max(votes.values())
        return next(name for name, _ in leader.protocols if votes[name] == most)
