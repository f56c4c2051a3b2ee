"""Where a table's files are: in a folder, or in an object store. One door, so that a table does not know which.

    /data/metrics/facts              a folder, of this machine or shared by all that Spark runs on
    s3://bucket/metrics/facts        an object store, through obstore: pip install 'millpond[spark,objects]'
        ?region=eu-central-1         its region; &endpoint_override=127.0.0.1:9000&scheme=http  where it is not AWS

Into a folder Spark writes Parquet itself; for an object store it would need jars, so tasks write through Arrow, and
read back so. Credentials are those that the environment has (AWS_ACCESS_KEY_ID and so on), of tasks too.

Invariant: `create` makes a file whole or not at all, and only where there is none of that name, whoever else tries at
the same time; when it returns, the file is kept. A folder has hard links for that, an object store conditional puts.
Driven by table.py, on the driver; its writers and readers of rows also in tasks.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from millpond.model.errors import InvalidSetting

INCOMING: Final = "_incoming"
_MS_PER_SECOND: Final = 1000
_RESULT: Final = pa.schema([pa.field("document", pa.string())])
_TIME: Final = "time"


@dataclass(frozen=True, slots=True)
class File:
    path: str
    """Below the table's place."""
    partition: Mapping[str, str]
    size: int
    rows: int
    time_min_ms: int
    time_max_ms: int
    """Of the column `time`, rounded outwards."""

    def overlaps(self, start_ms: int, end_ms: int) -> bool:
        """With [start, end)."""
        return self.time_min_ms < end_ms and self.time_max_ms >= start_ms


@dataclass(frozen=True, slots=True)
class Stored:
    path: str
    size: int
    modified_ms: float


class Storage(Protocol):
    """Paths are below the table's place, with slashes."""

    @property
    def name(self) -> str:
        """The table's own."""

    def prepare(self, *folders: str) -> None:
        """`InvalidSetting` where nothing can be written."""

    def read(self, path: str) -> bytes:
        """`FileNotFoundError` where it is not there."""

    def create(self, path: str, data: bytes, *, draft: str) -> bool:
        """False where there is one of that name. A draft is a name that nobody else has, where one is needed."""

    def replace(self, path: str, data: bytes) -> None:
        """Whole, whatever was there; need not be kept yet."""

    def remove(self, path: str) -> None: ...

    def listed(self) -> Iterator[Stored]:
        """Files of Parquet, but the log's; and what writes that did not end have left."""

    def parquet(self, path: str) -> Any:  # noqa: ANN401
        """What pyarrow reads a file from."""

    def write(self, rows: DataFrame, *, partitioned_by: str, attempt: str) -> list[File]:
        """Files with a name of this attempt, which are kept."""

    def rows(self, spark: SparkSession, schema: StructType, paths: Sequence[str]) -> DataFrame: ...


def is_object_store(place: str | Path) -> bool:
    return "://" in str(place)


def below(place: str | Path, name: str) -> str:
    """A place in a place; what follows a question mark stays at the end."""
    base, mark, options = str(place).partition("?")
    return f"{base.rstrip('/')}/{name}{mark}{options}"


def storage_at(place: str | Path) -> Storage:
    return Objects(str(place)) if is_object_store(place) else Folder(Path(place))


def described(path: str, found: pq.FileMetaData, size: int) -> File:
    """As its own end says."""
    column = found.schema.names.index(_TIME)
    spans = [found.row_group(number).column(column).statistics for number in range(found.num_row_groups)]
    name, _, value = path.rpartition("/")[0].partition("=")
    return File(
        path=path,
        partition={name: value},
        size=size,
        rows=found.num_rows,
        time_min_ms=int(min(each.min for each in spans).timestamp() * _MS_PER_SECOND) - 1,
        time_max_ms=int(max(each.max for each in spans).timestamp() * _MS_PER_SECOND) + 1,
    )


