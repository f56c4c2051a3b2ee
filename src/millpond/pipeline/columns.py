"""The columns of a message in Spark, named and typed as Spark's own kafka source has them.

    key            binary       null where the message has none
    value          binary       null in a tombstone
    topic          string
    partition      int
    offset         long
    timestamp      timestamp    in microseconds, UTC
    timestampType  int          0 set by the producer, 1 by the log on append
    headers        array of {key: string, value: binary}, null where there are none; only with includeHeaders

Pure. Driven by decode.py, source.py and sink.py.
"""

from typing import Final

import pyarrow as pa

HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER)),
}
DEFAULT: Final = tuple(name for name in TYPES if name != "headers")
"""Headers cost a reader a good part of its time, and most messages have none."""

DDL: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The same types, as Spark writes them."""


def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([pa.field(name, TYPES[name]) for name in names])
