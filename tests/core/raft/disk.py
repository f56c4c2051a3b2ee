"""A disk for one node that can be cut off in the middle of a persist: what is done stays, the rest never was."""

from collections.abc import Callable, Iterator
from functools import partial

from millpond.core.raft.durable import DurableState, Entry, HardState, Snapshot
from millpond.core.raft.membership import Membership
from millpond.core.raft.output import Persist


class Disk:
    def __init__(self, founders: Membership | None) -> None:
        first = DurableState.joining() if founders is None else DurableState.first(founders)
        self.hard_state = first.hard_state
        self.snapshot = first.snapshot
        self.entries: dict[int, Entry] = {entry.index: entry for entry in first.entries}

    def contents(self) -> DurableState:
        return DurableState(
            self.hard_state, self.snapshot, tuple(self.entries[index] for index in sorted(self.entries))
        )

    def holds(self, index: int, term: int) -> bool:
        entry = self.entries.get(index)
        return index <= self.snapshot.index or (entry is not None and entry.term == term)

    def steps(self, persist: Persist) -> Iterator[Callable[[], None]]:
        """Each is all or nothing; a power cut may come between any two."""
        if persist.hard_state is not None:
            yield partial(self._keep_hard_state, persist.hard_state)
        if persist.truncate_from is not None:
            yield partial(self._truncate, persist.truncate_from)
        if persist.snapshot is not None:
            yield partial(self.keep_snapshot, persist.snapshot)
        for entry in persist.entries:
            yield partial(self._append, entry)

    def perform(self, persist: Persist, steps_max: int | None = None) -> None:
        for place, step in enumerate(self.steps(persist)):
            if place == steps_max:
                return
            step()

    def _keep_hard_state(self, state: HardState) -> None:
        self.hard_state = state

    def _truncate(self, index: int) -> None:
        for each in [each for each in self.entries if each >= index]:
            del self.entries[each]

    def keep_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        for each in [each for each in self.entries if each <= snapshot.index]:
            del self.entries[each]

    def _append(self, entry: Entry) -> None:
        assert entry.index > self.snapshot.index
        assert entry.index == self.snapshot.index + len(self.entries) + 1, "a gap on disk"
        self.entries[entry.index] = entry
