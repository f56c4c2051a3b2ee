"""What a node finds on its disk when it starts, and what its log is made of. Pure."""

from enum import IntEnum
from typing import Final

from millpond.core.raft.membership import Membership
from millpond.model.values import dataclass

FIRST_TERM: Final = 1
"""In which founders begin, and nobody leads."""


class EntryKind(IntEnum):
    """Numbers are on disk: never changed, never used for anything else."""

    DATA = 0
    NOOP = 1
    """A new leader's first entry: once it is committed, so is everything before it."""
    MEMBERSHIP = 2
    """In force as soon as it is in the log, committed or not."""


@dataclass(frozen=True, slots=True)
class Entry:
    index: int
    term: int
    kind: EntryKind
    data: bytes


@dataclass(frozen=True, slots=True)
class HardState:
    """Must be on disk before a word that depends on it leaves the node."""

    term: int = 0
    voted_for: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after applying everything up to `index`, in the application's own bytes."""

    index: int
    term: int
    membership: Membership
    data: bytes


@dataclass(frozen=True, slots=True)
class DurableState:
    """All that a crash leaves: the newest snapshot, and the entries after it (older ones are allowed, and ignored)."""

    hard_state: HardState
    snapshot: Snapshot
    entries: tuple[Entry, ...] = ()

    @classmethod
    def first(cls, membership: Membership) -> "DurableState":
        """Of a node that helps to found a cluster; every founder begins with the same, and has it on disk first.

        The founders are an entry like any later membership, so that a node that joins learns of them from the log.
        """
        founders = Entry(1, FIRST_TERM, EntryKind.MEMBERSHIP, membership.to_bytes())
        return cls(HardState(term=FIRST_TERM), _NOTHING, (founders,))

    @classmethod
    def joining(cls) -> "DurableState":
        """Of a node that is to be added to a cluster: it waits to be spoken to."""
        return cls(HardState(), _NOTHING)


_NOTHING = Snapshot(0, 0, Membership(()), b"")
