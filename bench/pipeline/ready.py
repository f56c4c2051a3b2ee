"""The ceiling: a data source that has its Arrow batches ready, and does nothing but hand them over.

They hold the same rows as the topic that others read, in as many partitions, so that whatever rows of several sizes
cost Spark is on both sides. They lie in files that are mapped into memory, one for each task.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from millpond.pipeline.columns import DDL, DEFAULT, arrow_schema

BATCH_ROWS = 25_000
"""As many as are in a fetch of 4 MiB, or about that."""


def make_ready(parquet: Path, folder: Path) -> None:
    """Of a topic that was written as Parquet by as many tasks as it has partitions."""
    folder.mkdir()
    for path in parquet.glob("*.parquet"):
        rows = pq.read_table(path).select(DEFAULT).cast(arrow_schema(DEFAULT)).combine_chunks()
        with pa.ipc.new_file(folder / f"{path.stem}.arrow", rows.schema) as out:
            out.write_table(rows, max_chunksize=BATCH_ROWS)


class ReadySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return ", ".join(f"{name} {DDL[name]}" for name in DEFAULT)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(self.options["folder"])


class ReadyReader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(Path(self._folder).iterdir())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as mapped:
            batches = pa.ipc.open_file(mapped)
            for number in range(batches.num_record_batches):
                yield batches.get_batch(number)
