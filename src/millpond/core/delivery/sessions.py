"""Share sessions: what a member of a share group reads from this broker, from request to request (KIP-932).

Epoch 0 opens a session with its partitions, every further request counts up by one and names only what is new, -1 ends
it. Invariant: at most `sessions_max` sessions; one for each group and member.
Pure. Driven by broker/operations/share.py.
"""

from collections.abc import Iterable
from dataclasses import field
from enum import Enum
from typing import Final, NamedTuple

from millpond.model.values import dataclass

OPENING: Final = 0
CLOSING: Final = -1
EPOCH_MAX: Final = 2**31 - 1


class Member(NamedTuple):
    group: str
    member_id: str


class PartitionId(NamedTuple):
    topic_id: bytes
    partition: int


class Trouble(Enum):
    """Kafka's codes."""

    NOT_FOUND = 122
    WRONG_EPOCH = 123
    TOO_MANY = 133


@dataclass(slots=True)
class Session:
    member: Member
    epoch: int = OPENING
    """Of the request that comes next."""
    partitions: dict[PartitionId, None] = field(default_factory=dict)

    def in_turn(self) -> list[PartitionId]:
        """Its partitions, each time another one first."""
        if len(self.partitions) > 1:
            first = next(iter(self.partitions))
            del self.partitions[first]
            self.partitions[first] = None
        return list(self.partitions)


class ShareSessions:
    def __init__(self, *, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[Member, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, member: Member) -> Session | Trouble:
        """A new one, in the place of the member's old one."""
        if member not in self._sessions and len(self._sessions) >= self._sessions_max:
            return Trouble.TOO_MANY
        session = self._sessions[member] = Session(member, epoch=1)
        return session

    def go_on(self, member: Member, epoch: int) -> Session | Trouble:
        """The session of a further request, or of the last."""
        session = self._sessions.get(member)
        if session is None:
            return Trouble.NOT_FOUND
        if epoch == CLOSING:
            del self._sessions[member]
            return session
        if epoch != session.epoch:
            return Trouble.WRONG_EPOCH
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def drop(self, session: Session) -> bool:
        """Its connection is gone; whether it was the member's still."""
        if self._sessions.get(session.member) is not session:
            return False
        del self._sessions[session.member]
        return True


def update(session: Session, *, named: Iterable[PartitionId], forgotten: Iterable[PartitionId]) -> None:
    session.partitions.update(dict.fromkeys(named))
    for each in forgotten:
        session.partitions.pop(each, None)
