"""An archive compared with the log it is of: file by file, message by message where something differs.

    same        the file is as it was written, and its messages are those of the log
    gone        the file is as it was written; the log does not have these messages any more
    different   and what: the file itself, or which messages

Invariant: nothing is changed. What retention has removed from the log is no difference: an archive is for that.
Tasks compare, one for each range. Driven by `millpond pipeline archive --verify`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from millpond.client.offsets import EARLIEST, LATEST
from millpond.model.errors import InvalidSetting
from millpond.model.ids import TopicPartition
from millpond.pipeline.archive import Archive, ArchivedRange, file_checksum, log_batches, run_tasks
from millpond.pipeline.complaints import plainly
from millpond.pipeline.contents import COLUMNS, Contents
from millpond.pipeline.link import Link
from millpond.pipeline.options import Connection
from millpond.pipeline.planning import Span

SHOWN: Final = 5
"""Offsets that are named; of the others, how many."""
State = Literal["same", "gone", "different"]


@dataclass(frozen=True, slots=True)
class Verdict:
    partition: int
    start: int
    end: int
    messages: int
    state: State
    found: str


@dataclass(frozen=True, slots=True)
class _Log:
    """What the log has of a partition."""

    first: int
    end: int


def verify(spark: SparkSession, target: Archive) -> list[Verdict]:
    ranges = target.ranges()
    if not ranges:
        raise InvalidSetting(f"there is no archive of {target.topic} in {target.folder}")
    with Link(Connection(target.bootstrap)) as link:
        places = link.partitions((target.topic,))
        firsts, ends = (link.offsets(dict.fromkeys(places, moment)) for moment in (EARLIEST, LATEST))
    logs = {at.partition: _Log(firsts[at], ends[at]) for at in places}
    found = run_tasks(spark, len(ranges), lambda n: asdict(_checked(target, ranges[n], logs.get(ranges[n].partition))))
    return sorted(
        [Verdict(**each) for each in found] + list(holes(ranges)), key=lambda each: (each.partition, each.start)
    )


def holes(ranges: Sequence[ArchivedRange]) -> Iterator[Verdict]:
    """Offsets between two ranges of a partition that no file has, or two have."""
    for one, other in pairwise(sorted(ranges, key=lambda each: (each.partition, each.start))):
        if one.partition == other.partition and one.end != other.start:
            text = "no file has these offsets" if one.end < other.start else "two files have these offsets"
            first, last = sorted((one.end, other.start))
            yield Verdict(one.partition, first, last, 0, "different", text)


@plainly
def _checked(target: Archive, kept: ArchivedRange, log: _Log | None) -> Verdict:
    """In a task."""
    state, text = _compared(target, kept, log)
    return Verdict(kept.partition, kept.start, kept.end, kept.messages, state, text)


def _compared(target: Archive, kept: ArchivedRange, log: _Log | None) -> tuple[State, str]:
    files, base = target.opened()
    path = f"{base}/{kept.file}"
    wrong = _file_fault(files, path, kept)
    if wrong:
        return "different", wrong
    if log is None or log.first >= kept.end:
        return "gone", "as it was written; the log does not have it any more"
    if log.end < kept.end:
        return "different", f"the log ends at {log.end}: the topic was made anew, or has lost messages"
    first = max(log.first, kept.start)
    span = Span(TopicPartition(target.topic, kept.partition), first, kept.end)
    with Link(Connection(target.bootstrap)) as link:
        in_log = Contents()
        for batch in log_batches(link, span):
            in_log.add(batch)
        in_archive = _contents(_file_batches(files, path, first))
        if in_log.checksum() != in_archive.checksum():
            return "different", differences(_rows(_file_batches(files, path, first)), _rows(log_batches(link, span)))
    if first > kept.start:
        return "same", f"from offset {first} on, where the log begins now"
    return "same", ""


def _file_fault(files: pafs.FileSystem, path: str, kept: ArchivedRange) -> str | None:
    try:
        size, checksum = file_checksum(files, path)
    except FileNotFoundError:
        return f"{kept.file} is missing"
    if (size, checksum) != (kept.bytes, kept.sha256):
        return f"{kept.file} is not as it was written: {size} bytes, SHA-256 {checksum[:12]}…"
    found = _contents(_file_batches(files, path, kept.start))
    if (found.messages, found.checksum()) != (kept.messages, kept.contents):
        return f"{kept.file} has {found.messages} messages that are not those of the manifest"
    return None


def _contents(batches: Iterable[pa.RecordBatch]) -> Contents:
    found = Contents()
    for batch in batches:
        found.add(batch)
    return found


def _file_batches(files: pafs.FileSystem, path: str, first: int) -> Iterator[pa.RecordBatch]:
    """Of messages from an offset on."""
    with files.open_input_file(path) as source:
        for batch in pq.ParquetFile(source).iter_batches(columns=list(COLUMNS)):
            yield batch.filter(pc.greater_equal(batch.column("offset"), first))


def _rows(batches: Iterable[pa.RecordBatch]) -> dict[int, Mapping[str, Any]]:
    return {row["offset"]: row for batch in batches for row in batch.select(list(COLUMNS)).to_pylist()}


def differences(archived: Mapping[int, Mapping[str, Any]], logged: Mapping[int, Mapping[str, Any]]) -> str:
    """By offset; as a sentence."""
    both = archived.keys() & logged.keys()
    changed = sorted(offset for offset in both if archived[offset] != logged[offset])
    fields = sorted({name for offset in changed for name in COLUMNS if archived[offset][name] != logged[offset][name]})
    said = (
        ("only in the log", sorted(logged.keys() - both)),
        ("only in the archive", sorted(archived.keys() - both)),
        (f"other {', '.join(fields)}", changed),
    )
    return "; ".join(f"{what}: {_some(offsets)}" for what, offsets in said if offsets) or "their order differs"


def _some(offsets: Sequence[int]) -> str:
    more = f" and {len(offsets) - SHOWN} more" if len(offsets) > SHOWN else ""
    return f"{'offset' if len(offsets) == 1 else 'offsets'} {', '.join(map(str, offsets[:SHOWN]))}{more}"
