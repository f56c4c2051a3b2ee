"""Where the records of one control batch are, so that each is read when it is asked for, and no other.

Of a batch that is not compressed, eight bytes a record are kept: where it begins, and its checksum. The log is read
again for each, and no more of it than that record. What is compressed is kept inflated.

Invariant: what `take` returns is what lay in the batch when the shelf was put up.
Pure: the caller reads. Driven by broker/drivers/shelves.py.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise, starmap
from typing import Final

from crc32c import crc32c

from millpond.core.delivery.parked_format import Aside, Carried, Parked, Shelved
from millpond.protocol.compression import Codec, decompress
from millpond.protocol.records import HEADER_BYTES, BatchHeader, kernel, parse_header

Read = Callable[[int, int], memoryview]
"""So many bytes from a position of the control batch on."""

_AFTER_VALUE: Final = 1
"""Behind the value of a control record: that it has no headers."""
_SHELF_BYTES: Final = 600
"""More or less, of a shelf without its records."""


class Shelf:
    __slots__ = ("_begin", "_checksums", "_header", "_ids", "_inflated", "_starts", "codec", "position")

    def __init__(
        self,
        control: BatchHeader,
        fact: Parked | Carried | Aside,
        *,
        position: int,
        verify: bool,
        inflated_bytes_max: int,
    ) -> None:
        """`position` is the control batch's own, in its file. With `verify`, each record is checked when it is read."""
        header = parse_header(fact.batch)
        content, self.codec = fact.batch[HEADER_BYTES : header.size], header.codec
        self._header = header
        self.position = position
        self._begin = control.size - _AFTER_VALUE - len(fact.batch) + HEADER_BYTES
        """Of the records within the control batch: the producer's batch is the last thing in it."""
        self._inflated: bytes | None = None
        if self.codec is not Codec.NONE:
            self._inflated = decompress(self.codec, content, bytes_max=inflated_bytes_max)
        inflated = bytes(content) if self._inflated is None else self._inflated
        self._starts = kernel.record_starts(inflated, header.record_count)
        self._checksums: array[int] | None = None
        if verify and self._inflated is None:
            spans = map(inflated.__getitem__, starmap(slice, pairwise(self._starts)))
            self._checksums = array("I", map(crc32c, spans))
        self._ids: Sequence[int]
        match fact:
            case Carried() | Aside():
                self._ids = fact.ids.tolist()
            case Parked(base_offset):
                self._ids = range(base_offset, base_offset + header.record_count)

    @property
    def size_bytes(self) -> int:
        return _SHELF_BYTES + len(self._inflated or b"") + 8 * len(self._starts)

    def take(self, id_: int, read: Read) -> Shelved | None:
        """None where its bytes in the log have changed."""
        number = self._ids.index(id_)
        begin, end = self._starts[number], self._starts[number + 1]
        if self._inflated is not None:
            return Shelved(self._inflated[begin:end], self._header)
        content = bytes(read(self._begin + begin, end - begin))
        if self._checksums is not None and crc32c(content) != self._checksums[number]:
            return None
        return Shelved(content, self._header)
