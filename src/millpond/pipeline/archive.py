"""An archive of a topic: its messages in Parquet, and a manifest that says which there are and what they add up to.

    <folder>/<topic>/_manifest.json
        {"topic": "orders", "ranges": [
            {"partition": 0, "start": 0, "end": 500000,           offsets, the end not among them
             "messages": 499998,                                  fewer than offsets where the log has gaps
             "first_ms": ..., "last_ms": ...,                     the oldest and the newest time of a message
             "file": "0-00000000000000000000-00000000000000500000.parquet", "bytes": ...,
             "sha256": "...",                                     of the file
             "contents": "..."}]}                                 of the messages (contents.py)
    <folder>/<topic>/<partition>-<start>-<end>.parquet            columns as the data source has them, headers included

An offset below the end of the log never gets another message, so a range that is archived is closed. The next run goes
on where the last one ended. The folder is a path, or what pyarrow makes a filesystem of: s3://bucket/folder?region=...

Invariant: a file is in the archive when the manifest names it, and is whole then; what an interrupted run left is
removed by the next one. One run at a time.
Tasks write files, the driver names them. Driven by `millpond pipeline archive`.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from millpond.client.offsets import EARLIEST, LATEST
from millpond.model.errors import InvalidSetting, OffsetOutOfRange
from millpond.model.ids import TopicPartition
from millpond.model.limits import MIB
from millpond.pipeline.columns import TYPES, arrow_schema
from millpond.pipeline.complaints import plainly
from millpond.pipeline.contents import Contents
from millpond.pipeline.link import Link
from millpond.pipeline.options import Connection
from millpond.pipeline.planning import Span, spans_of
from millpond.pipeline.reading import read_span
from millpond.pipeline.storage import sync

MANIFEST: Final = "_manifest.json"
INCOMING: Final = "_incoming-"
"""Readers of folders leave out names that begin so."""
FETCH_BYTES: Final = 4 * MIB
_COLUMNS: Final = tuple(TYPES)
_RESULT: Final = pa.schema([pa.field("document", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRange:
    partition: int
    start: int
    end: int
    messages: int
    first_ms: int | None
    last_ms: int | None
    file: str
    bytes: int
    sha256: str
    contents: str


@dataclass(frozen=True, slots=True)
class Archive:
    """Where it is, and of what; sent to tasks."""

    bootstrap: str
    topic: str
    folder: str
    """A path, or a URI."""

    def opened(self) -> tuple[pafs.FileSystem, str]:
        """The filesystem, and the topic's folder on it."""
        try:
            files, base = pafs.FileSystem.from_uri(
                self.folder if "://" in self.folder else f"file://{os.path.abspath(self.folder)}"
            )
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidSetting(f"{self.folder} is no place for an archive: {error}") from None
        return files, f"{base.rstrip('/')}/{self.topic}"

    def ranges(self) -> list[ArchivedRange]:
        files, base = self.opened()
        try:
            with files.open_input_stream(f"{base}/{MANIFEST}") as manifest:
                document = json.loads(manifest.read())
            return [ArchivedRange(**each) for each in document["ranges"]]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError):
            raise InvalidSetting(f"{base}/{MANIFEST} is no manifest of an archive; name another folder") from None


def archive(
    spark: SparkSession,
    target: Archive,
    *,
    until_ms: int | None = None,
    messages_per_file_max: int = 1_000_000,
    allow_gaps: bool = False,
) -> list[ArchivedRange]:
    """What is new; all of it, or what is older than a moment."""
    files, base = target.opened()
    known = target.ranges()
    try:
        files.create_dir(base, recursive=True)
    except OSError as error:
        raise InvalidSetting(f"{base} cannot be written to: {error}; name another folder") from None
    _remove_leftovers(files, base, known)
    spans = _new_spans(target, known, until_ms, messages_per_file_max, allow_gaps)
    found = [
        ArchivedRange(**each) for each in run_tasks(spark, len(spans), lambda n: asdict(_archived(target, spans[n])))
    ]
    for each in found:
        files.move(f"{base}/{INCOMING}{each.file}", f"{base}/{each.file}")
    if found:
        if target.ranges() != known:
            raise InvalidSetting(f"{base}: another run has archived this topic meanwhile; try again")
        _write_manifest(files, base, target.topic, known + found)
    return found


