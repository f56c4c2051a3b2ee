"""What producers and readers saw, whatever client they are of, while something happened to their cluster; and what must
hold of it.

  every acknowledged value is in the log, at the offset that was acknowledged, once; in the order they were produced
  nothing is in the log that was not produced
  at one offset everybody reads the same value, always
  nobody is given again what it had committed

The number that a value holds says the partition and the place in it, so a history is a few arrays: eight bytes for a
message and for each who saw it, and one walk over them to check it.
"""

import threading
import time
from array import array
from collections import Counter
from collections.abc import Sequence

from tests.interop.facts import until

PATIENCE_SECONDS = 90.0
"""For clients to get through what was done to their cluster."""
UNSEEN = -1


class Numbers:
    """A number for each place from 0 on, where one is known."""

    def __init__(self) -> None:
        self.known = array("q")

    def set(self, place: int, number: int) -> int:
        """What was there before."""
        if place >= len(self.known):
            self.known.extend([UNSEEN] * (place + 1 - len(self.known)))
        before, self.known[place] = self.known[place], number
        return before


def value_of(number: int) -> bytes:
    """Of a hundred bytes, so that a batch holds some and not all of what is waiting."""
    return b"%-100d" % number


class Sent:
    """By one producer: numbers from 0 on, to each partition in turn."""

    def __init__(self, topic: str, *, partitions: int) -> None:
        self.topic = topic
        self.partitions = partitions
        self.total = 0
        """How many were sent; the next number."""
        self.offsets = [Numbers() for _ in range(partitions)]
        """Those that were acknowledged, by partition, in the order in which values were sent."""
        self.count = 0
        self.errors: list[object] = []
        self.violations: list[str] = []
        self.acknowledged_at = time.monotonic()
        self.gap_seconds = 0.0
        """The longest time between two acknowledgements."""

    @property
    def numbers(self) -> dict[int, range]:
        """By partition."""
        return {partition: range(partition, self.total, self.partitions) for partition in range(self.partitions)}

    def acknowledged(self, number: int, *, offset: int | None) -> None:
        """Without an offset where librdkafka concluded it from a later batch: the answer was lost with a leader."""
        known = UNSEEN if offset is None else offset
        before = self.offsets[number % self.partitions].set(number // self.partitions, known)
        if before != UNSEEN:
            self.violations.append(f"{number} was acknowledged twice, at {before} and at {offset}")
        now = time.monotonic()
        self.gap_seconds = max(self.gap_seconds, now - self.acknowledged_at)
        self.acknowledged_at = now
        self.count += 1

    def wait_more(self, count: int) -> None:
        """That many more than are acknowledged now."""
        wanted = self.count + count
        for _ in until(lambda: self.count >= wanted, what=f"{wanted} acknowledged", seconds_max=PATIENCE_SECONDS):
            assert self.errors == [], self.errors
            threading.Event().wait(0.01)

    def check_all_acknowledged(self) -> None:
        assert self.errors == [], self.errors
        assert self.violations == []
        assert self.count == self.total, f"{self.count} of {self.total} were acknowledged in time"

    def check_log(self, logs: Sequence[Numbers]) -> None:
        """By partition, what was read from its start to its end after everything had been acknowledged."""
        for partition, sent in self.numbers.items():
            where, found = f"{self.topic}-{partition}", logs[partition].known
            assert found == array("q", sent), f"{where}: {_difference(found, sent)}"
            # Each place holds its own number now, so that an acknowledged offset is right where it is the place.
            told = self.offsets[partition].known
            moved = [(place, offset) for place, offset in enumerate(told) if offset not in (place, UNSEEN)]
            assert not moved, f"{where}: not where it was acknowledged (place, offset): {moved[:10]} ({len(moved)})"


class Read:
    """By one group, whose members may note what they see from threads of their own."""

    def __init__(self, group: str, *, partitions: int) -> None:
        self.group = group
        self.seen = [Numbers() for _ in range(partitions)]
        """By partition and offset."""
        self.count = 0
        self.committed: dict[int, int] = {}
        """By partition, the highest of which the member was told that it is committed."""
        self.errors: list[object] = []
        """That ended its reading."""
        self.violations: list[str] = []
        self._lock = threading.Lock()

    def note(self, number: int, *, partition: int, offset: int) -> None:
        with self._lock:
            before = self.seen[partition].set(offset, number)
            if before == UNSEEN:
                self.count += 1
            elif before != number:
                self.violations.append(f"{partition}@{offset} was {before} and is {number}")
            if offset < self.committed.get(partition, 0):
                self.violations.append(f"{partition}@{offset} came again, {self.committed[partition]} was committed")

    def commits(self, partition: int, *, offset: int) -> None:
        with self._lock:
            self.committed[partition] = max(self.committed.get(partition, 0), offset)

    def wait_committed(self) -> None:
        """Something, of every partition."""
        for _ in until(
            lambda: len(self.committed) == len(self.seen) or self.errors,
            what=f"{self.group} has committed, {self.committed}",
            seconds_max=PATIENCE_SECONDS,
        ):
            threading.Event().wait(0.01)
        assert self.errors == [], self.errors

    def wait_all(self, sent: Sent) -> None:
        try:
            for _ in until(
                lambda: self.count >= sent.count or self.errors,
                what=f"{sent.topic}, {self.group}: all read",
                seconds_max=PATIENCE_SECONDS,
            ):
                threading.Event().wait(0.05)
            assert self.errors == [], self.errors
        except AssertionError as error:
            read = {partition: len(numbers.known) for partition, numbers in enumerate(self.seen)}
            ends = {partition: len(numbers) for partition, numbers in sent.numbers.items()}
            error.add_note(f"it has read {self.count} messages, up to {read} of {ends}, and committed {self.committed}")
            raise

    def check(self, sent: Sent) -> None:
        """When it has read everything, and the log holds what was sent."""
        where = f"{sent.topic}, {self.group}"
        assert self.errors == [], self.errors
        assert self.violations == [], f"{where}: {self.violations[:10]} ({len(self.violations)})"
        for partition, numbers in sent.numbers.items():
            found = self.seen[partition].known
            assert found == array("q", numbers), f"{where}-{partition}: {_difference(found, numbers)}"


def _difference(found: Sequence[int], wanted: Sequence[int]) -> str:
    counts = Counter(found)
    lost = sorted(set(wanted) - counts.keys())
    strange = sorted(counts.keys() - set(wanted))
    twice = sorted(number for number, count in counts.items() if count > 1)
    return f"{len(found)} of {len(wanted)}; " + ", ".join(
        f"{what} {numbers[:10]} ({len(numbers)})"
        for what, numbers in (("lost", lost), ("twice", twice), ("never sent", strange))
        if numbers
    )
