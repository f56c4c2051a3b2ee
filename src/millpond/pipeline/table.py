"""A table of Parquet files, and the log of commits that says which of them count: Delta Lake's, in plain Python.

    <table>/_delta_log/00000000000000000007.json    one commit: a JSON object a line
        {"commitInfo": {"timestamp", "operation", "note"}}       `note` is ours: what a job remembers with its commit
        {"protocol": ...} {"metaData": ...}                      in the first commit
        {"txn": {"appId": "facts of q1", "version": 42}}         which numbered write this was, and of whom
        {"add": {"path", "partitionValues", "size", "stats"}}    files that count from now on
        {"remove": {"path", ...}}                                and that do not any more
    <table>/date=2026-11-16/<commit>-<n>.parquet    what is not in the log is not in the table
    every hundredth commit is a checkpoint too (table_checkpoint.py)

Whoever reads Delta tables reads these. Tasks write the files, without a jar; the driver makes them count, all at once.

A table that is opened with columns it does not have gets them with the next commit; rows that are there have null in
them. Columns that it has and nobody names any more stay.

Invariant: a commit is there whole or not at all, and the files it names are on disk before it; of one app, each number
is committed once, however often and by how many it is tried.
Where the files are is storage.py's to know. Driven by metrics_job.py.
"""

import json
import random
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
from millpond.pipeline.storage import File, Stored, storage_at
from millpond.pipeline.table_checkpoint import LOG, read_checkpoint, write_checkpoint

COMPACTION: Final = "compaction"
CHECKPOINT_EVERY: Final = 100
Action = dict[str, Any]
Note = Mapping[str, Any] | Callable[[Action], Mapping[str, Any]] | None
"""What is kept with a commit; or what comes of the note before it, whoever wrote that in between. None keeps it."""


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
        place: str | Path,
        schema: StructType,
        *,
        partitioned_by: str,
        wall_ms: Callable[[], int] = machine_wall_ms,
        rng: random.Random | None = None,
    ) -> None:
        self.storage = storage_at(place)
        self._wall_ms = wall_ms
        self._rng = rng or random.Random()
        self.schema = schema
        self.partitioned_by = partitioned_by
        self.state = State()
        self.storage.prepare(LOG)
        self.refresh()
        self.schema = self._evolved(schema)

    # What is there

    def refresh(self) -> State:
        """Reads what was committed since."""
        if self.state.version < 0:
            self._begin_with_checkpoint()
        while True:
            path = _commit_path(self.state.version + 1)
            try:
                lines = self.storage.read(path).splitlines()
            except FileNotFoundError:
                return self.state
            try:
                actions = [json.loads(line) for line in lines]
            except ValueError:
                raise InvalidSetting(
                    f"{self.storage}/{path} is damaged: it is no commit of a table. Put it back from a copy; or name "
                    "another folder, and all messages are read again"
                ) from None
            self._apply(actions)

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
        found = read_checkpoint(self.storage)
        if found is None:
            return
        version, actions, ours = found
        self._apply(actions)
        files = self.state.files | {each.path: each for each in map(_file_of, ours["gone"])}
        self.state.last_added = {app: [files[path] for path in paths] for app, paths in ours["last_added"].items()}
        self.state.version, self.state.note = version, ours["note"]

    def _write_checkpoint(self) -> None:
        state, now = self.state, self._wall_ms()
        there = {each.path for each in self.storage.listed()}
        actions = [{name: action} for name, action in state.head.items()]
        actions += [{"txn": {"appId": app, "version": last, "lastUpdated": now}} for app, last in state.numbers.items()]
        actions += [_add_action(each, now, False) for each in state.files.values()]
        actions += [
            {"remove": {"path": path, "deletionTimestamp": moment, "dataChange": False}}
            for path, moment in state.removed.items()
            if path in there
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
            write_checkpoint(self.storage, state.version, actions, ours)

    def _evolved(self, wanted: StructType) -> StructType:
        """The columns there are, and those that are new."""
        if "metaData" not in self.state.head:
            return wanted
        there = StructType.fromJson(json.loads(self.state.head["metaData"]["schemaString"]))
        known = {each.name: each for each in there}
        for each in wanted:
            if each.name in known and each.dataType != known[each.name].dataType:
                raise InvalidSetting(
                    f"{self.storage}: column {each.name} is {known[each.name].dataType.simpleString()}, and cannot "
                    f"become {each.dataType.simpleString()}; give the new field another name"
                )
        return StructType([*there, *(each for each in wanted if each.name not in known)])

    def read(self, spark: SparkSession, files: Iterable[File] | None = None) -> DataFrame:
        """All of it, or only these files."""
        paths = [each.path for each in (self.state.files.values() if files is None else files)]
        return self.storage.rows(spark, self.schema, paths) if paths else spark.createDataFrame([], self.schema)

    def count_true(self, column: str, files: Iterable[File]) -> int:
        """Rows of these files in which a column of truths is true."""
        return sum(
            pc.sum(pq.read_table(self.storage.parquet(each.path), columns=[column], partitioning=None)[column]).as_py()
            or 0
            for each in files
        )

    def is_done(self, app: str, number: int) -> bool:
        return self.state.numbers.get(app, -1) >= number

    # Adding to it

    def write(self, rows: DataFrame) -> list[File]:
        """Files that do not count until they are committed."""
        return self.storage.write(rows, partitioned_by=self.partitioned_by, attempt=self._new_name())

    def discard(self, files: Iterable[File]) -> None:
        """Files that were written, and will not be committed."""
        for each in files:
            self.storage.remove(each.path)

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
                    raise InvalidSetting(f"{self.storage}: {file.path} was taken away by another job; try again")
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

    def vacuum(self, *, keep_ms: int, dry_run: bool = False) -> list[Stored]:
        """Removes files that have not been in the table for so long, and those that never came to be."""
        oldest = self._wall_ms() - keep_ms
        named = set(self.state.files) | {each.path for files in self.state.last_added.values() for each in files}
        others = [each for each in self.storage.listed() if each.path not in named]
        found = [each for each in others if self.state.removed.get(each.path, each.modified_ms) < oldest]
        for each in () if dry_run else found:
            self.storage.remove(each.path)
        return found

    def _create(self, version: int, actions: Sequence[Action]) -> bool:
        lines = (json.dumps(each, separators=(",", ":")) + "\n" for each in actions)
        return self.storage.create(_commit_path(version), "".join(lines).encode(), draft=self._new_name())

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


def _commit_path(version: int) -> str:
    return f"{LOG}/{version:020}.json"


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