def run_tasks(spark: SparkSession, count: int, work: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    """Each number a task of its own; what they come to, in order."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [json.dumps(work(number)) for number in batch.column(0).to_pylist()]
            yield pa.record_batch([pa.array(found, pa.string())], schema=_RESULT)

    if not count:
        return []
    rows = spark.range(0, count, 1, count).mapInArrow(run, "document string").collect()
    return [json.loads(row.document) for row in rows]


# What is to be archived


def _new_spans(
    target: Archive, known: Sequence[ArchivedRange], until_ms: int | None, size_max: int, allow_gaps: bool
) -> list[Span]:
    with Link(Connection(target.bootstrap)) as link:
        places = link.partitions((target.topic,))
        firsts = link.offsets(dict.fromkeys(places, EARLIEST))
        ends = link.offsets(dict.fromkeys(places, LATEST if until_ms is None else until_ms))
    starts = {at: first_missing(at, known, firsts[at], allow_gaps=allow_gaps) for at in places}
    return spans_of(starts, ends, size_max=size_max)


def first_missing(at: TopicPartition, known: Sequence[ArchivedRange], first: int, *, allow_gaps: bool) -> int:
    """The offset to go on with, where the log begins with `first`."""
    done = max((each.end for each in known if each.partition == at.partition), default=None)
    if done is None:
        return first
    if first > done and not allow_gaps:
        raise OffsetOutOfRange(
            f"{at} was archived up to offset {done}, and now begins at {first}: what lies between was removed by "
            "retention before it was archived. Archive more often, or keep more; --allow-gaps goes on without it"
        )
    return max(first, done)


# One file


@plainly
def _archived(target: Archive, span: Span) -> ArchivedRange:
    """In a task."""
    files, base = target.opened()
    name = f"{span.at.partition}-{span.start:020}-{span.end:020}.parquet"
    path = f"{base}/{INCOMING}{name}"
    contents, times = Contents(), []
    with (
        Link(Connection(target.bootstrap)) as link,
        files.open_output_stream(path) as out,
        pq.ParquetWriter(out, arrow_schema(_COLUMNS), compression="zstd") as writer,
    ):
        for batch in log_batches(link, span):
            writer.write_batch(batch)
            contents.add(batch)
            times += pc.min_max(batch.column("timestamp").cast(pa.int64())).values()
    if isinstance(files, pafs.LocalFileSystem):
        sync(path)
    size, checksum = file_checksum(files, path)
    moments = [each.as_py() // 1000 for each in times]
    return ArchivedRange(
        partition=span.at.partition,
        start=span.start,
        end=span.end,
        messages=contents.messages,
        first_ms=min(moments, default=None),
        last_ms=max(moments, default=None),
        file=name,
        bytes=size,
        sha256=checksum,
        contents=contents.checksum(),
    )


def log_batches(link: Link, span: Span) -> Iterator[pa.RecordBatch]:
    return read_span(link, span, columns=_COLUMNS, fetch_bytes=FETCH_BYTES, fail_on_data_loss=True)


def file_checksum(files: pafs.FileSystem, path: str) -> tuple[int, str]:
    """Its bytes, and their SHA-256."""
    found, size = hashlib.sha256(), 0
    with files.open_input_stream(path) as source:
        while piece := source.read(MIB):
            found.update(piece)
            size += len(piece)
    return size, found.hexdigest()


# The folder


def _remove_leftovers(files: pafs.FileSystem, base: str, known: Sequence[ArchivedRange]) -> None:
    named = {each.file for each in known} | {MANIFEST}
    for info in files.get_file_info(pafs.FileSelector(base)):
        if info.base_name not in named and info.base_name.endswith((".parquet", f"{INCOMING}{MANIFEST}")):
            files.delete_file(info.path)


def _write_manifest(files: pafs.FileSystem, base: str, topic: str, ranges: Sequence[ArchivedRange]) -> None:
    ordered = sorted(ranges, key=lambda each: (each.partition, each.start))
    text = json.dumps({"topic": topic, "ranges": [asdict(each) for each in ordered]}, indent=1)
    draft = f"{base}/{INCOMING}{MANIFEST}"
    with files.open_output_stream(draft) as out:
        out.write(text.encode())
    if isinstance(files, pafs.LocalFileSystem):
        sync(draft)
    files.move(draft, f"{base}/{MANIFEST}")
    if isinstance(files, pafs.LocalFileSystem):
        sync(base)
