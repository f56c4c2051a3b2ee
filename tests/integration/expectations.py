"""What a log must hold after a power cut, what it may hold, and nothing else.

`ExpectedBatches` is told of every append, acknowledgement, truncation and deletion, before and after; of each batch
it remembers the offsets and a digest. `ExpectedKeys` does the same for a compacted log, record by record.

Invariant: what `check` has seen in a log once, it wants to see for ever after.
Driven by power_cuts.py.
"""

from collections import deque
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from millpond.model.ids import Offset
from millpond.protocol.records import BatchHeader, decode_batch, iter_batches
from millpond.storage.log import Log

_READ_BYTES = 64 * 1024
_STORY_LENGTH = 40
"""How many events before it a broken promise tells."""


class PromiseBroken(AssertionError):
    """The log lost something it must keep, or shows something that was never written."""


class _Batch(NamedTuple):
    base_offset: int
    last_offset: int
    digest: bytes


class ExpectedBatches:
    def __init__(self, name: str) -> None:
        self._name = name
        self._batches: list[_Batch] = []
        self._kept_to = 0
        self._start = 0
        self._start_wanted: int | None = None
        self._truncating_to: int | None = None
        self._story: deque[str] = deque(maxlen=_STORY_LENGTH)

    @property
    def next_offset(self) -> int:
        return self._batches[-1].last_offset + 1 if self._batches else self._start

    def appended(self, base_offset: Offset, last_offset: Offset, batch: bytearray) -> None:
        if base_offset != self.next_offset:
            raise self._broken(f"an append was given offset {base_offset}, not {self.next_offset}")
        self._story.append(f"appended {base_offset} to {last_offset}")
        self._batches.append(_Batch(base_offset, last_offset, _digest(batch)))

    def kept(self, end: int) -> None:
        """Everything before `end` was promised to survive."""
        if end > self._kept_to:
            self._kept_to = end
            self._story.append(f"kept everything before {end}")

    def holds(self, base_offset: int) -> bool:
        return any(each.base_offset == base_offset and base_offset >= self._start for each in reversed(self._batches))

    def truncating(self, end: int) -> None:
        self._truncating_to = end
        self._story.append(f"truncating to {end}")

    def truncated(self, log: Log) -> None:
        """Where the batch that held the start went too, the start moves back with the end."""
        self._truncating_to = None
        self._cut(log.next_offset)
        self._start = log.start_offset
        self._story.append(f"truncated: now {log.start_offset} to {log.next_offset}")

    def deleting(self, before: int) -> None:
        self._start_wanted = before
        self._story.append(f"deleting before {before}")

    def deleted(self) -> None:
        assert self._start_wanted is not None
        self._start = max(self._start, self._start_wanted)
        self._start_wanted = None
        self._story.append("deleted")

    def _broken(self, reason: str) -> PromiseBroken:
        return PromiseBroken(f"{self._name}: {reason}\nbefore that: {'; '.join(self._story)}")

    def _cut(self, end: int) -> None:
        while self._batches and self._batches[-1].base_offset >= end:
            self._batches.pop()
        self._kept_to = min(self._kept_to, end)

    def check(self, log: Log) -> int:
        """Right after recovery; returns how many batches are gone, none of them promised to stay.

        What is there now stays: recovery has synced it.
        """
        self._check_bounds(log)
        found = [_Batch(header.base_offset, header.last_offset, _digest(data)) for header, data in read_all(log)]
        expected = [each for each in self._batches if log.start_offset <= each.last_offset < log.next_offset]
        if found != expected:
            different = next((pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]), None)
            raise self._broken(
                f"{len(found)} batches are there of {len(expected)} appended; first different: {different}"
            )
        lost = sum(each.base_offset >= log.next_offset for each in self._batches)
        self._batches, self._kept_to, self._start = expected, log.next_offset, log.start_offset
        self._start_wanted = self._truncating_to = None
        self._story.append(f"recovered: {log.start_offset} to {log.next_offset}")
        return lost

    def _check_bounds(self, log: Log) -> None:
        _check_report(self._name, log)
        emptied = self._truncating_to is not None and log.start_offset == log.next_offset <= self._start
        wanted = self._start if self._start_wanted is None else self._start_wanted
        # A log that lost what it was told to forget starts where it ends.
        allowed = {min(self._start, log.next_offset), min(wanted, log.next_offset)}
        if log.start_offset not in allowed and not emptied:
            raise self._broken(f"starts at {log.start_offset}; it should at one of {allowed}")
        kept_to = self._kept_to
        if self._truncating_to is not None and kept_to > self._truncating_to:
            # Cut short, a truncation may have happened or not; the batch that holds its end may be gone too.
            whole = [each.last_offset + 1 for each in self._batches if each.last_offset < self._truncating_to]
            kept_to = whole[-1] if whole else 0
        if log.next_offset < kept_to:
            raise self._broken(f"ends at {log.next_offset}; everything before {kept_to} was promised to survive")
        ends = {self._start, log.start_offset, *(each.last_offset + 1 for each in self._batches)}
        if log.next_offset not in ends:
            raise self._broken(f"ends at {log.next_offset}, in the middle of a batch or behind all")