class Folder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def name(self) -> str:
        return self.folder.name

    def prepare(self, *folders: str) -> None:
        try:
            for each in (INCOMING, *folders):
                (self.folder / each).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidSetting(f"{self} cannot be written to: {error.strerror}; name another folder") from None

    def read(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    def create(self, path: str, data: bytes, *, draft: str) -> bool:
        target = self.folder / path
        written = target.with_name(f".{draft}")
        with written.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(written, target)
        except FileExistsError:
            return False
        finally:
            written.unlink()
        sync(target.parent)
        return True

    def replace(self, path: str, data: bytes) -> None:
        target = self.folder / path
        draft = target.with_name(f".{target.name}")
        draft.write_bytes(data)
        draft.replace(target)

    def remove(self, path: str) -> None:
        target = self.folder / path
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)

    def listed(self) -> Iterator[Stored]:
        for pattern in ("[!_]*/*.parquet", f"{INCOMING}/*"):
            for path in sorted(self.folder.glob(pattern)):
                found = path.stat()
                yield Stored(str(path.relative_to(self.folder)), found.st_size, found.st_mtime * _MS_PER_SECOND)

    def parquet(self, path: str) -> Any:  # noqa: ANN401
        return self.folder / path

    def write(self, rows: DataFrame, *, partitioned_by: str, attempt: str) -> list[File]:
        incoming = self.folder / INCOMING / attempt
        try:
            rows.write.partitionBy(partitioned_by).parquet(str(incoming))
            return self._moved(incoming, attempt)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)

    def _moved(self, incoming: Path, attempt: str) -> list[File]:
        written = []
        for number, path in enumerate(sorted(incoming.glob("*/*.parquet"))):
            place = path.parent.name
            (self.folder / place).mkdir(exist_ok=True)
            target = self.folder / place / f"{attempt}-{number:05}.parquet"
            sync(path)
            path.rename(target)
            written.append(
                described(str(target.relative_to(self.folder)), pq.read_metadata(target), target.stat().st_size)
            )
        for folder in {(self.folder / each.path).parent for each in written}:
            sync(folder)
        return written

    def rows(self, spark: SparkSession, schema: StructType, paths: Sequence[str]) -> DataFrame:
        reader = spark.read.schema(schema).option("basePath", str(self.folder))
        return reader.parquet(*(str(self.folder / each) for each in paths))


