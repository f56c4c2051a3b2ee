"""What a node asks of its driver, and what it answers callers with.

The driver drains one `Output` after each input and may do its parts side by side, with two rules: persists are
performed one after another in their order, and `persisted(number)` is called when one is durable. Pure.
"""

from enum import Enum

from millpond.core.raft.durable import Entry, HardState, Snapshot
from millpond.core.raft.membership import Membership
from millpond.core.raft.messages import Message
from millpond.model.values import dataclass


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """To be performed in the order of its fields; a crash between two of them, or amid the entries, does no harm.

    The snapshot takes the place of every entry up to its index.
    """

    number: int
    hard_state: HardState | None
    truncate_from: int | None
    snapshot: Snapshot | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class RoleChanged:
    role: Role
    term: int
    leader: int | None


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """In force from now on; taken back by another of these, if the entry at `index` is truncated."""

    membership: Membership
    index: int


Fact = RoleChanged | MembershipChanged


@dataclass(frozen=True, slots=True)
class ReadReady:
    """Whoever has applied everything up to `index` may answer what was asked under `token`."""

    token: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    messages: tuple[Message, ...]
    persist: Persist | None
    restore: Snapshot | None
    """Replaces the application's state; comes before `committed`."""
    committed: tuple[Entry, ...]
    """To apply, in order, each once in the life of a process; all are on this node's disk."""
    reads: tuple[ReadReady, ...]
    reads_refused: tuple[int, ...]
    """Tokens of reads that lost their leader; ask again, elsewhere."""
    facts: tuple[Fact, ...]

    def __bool__(self) -> bool:
        return any(
            (self.messages, self.persist, self.restore, self.committed, self.reads, self.reads_refused, self.facts)
        )


@dataclass(frozen=True, slots=True)
class Proposed:
    """It is committed when an entry of this index *and* term comes out; another term there means it was lost."""

    index: int
    term: int


class Reason(Enum):
    NOT_LEADER = "this node does not lead"
    TRANSFERRING = "the leader is handing over"
    TOO_MANY_IN_FLIGHT = "too many proposals, bytes or reads are under way; try again when some are done"
    TOO_LARGE = "the proposal is larger than an entry may be"
    NOT_SETTLED = "the leader has not yet committed an entry of its own term"
    CHANGE_UNDER_WAY = "the last change of membership is not committed yet"
    NO_SUCH_NODE = "the node is not a member of the kind that is needed"
    ALREADY_A_MEMBER = "the node is a member already"
    TOO_FAR_BEHIND = "the learner lacks too many entries to vote"
    LAST_VOTER = "the last voter cannot leave"
    TOO_MANY_MEMBERS = "the quorum has as many members as it may"


@dataclass(frozen=True, slots=True)
class Refused:
    reason: Reason
    leader: int | None
    """Whom to ask instead, as far as this node knows."""
