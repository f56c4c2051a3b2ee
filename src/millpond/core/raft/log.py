"""The entries since the last snapshot, in memory, and what is committed of them.

Invariant: entries follow each other without gaps, terms never fall, `commit` never moves back, and nothing up to
`commit` is ever cut off.
Pure. Belongs to raft.py; what of it is on disk is durability.py's to know.
"""

from collections.abc import Sequence

from millpond.core.raft.durable import Entry, EntryKind, Snapshot
from millpond.core.raft.membership import Membership
from millpond.core.raft.settings import ENTRIES_PER_MESSAGE_MAX


class RaftLog:
    __slots__ = ("_base_index", "_base_term", "_entries", "_memberships", "commit", "snapshot")

    def __init__(self, snapshot: Snapshot, entries: Sequence[Entry] = ()) -> None:
        self.snapshot = snapshot
        self._base_index = snapshot.index
        self._base_term = snapshot.term
        self._entries: list[Entry] = []
        self._memberships: list[tuple[int, Membership]] = [(snapshot.index, snapshot.membership)]
        """Each with the index of its entry; the first is the one in force at the base."""
        self.commit = snapshot.index
        self.append([entry for entry in entries if entry.index > snapshot.index])

    @property
    def base_index(self) -> int:
        """Of the last entry that is only in the snapshot."""
        return self._base_index

    @property
    def last_index(self) -> int:
        return self._base_index + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self._base_term

    @property
    def membership(self) -> Membership:
        return self._memberships[-1][1]

    @property
    def membership_index(self) -> int:
        return self._memberships[-1][0]

    @property
    def memberships(self) -> list[Membership]:
        """Every one that the snapshot or an entry names."""
        return [membership for _, membership in self._memberships]

    def membership_at(self, index: int) -> Membership:
        return [membership for at, membership in self._memberships if at <= index][-1]

    def term_at(self, index: int) -> int | None:
        """None before the base, whose entries are gone, and after the end."""
        if index == self._base_index:
            return self._base_term
        if self._base_index < index <= self.last_index:
            return self._entries[index - self._base_index - 1].term
        return None

    def slice(self, start: int, end: int) -> tuple[Entry, ...]:
        """From `start` up to and including `end`."""
        assert self._base_index < start, (self._base_index, start)
        return tuple(self._entries[start - self._base_index - 1 : end - self._base_index])

    def slice_by_bytes(self, start: int, bytes_max: int) -> tuple[Entry, ...]:
        """From `start` on, as far as the bytes go; at least one entry, where there is one."""
        end, size = start - 1, 0
        first = start - self._base_index - 1
        for place in range(first, min(len(self._entries), first + ENTRIES_PER_MESSAGE_MAX)):
            size += len(self._entries[place].data)
            if size > bytes_max and end >= start:
                break
            end += 1
        return self.slice(start, end)

    def is_as_good(self, *, last_index: int, last_term: int) -> bool:
        """Whether a log that ends so has everything that could be committed here."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def last_index_of_term_up_to(self, term: int, *, index: int) -> int:
        """The last place up to `index` whose term is not above `term`: where another log may still agree."""
        index = min(index, self.last_index)
        while index > self._base_index and self._entries[index - self._base_index - 1].term > term:
            index -= 1
        return index

    def append(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            assert entry.index == self.last_index + 1, (entry.index, self.last_index)
            assert entry.term >= self.last_term, (entry.term, self.last_term)
            self._entries.append(entry)
            if entry.kind is EntryKind.MEMBERSHIP:
                self._memberships.append((entry.index, Membership.from_bytes(entry.data)))

    def truncate_from(self, index: int) -> None:
        assert index > self.commit, (index, self.commit)
        del self._entries[index - self._base_index - 1 :]
        while self._memberships[-1][0] >= index:
            self._memberships.pop()

    def commit_to(self, index: int) -> None:
        assert self.commit <= index <= self.last_index, (self.commit, index, self.last_index)
        self.commit = index

    def compact(self, upto: int, snapshot: Snapshot) -> None:
        """Forgets the entries up to `upto`; the snapshot holds them, and may hold more."""
        assert self._base_index <= upto <= snapshot.index <= self.commit, (upto, snapshot.index, self.commit)
        term, membership = self.term_at(upto), self.membership_at(upto)
        assert term is not None
        del self._entries[: upto - self._base_index]
        later = [(index, each) for index, each in self._memberships if index > upto]
        known_at = max(index for index, _ in self._memberships if index <= upto)
        self._memberships = [(known_at, membership), *later]
        self._base_index, self._base_term, self.snapshot = upto, term, snapshot

    def install(self, snapshot: Snapshot) -> bool:
        """Takes over a leader's snapshot, and says whether the entries after it could stay."""
        assert snapshot.index > self.commit, (snapshot.index, self.commit)
        stays = self.term_at(snapshot.index) == snapshot.term
        if stays:
            self.commit_to(snapshot.index)
            self.compact(snapshot.index, snapshot)
        else:
            self._entries = []
            self._base_index, self._base_term, self.snapshot = snapshot.index, snapshot.term, snapshot
            self._memberships = [(snapshot.index, snapshot.membership)]
            self.commit = snapshot.index
        return stays
