"""The ceiling: a data source that has its Arrow batches ready, and does nothing but hand them over."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from millpond.pipeline.columns import DDL, DEFAULT, TYPES

BATCH_ROWS = 20_000


class ReadySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return ", ".join(f"{name} {DDL[name]}" for name in DEFAULT)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(int(self.options["rows"]), int(self.options["size"]))


class ReadyReader(DataSourceReader):
    def __init__(self, rows: int, size: int) -> None:
        self._rows = rows
        self._size = size

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(4)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        columns = {
            "key": [b"k" * 10] * BATCH_ROWS,
            "value": [b"v" * self._size] * BATCH_ROWS,
            "topic": ["metrics"] * BATCH_ROWS,
            "partition": [partition.value] * BATCH_ROWS,
            "offset": range(BATCH_ROWS),
            "timestamp": [datetime.now(UTC)] * BATCH_ROWS,
            "timestampType": [0] * BATCH_ROWS,
        }
        batch = pa.record_batch(
            [pa.array(columns[name], TYPES[name]) for name in DEFAULT],
            schema=pa.schema([(name, TYPES[name]) for name in DEFAULT]),
        )
        for _ in range(self._rows // 4 // BATCH_ROWS):
            yield batch