class ExpectedKeys:
    """For a compacted log: every record was appended as it is, and the latest kept one of each key is there."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._appended: dict[int, tuple[bytes, bytes]] = {}
        self._kept: dict[bytes, int] = {}
        self._kept_to = 0

    def appended(self, base_offset: Offset, records: list[tuple[bytes, bytes]]) -> None:
        self._appended.update(enumerate(records, start=base_offset))

    def kept(self, base_offset: Offset, records: list[tuple[bytes, bytes]]) -> None:
        for offset, (key, _) in enumerate(records, start=base_offset):
            self._kept[key] = max(offset, self._kept.get(key, -1))
        self._kept_to = max(self._kept_to, base_offset + len(records))

    def check(self, log: Log) -> None:
        _check_report(self._name, log)
        found: dict[int, tuple[bytes, bytes]] = {}
        for header, data in read_all(log):
            for record in decode_batch(data) if header.record_count else []:
                assert record.key is not None
                assert record.value is not None
                found[record.offset] = (record.key, record.value)
        latest = {key: offset for offset, (key, _) in found.items()}
        if log.next_offset < self._kept_to:
            raise PromiseBroken(f"{self._name}: ends at {log.next_offset}; kept was everything before {self._kept_to}")
        for offset, pair in found.items():
            if self._appended.get(offset) != pair:
                raise PromiseBroken(f"{self._name}: offset {offset} holds {pair}, not {self._appended.get(offset)}")
        for key, offset in self._kept.items():
            if latest.get(key, -1) < offset:
                raise PromiseBroken(
                    f"{self._name}: of {key!r}, offset {offset} was kept; the log has {latest.get(key)}"
                )
        self._appended, self._kept, self._kept_to = found, latest, log.next_offset


def read_all(log: Log) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch from the start to the end, through the front door; no offset is missing between two."""
    at, expected = log.start_offset, None
    while at < log.next_offset:
        part = log.read(at, bytes_max=_READ_BYTES)
        for position, header in iter_batches(part.data):
            if expected is not None and header.base_offset != expected:
                raise PromiseBroken(f"{log.directory}: offset {header.base_offset} follows; expected is {expected}")
            expected = header.next_offset
            yield header, bytes(part.data[position : position + header.size])
        at = part.next_offset


def _check_report(name: str, log: Log) -> None:
    if log.report.damages:
        raise PromiseBroken(f"{name}: recovery takes a power cut for damage: {log.report.damages}")


def _digest(batch: bytes | bytearray) -> bytes:
    return blake2b(batch, digest_size=12).digest()
