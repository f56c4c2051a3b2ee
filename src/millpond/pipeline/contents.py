"""A checksum of messages, whatever they are kept in: the log as it is fetched and Parquet as it is read have the same.

    of each column, in the order of its name here, SHA-256 of
        numbers and times    the values, as 8 bytes each, little-endian; times in microseconds
        bytes and text       the lengths, as 4 bytes each, -1 for null; and, apart, the bytes one after another
        headers              how many each message has, -1 for null; and the same of all their keys, and of their values
    and of all of those together, SHA-256

Invariant: how messages are cut into batches, or compressed, makes no difference.
Pure. Driven by archive.py and archive_check.py.
"""

import hashlib
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS: Final = ("offset", "timestamp", "timestampType", "key", "value", "headers")
_BYTES: Final = ("key", "value", "headers.key", "headers.value")
_SUMMED: Final = (*COLUMNS, *_BYTES[2:], *(f"{name} lengths" for name in _BYTES))


class Contents:
    def __init__(self) -> None:
        self._sums: dict[str, Any] = {name: hashlib.sha256() for name in _SUMMED}
        self.messages = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.messages += batch.num_rows
        for name in COLUMNS:
            column = batch.column(name)
            if name == "headers":
                self._update("headers", pc.list_value_length(column).fill_null(-1).to_numpy().astype("<i4"))
                keys, values = column.flatten().flatten()
                self._add_bytes("headers.key", keys)
                self._add_bytes("headers.value", values)
            elif name in ("key", "value"):
                self._add_bytes(name, column)
            else:
                self._update(name, column.cast(pa.int64()).to_numpy().astype("<i8"))

    def _add_bytes(self, name: str, column: pa.Array) -> None:
        self._update(f"{name} lengths", pc.binary_length(column).fill_null(-1).to_numpy().astype("<i4"))
        if len(column):
            # What lies behind a null is anybody's guess.
            plain = column.cast(pa.binary()).fill_null(b"")
            _, bounds, data = plain.buffers()
            places = np.frombuffer(bounds, np.int32)[plain.offset : plain.offset + len(plain) + 1]
            if data is not None:
                self._update(name, memoryview(data)[places[0] : places[-1]])

    def _update(self, name: str, data: Any) -> None:  # noqa: ANN401 - whatever has a buffer
        self._sums[name].update(data)

    def checksum(self) -> str:
        whole = hashlib.sha256()
        for name in sorted(self._sums):
            whole.update(f"{name} {self._sums[name].hexdigest()}\n".encode())
        return whole.hexdigest()
