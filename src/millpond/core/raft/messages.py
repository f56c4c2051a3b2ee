"""What nodes say to each other, as values. `encoding.py` makes bytes of them.

Every message carries its sender's term, apart from pre-votes, which carry the term the sender would campaign in.
Pure.
"""

from millpond.core.raft.durable import Entry
from millpond.core.raft.membership import Membership
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    sender: int
    to: int
    term: int
    last_index: int
    last_term: int
    pre: bool = False
    """Only asks whether a campaign could be won; changes nothing at the receiver."""
    transfer: bool = False
    """The leader itself asked for this election, so that its being alive is no reason to refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteAnswer:
    sender: int
    to: int
    term: int
    granted: bool
    pre: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    sender: int
    to: int
    term: int
    prev_index: int
    prev_term: int
    commit: int
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendAccepted:
    """Everything up to `match` is on the sender's disk, and is what the leader has there."""

    sender: int
    to: int
    term: int
    match: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRejected:
    """The entry at `prev_index` is not the one named; nothing after `hint_index`, of `hint_term`, can match either."""

    sender: int
    to: int
    term: int
    prev_index: int
    hint_index: int
    hint_term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    sender: int
    to: int
    term: int
    round: int
    """Counts the leader's heartbeats: when a majority has answered one, the leader still led when it was sent."""
    commit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """Also said to a leader whose term is over, so that it learns of the newer one; `round` is 0 then."""

    sender: int
    to: int
    term: int
    round: int
    session: int
    """Drawn when the sender's process started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChunk:
    sender: int
    to: int
    term: int
    index: int
    index_term: int
    membership: Membership
    bytes_total: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotWanted:
    """The sender has this much of the snapshot at `index`, and wants the rest."""

    sender: int
    to: int
    term: int
    index: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutNow:
    """Campaign at once. Counts only if `round` is the last one heard and `session` the receiver's: never when late."""

    sender: int
    to: int
    term: int
    round: int
    session: int


FromLeader = Append | Heartbeat | SnapshotChunk | TimeoutNow
Answer = VoteAnswer | AppendAccepted | AppendRejected | HeartbeatAnswer | SnapshotWanted
Message = VoteRequest | FromLeader | Answer
