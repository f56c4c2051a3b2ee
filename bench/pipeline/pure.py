"""The data source as it is where no kernel was compiled, beside the one with it, in one session."""

from collections.abc import Iterator
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from millpond.pipeline import decode
from millpond.pipeline.options import read_options
from millpond.pipeline.source import BatchReader, MillpondSource


class PureSource(MillpondSource):
    @classmethod
    def name(cls) -> str:
        return "pure"

    def reader(self, schema: StructType) -> DataSourceReader:
        return PureReader(read_options(self.options, "batch"), None)


class PureReader(BatchReader):
    """Of raw columns."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with patch.object(decode, "KERNEL", None):  # the next task in this process may want it
            yield from super().read(partition)
