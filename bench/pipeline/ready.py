"""The ceiling: a data source that has its Arrow batches ready, and does nothing but hand them over."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from millpond.pipeline.columns import DDL, DEFAULT, TYPES, arrow_schema

BATCH_ROWS = 25_000
PARTITIONS = 4


class ReadySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return ", ".join(f"{name} {DDL[name]}" for name in DEFAULT)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(*(int(self.options[name]) for name in ("rows", "keyBytes", "valueBytes")))


class ReadyReader(DataSourceReader):
    def __init__(self, rows: int, key_bytes: int, value_bytes: int) -> None:
        self._rows = rows
        self._values = {
            "key": b"k" * key_bytes,
            "value": b"v" * value_bytes,
            "topic": "metrics",
            "partition": 3,
            "offset": 123_456,
            "timestamp": datetime.now(UTC),
            "timestampType": 0,
        }

    def partitions(self) -> Sequence[InputPartition]:
        return [
            InputPartition((part + 1) * self._rows // PARTITIONS - part * self._rows // PARTITIONS)
            for part in range(PARTITIONS)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        arrays = [pa.repeat(pa.scalar(self._values[name], TYPES[name]), BATCH_ROWS) for name in DEFAULT]
        batch = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(DEFAULT))
        left = partition.value
        while left > 0:
            yield batch[:left]
            left -= BATCH_ROWS
