"""A table of Parquet files, and the log of commits that says which of them count: Delta Lake's, in plain Python.

    <table>/_delta_log/00000000000000000007.json    one commit: a JSON object a line
        {"commitInfo": {"timestamp", "operation", "note"}}       `note` is ours: what a job remembers with its commit
        {"protocol": ...} {"metaData": ...}                      in the first commit
        {"txn": {"appId": "facts of q1", "version": 42}}         which numbered write this was, and of whom
        {"add": {"path", "partitionValues", "size", "stats"}}    files that count from now on
        {"remove": {"path", ...}}                                and that do not any more
    <table>/date=2026-11-16/<commit>-<n>.parquet    what is not in the log is not in the table
    every hundredth commit is a checkpoint too (table_checkpoint.py)

Whoever reads Delta tables reads these. Spark writes the files, without a jar; the driver makes them count, all at once.

A table that is opened with columns it does not have gets them with the next commit; rows that are there have null in
them. Columns that it has and nobody names any more stay.

Invariant: a commit is there whole or not at all, and the files it names are on disk before it; of one app, each number
is committed once, however often and by how many it is tried.
For folders that support hard links, on one machine or shared. Driven by metrics_job.py.
"""

import json
import os
import random
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from millpond.client.settings import machine_wall_ms
from millpond.model.errors import InvalidSetting
from millpond.pipeline.table_checkpoint import read_checkpoint, write_checkpoint

LOG: Final = "_delta_log"
INCOMING: Final = "_incoming"
COMPACTION: Final = "compaction"
CHECKPOINT_EVERY: Final = 100
_MS_PER_SECOND: Final = 1000
Action = dict[str, Any]
Note = Mapping[str, Any] | Callable[[Action], Mapping[str, Any]] | None
"""What is kept with a commit; or what comes of the note before it, whoever wrote that in between. None keeps it."""


@dataclass(frozen=True, slots=True)
class File:
    path: str
    """Below the table's folder."""
    partition: Mapping[str, str]
    size: int
    rows: int
    time_min_ms: int
    time_max_ms: int
    """Of the column `time`, rounded outwards."""

    def overlaps(self, start_ms: int, end_ms: int) -> bool:
        """With [start, end)."""
        return self.time_min_ms < end_ms and self.time_max_ms >= start_ms


@dataclass(slots=True)
class State:
    """What the log says, up to a version."""

    version: int = -1
    files: dict[str, File] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    """By app, its last commit."""
    note: Action = field(default_factory=dict)
    """Of the last commit that had one."""
    last_added: dict[str, list[File]] = field(default_factory=dict)
    """By app, what its last commit brought."""
    removed: dict[str, int] = field(default_factory=dict)
    """When files that were in the table ceased to be."""
    head: dict[str, Action] = field(default_factory=dict)
    """The last `protocol` and `metaData`."""