def sync(path: str | Path) -> None:
    """A file's content, or a folder's names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Objects:
    """A place in an object store; sent to tasks as its address alone."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._store: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_address": self._address, "_store": None}

    def __str__(self) -> str:
        return self._address.partition("?")[0]

    @property
    def name(self) -> str:
        return str(self).rpartition("/")[2]

    def _opened(self) -> Any:  # noqa: ANN401 - an ObjectStore; obstore need not be there
        if self._store is None:
            try:
                from obstore.exceptions import BaseError  # noqa: PLC0415 - not everybody has it
                from obstore.store import from_url  # noqa: PLC0415
            except ImportError:
                raise InvalidSetting(
                    f"{self} is an object store, which needs obstore: pip install 'millpond[spark,objects]'"
                ) from None
            try:
                self._store = from_url(str(self), **_options(self._address))
            except (BaseError, ValueError) as error:
                raise InvalidSetting(f"{self} is no place for tables: {_first_line(error)}") from None
        return self._store

    def prepare(self, *folders: str) -> None:
        """There are no folders; what can be tried is a question."""
        import obstore  # noqa: PLC0415

        store = self._opened()
        try:
            next(iter(obstore.list(store, "_delta_log/")), None)
        except (OSError, obstore.exceptions.BaseError) as error:
            raise InvalidSetting(
                f"{self} cannot be used: {_first_line(error)}; see that the bucket is there, and that the "
                "environment has credentials for it (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION)"
            ) from None

    def read(self, path: str) -> bytes:
        return bytes(self._opened().get(path).bytes())

    def create(self, path: str, data: bytes, *, draft: str) -> bool:
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415

        try:
            self._opened().put(path, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def replace(self, path: str, data: bytes) -> None:
        self._opened().put(path, data)

    def remove(self, path: str) -> None:
        self._opened().delete(path)

    def listed(self) -> Iterator[Stored]:
        for page in self._opened().list():
            for each in page:
                if each["path"].endswith(".parquet") and not each["path"].startswith("_"):
                    yield Stored(each["path"], each["size"], each["last_modified"].timestamp() * _MS_PER_SECOND)

    def parquet(self, path: str) -> Any:  # noqa: ANN401
        return pa.BufferReader(self.read(path))

    def write(self, rows: DataFrame, *, partitioned_by: str, attempt: str) -> list[File]:
        """A file for each value of the column in each task; what a task that failed has left is of no table."""

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
            context = TaskContext.get()
            task = 0 if context is None else context.taskAttemptId()
            for number, (value, data) in enumerate(_as_parquet(batches, partitioned_by)):
                path = f"{partitioned_by}={value}/{attempt}-{task:05}-{number:03}.parquet"
                self.replace(path, data)
                yield asdict(described(path, pq.read_metadata(pa.BufferReader(data)), len(data)))

        return sorted((File(**each) for each in _told(rows, work)), key=lambda file: file.path)

    def rows(self, spark: SparkSession, schema: StructType, paths: Sequence[str]) -> DataFrame:
        wanted = to_arrow_schema(schema, timezone="UTC")

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    found = pq.read_table(self.parquet(paths[number]), partitioning=None)
                    yield from _shaped(found, wanted, paths[number]).to_batches()

        return spark.range(0, len(paths), 1, len(paths)).mapInArrow(read, schema)


def _options(address: str) -> dict[str, Any]:
    """Named as pyarrow names them, so that one address serves archives and tables."""
    given = {name: values[-1] for name, values in parse_qs(urlsplit(address).query).items()}
    if unknown := given.keys() - {"region", "endpoint_override", "scheme"}:
        raise InvalidSetting(
            f"{address}: {', '.join(sorted(unknown))} means nothing here; region, endpoint_override and scheme do"
        )
    scheme = given.get("scheme", "https")
    options: dict[str, Any] = {"client_options": {"allow_http": scheme == "http"}, "config": {}}
    if "region" in given:
        options["config"]["region"] = given["region"]
    if "endpoint_override" in given:
        options["config"]["endpoint"] = f"{scheme}://{given['endpoint_override']}"
    return options


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _told(rows: DataFrame, work: Callable[[Iterable[pa.RecordBatch]], Iterator[dict[str, Any]]]) -> list[Any]:
    """What tasks have to say of their rows."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        said = [json.dumps(each) for each in work(batches)]
        yield pa.record_batch([pa.array(said, pa.string())], schema=_RESULT)

    return [json.loads(row.document) for row in rows.mapInArrow(task, "document string").collect()]


def _as_parquet(batches: Iterable[pa.RecordBatch], column: str) -> Iterator[tuple[str, bytes]]:
    """The rows of each value of a column, as a file without it."""
    files: dict[str, tuple[pa.BufferOutputStream, pq.ParquetWriter]] = {}
    for batch in batches:
        for value in pc.unique(batch.column(column)):
            mine = batch.filter(pc.equal(batch.column(column), value)).drop_columns([column])
            if str(value) not in files:
                out = pa.BufferOutputStream()
                files[str(value)] = out, pq.ParquetWriter(out, mine.schema)
            files[str(value)][1].write_batch(mine)
    for value, (out, writer) in files.items():
        writer.close()
        yield value, out.getvalue().to_pybytes()


def _shaped(found: pa.Table, wanted: pa.Schema, path: str) -> pa.Table:
    """With the columns of a schema: what its folder says, and null in those that came later than the file."""
    name, _, value = path.rpartition("/")[0].partition("=")
    columns = []
    for field in wanted:
        if field.name == name:
            columns.append(pa.repeat(pa.scalar(value), len(found)).cast(field.type))
        elif field.name in found.column_names:
            columns.append(found[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(len(found), field.type))
    return pa.Table.from_arrays(columns, schema=wanted)
