"""What a log was asked to keep, in plain lists; and the named invariants that hold whatever the machine did to it.

The history is written by the workload as it goes, and never by looking at the log: a batch is *appended* when the call
returned, *kept* when the wait for it returned. A change that is under way when the power goes (a truncation, a
deletion) is noted before it begins, since from then on both outcomes are right.
Pure. Driven by power_cuts.py.
"""

from dataclasses import dataclass, field

from millpond.protocol.records import iter_batches, parse_header
from millpond.storage.log import Log


class Violation(AssertionError):
    """An invariant is broken; its name is that of the class below."""


@dataclass(slots=True)
class AppendedBatch:
    base_offset: int
    last_offset: int
    content: bytes
    """As stamped by the log."""
    kept: bool = False


@dataclass(slots=True)
class History:
    batches: list[AppendedBatch] = field(default_factory=list)
    start_min: int = 0
    """A deletion up to here was acknowledged."""
    start_max: int = 0
    """A deletion up to here was asked for."""
    kept_in_all: int = 0

    def appended(self, base_offset: int, last_offset: int, content: bytes) -> AppendedBatch:
        batch = AppendedBatch(base_offset, last_offset, content)
        self.batches.append(batch)
        return batch

    def attempted(self, content: bytes | bytearray) -> None:
        """The power went during the call: the batch may be there, or not."""
        header = parse_header(content)
        self.appended(header.base_offset, header.last_offset, bytes(content))

    def kept(self, batch: AppendedBatch) -> None:
        batch.kept = True
        self.kept_in_all += 1

    def truncating(self, end: int) -> None:
        """From now on nothing at or behind `end` is promised."""
        for batch in self.batches:
            if batch.last_offset >= end:
                batch.kept = False
                self.start_min = min(self.start_min, batch.base_offset)

    def truncated(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.last_offset < end]

    def recovered(self, found: "list[tuple[int, int, bytes]]", start_offset: int) -> None:
        """What a recovery has found is promised from now on, and what it has not is gone."""
        there = {base for base, _, _ in found}
        self.batches = [batch for batch in self.batches if batch.base_offset in there]
        for batch in self.batches:
            batch.kept = True
        self.start_min = self.start_max = start_offset


Found = list[tuple[int, int, bytes]]
"""Base offset, last offset and bytes of each batch read from a log, from its start to its end."""


def read_everything(log: Log, *, bytes_max: int) -> Found:
    found: Found = []
    at = log.start_offset
    while at < log.next_offset:
        part = log.read(at, bytes_max=bytes_max)
        for position, header in iter_batches(part.data):
            content = bytes(part.data[position : position + header.size])
            found.append((header.base_offset, header.last_offset, content))
        at = part.next_offset
    return found


class AcknowledgedIsReadable:
    """Every batch that was kept, and not deleted or truncated since, is there, with the same bytes."""

    @staticmethod
    def check(history: History, log: Log, found: Found) -> None:
        there = {base: content for base, _, content in found}
        for batch in history.batches:
            if batch.kept and batch.base_offset >= log.start_offset and there.get(batch.base_offset) != batch.content:
                raise Violation(
                    f"AcknowledgedIsReadable: the batch at {batch.base_offset} was kept and is "
                    f"{'different' if batch.base_offset in there else 'gone'}; the log has "
                    f"{log.start_offset} to {log.next_offset}, {log.report}"
                )


class OnlyWholeAppendedBatches:
    """Nothing is visible but batches that were appended, each whole and where it was put."""

    @staticmethod
    def check(history: History, log: Log, found: Found) -> None:
        appended = {batch.base_offset: batch.content for batch in history.batches}
        for base, _, content in found:
            if appended.get(base) != content:
                raise Violation(f"OnlyWholeAppendedBatches: {len(content)} bytes at {base} were never appended there")


class OffsetsAreDense:
    """Each offset between start and end is in exactly one batch."""

    @staticmethod
    def check(history: History, log: Log, found: Found) -> None:
        expected = found[0][0] if found else log.next_offset
        if expected > log.start_offset:
            raise Violation(f"OffsetsAreDense: {log.start_offset} to {expected} are missing at the start")
        for base, last, _ in found:
            if base != expected:
                raise Violation(f"OffsetsAreDense: {base} follows where {expected} should")
            expected = last + 1
        if expected != log.next_offset:
            raise Violation(f"OffsetsAreDense: the log ends at {expected}, and says {log.next_offset}")


class StartMovesOnlyWhenAsked:
    """The start offset is where an acknowledged deletion put it, or where one that was cut short would have."""

    @staticmethod
    def check(history: History, log: Log, found: Found) -> None:
        if not history.start_min <= log.start_offset <= history.start_max:
            raise Violation(
                f"StartMovesOnlyWhenAsked: {log.start_offset} is outside {history.start_min} to {history.start_max}"
            )


class NoDamageFromPowerCuts:
    """A power cut leaves torn tails, never damage."""

    @staticmethod
    def check(history: History, log: Log, found: Found) -> None:
        if log.report.damages:
            raise Violation(f"NoDamageFromPowerCuts: {log.report.damages}")


class NoBatchTwice:
    """A batch that an idempotent producer sent again is not in the log again."""

    @staticmethod
    def check(history: History, log: Log, found: Found) -> None:
        seen: dict[bytes, int] = {}
        for base, _, content in found:
            payload = content[16:]  # all that the producer wrote; the log's own stamp is before
            if payload in seen:
                raise Violation(f"NoBatchTwice: the batch at {seen[payload]} is there again at {base}")
            seen[payload] = base


INVARIANTS = (
    AcknowledgedIsReadable,
    OnlyWholeAppendedBatches,
    OffsetsAreDense,
    StartMovesOnlyWhenAsked,
    NoDamageFromPowerCuts,
    NoBatchTwice,
)


def check_all(history: History, log: Log, found: Found) -> None:
    for invariant in INVARIANTS:
        invariant.check(history, log, found)