class Table:
    def __init__(
        self,
        folder: Path,
        schema: StructType,
        *,
        partitioned_by: str,
        wall_ms: Callable[[], int] = machine_wall_ms,
        rng: random.Random | None = None,
    ) -> None:
        self.folder = folder
        self._wall_ms = wall_ms
        self._rng = rng or random.Random()
        self.schema = schema
        self.partitioned_by = partitioned_by
        self.state = State()
        try:
            (folder / LOG).mkdir(parents=True, exist_ok=True)
            (folder / INCOMING).mkdir(exist_ok=True)
        except OSError as error:
            raise InvalidSetting(f"{folder} cannot be written to: {error.strerror}; name another folder") from None
        self.refresh()
        self.schema = self._evolved(schema)

    # What is there

    def refresh(self) -> State:
        """Reads what was committed since."""
        if self.state.version < 0:
            self._begin_with_checkpoint()
        while True:
            path = self._commit_path(self.state.version + 1)
            try:
                text = path.read_text()
            except FileNotFoundError:
                return self.state
            try:
                actions = [json.loads(line) for line in text.splitlines()]
            except ValueError:
                raise InvalidSetting(
                    f"{path} is damaged: it is no commit of a table. Put it back from a copy; or name another folder, "
                    "and all messages are read again"
                ) from None
            self._apply(actions)

    def _commit_path(self, version: int) -> Path:
        return self.folder / LOG / f"{version:020}.json"

    def _apply(self, actions: Sequence[Action]) -> None:
        state = self.state
        added: list[File] = []
        for action in actions:
            if "add" in action:
                file = _file_of(action["add"])
                state.files[file.path] = file
                added.append(file)
            elif "remove" in action:
                gone = action["remove"]
                state.files.pop(gone["path"], None)
                state.removed[gone["path"]] = gone["deletionTimestamp"]
            elif "txn" in action:
                app = action["txn"]["appId"]
                state.numbers[app] = action["txn"]["version"]
                state.last_added[app] = added
            elif "commitInfo" in action:
                state.note = action["commitInfo"].get("note") or state.note
            else:
                state.head.update(action)
        state.version += 1

    def _begin_with_checkpoint(self) -> None:
        found = read_checkpoint(self.folder / LOG)
        if found is None:
            return
        version, actions, ours = found
        self._apply(actions)
        files = self.state.files | {each.path: each for each in map(_file_of, ours["gone"])}
        self.state.last_added = {app: [files[path] for path in paths] for app, paths in ours["last_added"].items()}
        self.state.version, self.state.note = version, ours["note"]

    def _write_checkpoint(self) -> None:
        state, now = self.state, self._wall_ms()
        actions = [{name: action} for name, action in state.head.items()]
        actions += [{"txn": {"appId": app, "version": last, "lastUpdated": now}} for app, last in state.numbers.items()]
        actions += [_add_action(each, now, False) for each in state.files.values()]
        actions += [
            {"remove": {"path": path, "deletionTimestamp": moment, "dataChange": False}}
            for path, moment in state.removed.items()
            if (self.folder / path).exists()
        ]
        last = {app: [each.path for each in files] for app, files in state.last_added.items()}
        gone = [
            _add_action(each, now, False)["add"]
            for files in state.last_added.values()
            for each in files
            if each.path not in state.files
        ]
        ours = {"note": state.note, "last_added": last, "gone": gone}
        with suppress(OSError):  # the commits are there, whatever becomes of it
            write_checkpoint(self.folder / LOG, state.version, actions, ours)

    def _evolved(self, wanted: StructType) -> StructType:
        """The columns there are, and those that are new."""
        if "metaData" not in self.state.head:
            return wanted
        there = StructType.fromJson(json.loads(self.state.head["metaData"]["schemaString"]))
        known = {each.name: each for each in there}
        for each in wanted:
            if each.name in known and each.dataType != known[each.name].dataType:
                raise InvalidSetting(
                    f"{self.folder}: column {each.name} is {known[each.name].dataType.simpleString()}, and cannot "
                    f"become {each.dataType.simpleString()}; give the new field another name"
                )
        return StructType([*there, *(each for each in wanted if each.name not in known)])

    def read(self, spark: SparkSession, files: Iterable[File] | None = None) -> DataFrame:
        """All of it, or only these files."""
        paths = [str(self.folder / each.path) for each in (self.state.files.values() if files is None else files)]
        if not paths:
            return spark.createDataFrame([], self.schema)
        return spark.read.schema(self.schema).option("basePath", str(self.folder)).parquet(*paths)

    def count_true(self, column: str, files: Iterable[File]) -> int:
        """Rows of these files in which a column of truths is true."""
        return sum(
            pc.sum(pq.read_table(self.folder / each.path, columns=[column], partitioning=None)[column]).as_py() or 0
            for each in files
        )

    def is_done(self, app: str, number: int) -> bool:
        return self.state.numbers.get(app, -1) >= number

    # Adding to it

    def write(self, rows: DataFrame) -> list[File]:
        """Files that do not count until they are committed."""
        attempt = self._new_name()
        incoming = self.folder / INCOMING / attempt
        try:
            rows.write.partitionBy(self.partitioned_by).parquet(str(incoming))
            return self._moved(incoming, attempt)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)

    def _moved(self, incoming: Path, attempt: str) -> list[File]:
        written = []
        for number, path in enumerate(sorted(incoming.glob("*/*.parquet"))):
            place = path.parent.name
            (self.folder / place).mkdir(exist_ok=True)
            target = self.folder / place / f"{attempt}-{number:05}.parquet"
            _sync(path)
            path.rename(target)
            written.append(self._described(target))
        for folder in {(self.folder / each.path).parent for each in written}:
            _sync(folder)
        return written

    def discard(self, files: Iterable[File]) -> None:
        """Files that were written, and will not be committed."""
        for each in files:
            (self.folder / each.path).unlink(missing_ok=True)

    def _described(self, path: Path) -> File:
        found = pq.read_metadata(path)
        column = found.schema.names.index("time")
        spans = [found.row_group(number).column(column).statistics for number in range(found.num_row_groups)]
        name, _, value = path.parent.name.partition("=")
        return File(
            path=str(path.relative_to(self.folder)),
            partition={name: value},
            size=path.stat().st_size,
            rows=found.num_rows,
            time_min_ms=int(min(each.min for each in spans).timestamp() * _MS_PER_SECOND) - 1,
            time_max_ms=int(max(each.max for each in spans).timestamp() * _MS_PER_SECOND) + 1,
        )

    def commit(
        self,
        app: str,
        number: int,
        *,
        added: Sequence[File],
        removed: Sequence[File] = (),
        note: Note,
        operation: str = "WRITE",
        changes_data: bool = True,
    ) -> bool:
        """Makes them count. False where this number is committed already: then nothing has changed."""
        while True:
            if self.is_done(app, number):
                return False
            for file in removed:
                if file.path not in self.state.files:
                    raise InvalidSetting(f"{self.folder}: {file.path} was taken away by another job; try again")
            now = self._wall_ms()
            said = note(self.state.note) if callable(note) else note
            actions: list[Action] = [{"commitInfo": {"timestamp": now, "operation": operation, "note": said}}]
            actions += self._head_actions(now)
            actions.append({"txn": {"appId": app, "version": number, "lastUpdated": now}})
            actions += [
                {"remove": {"path": each.path, "deletionTimestamp": now, "dataChange": changes_data}}
                for each in removed
            ]
            actions += [_add_action(each, now, changes_data) for each in added]
            if self._create(self.state.version + 1, actions):
                self.refresh()
                if self.state.version % CHECKPOINT_EVERY == 0 and self.state.version:
                    self._write_checkpoint()
                return True
            self.refresh()  # somebody else was faster

    def compact(self, spark: SparkSession) -> None:
        """Files of one partition as one; no row changes, and the old files stay for whoever reads them now."""
        places: dict[str, list[File]] = {}
        for file in self.state.files.values():
            places.setdefault(file.partition[self.partitioned_by], []).append(file)
        several = [files for files in places.values() if len(files) > 1]
        if several:
            old = [file for files in several for file in files]
            new = self.write(self.read(spark, old).repartition(len(several), self.partitioned_by))
            assert sum(file.rows for file in new) == sum(file.rows for file in old), "rows went missing"
            number = self.state.numbers.get(COMPACTION, -1) + 1
            self.commit(COMPACTION, number, added=new, removed=old, note=None, operation="OPTIMIZE", changes_data=False)

    def vacuum(self, *, keep_ms: int, dry_run: bool = False) -> list[Path]:
        """Removes files that have not been in the table for so long, and those that never came to be."""
        oldest = self._wall_ms() - keep_ms
        named = set(self.state.files) | {each.path for files in self.state.last_added.values() for each in files}
        found = []
        for path in sorted(self.folder.glob("*/*.parquet")):
            name = str(path.relative_to(self.folder))
            if name not in named and path.parent.name not in (LOG, INCOMING):
                since = self.state.removed.get(name, path.stat().st_mtime * _MS_PER_SECOND)
                found += [path] if since < oldest else []
        attempts = (self.folder / INCOMING).glob("*")
        found += [each for each in attempts if each.stat().st_mtime * _MS_PER_SECOND < oldest]
        for path in () if dry_run else found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return found

    def _create(self, version: int, actions: Sequence[Action]) -> bool:
        draft = self.folder / LOG / f".{self._new_name()}"
        with draft.open("w") as out:
            out.writelines(json.dumps(each, separators=(",", ":")) + "\n" for each in actions)
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(draft, self._commit_path(version))
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        _sync(self.folder / LOG)
        return True

    def _new_name(self) -> str:
        """That nobody else has: a UUID's digits."""
        return uuid.UUID(int=self._rng.getrandbits(128), version=4).hex

    def _head_actions(self, now: int) -> list[Action]:
        """What the table is: in the first commit, and in the first after columns were added."""
        if self.state.head:
            metadata = self.state.head["metaData"]
            if StructType.fromJson(json.loads(metadata["schemaString"])) == self.schema:
                return []
            return [{"metaData": metadata | {"schemaString": self.schema.json()}}]
        return [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {
                "metaData": {
                    "id": str(uuid.UUID(hex=self._new_name())),
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": self.schema.json(),
                    "partitionColumns": [self.partitioned_by],
                    "configuration": {},
                    "createdTime": now,
                }
            },
        ]


def _add_action(file: File, now: int, changes_data: bool) -> Action:
    return {
        "add": {
            "path": file.path,
            "partitionValues": dict(file.partition),
            "size": file.size,
            "modificationTime": now,
            "dataChange": changes_data,
            "stats": json.dumps({"numRecords": file.rows}),
            "tags": {"timeMinMs": str(file.time_min_ms), "timeMaxMs": str(file.time_max_ms)},
        }
    }


def _file_of(add: Action) -> File:
    return File(
        path=add["path"],
        partition=add["partitionValues"],
        size=add["size"],
        rows=json.loads(add["stats"])["numRecords"],
        time_min_ms=int(add["tags"]["timeMinMs"]),
        time_max_ms=int(add["tags"]["timeMaxMs"]),
    )


def _sync(path: Path) -> None:
    """A file's content, or a folder's names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
