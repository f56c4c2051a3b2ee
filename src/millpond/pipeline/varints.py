"""Kafka's varints, very many at a time: read from and laid out in arrays of bytes, without Python code for each.

A varint is zigzag, then seven bits a byte, lowest first, the top bit set on all but the last byte
(protocol/records/kernel.py).

Invariant: reading never leaves `data`; a varint that is too long or cut short makes `Unreadable`.
Pure. Driven by decode.py and encode.py.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10
_MORE: Final = 0x80
_SIGNED: Final = {size: np.dtype(f"i{size}") for size in (1, 2, 8)}


class Unreadable(Exception):
    """Bytes that are not what they should be; decode.py lets the usual way say why. Never leaves this room."""


def read(data: Bytes, at: Numbers, *, bytes_max: int = VARINT_BYTES_MAX) -> tuple[Numbers, Numbers]:
    """The numbers that begin at these places, and the places after them."""
    # Clipped, because a place behind the end is found out when the record's end does not fit.
    first = data.take(at, mode="clip")
    if first.max(initial=0) < _MORE:
        return _unzigzag(first).astype(np.int64), at + 1
    # Nearly all that do not fit in one byte fit in two: both are read of all of them, without a look at which need it.
    has_second = first >> 7
    second = data.take(at + 1, mode="clip") * has_second
    numbers = _unzigzag(second.astype(np.uint16) << 7 | first & 0x7F).astype(np.int64)
    after = at + has_second
    after += 1
    if second.max() >= _MORE:
        long = np.flatnonzero(second & _MORE)
        numbers[long], after[long] = _read_long(data, at[long], bytes_max)
    return numbers, after


def _read_long(data: Bytes, at: Numbers, bytes_max: int) -> tuple[Numbers, Numbers]:
    raw = np.zeros(len(at), np.uint64)
    width = np.zeros(len(at), np.int64)
    left = np.arange(len(at))
    for place in range(bytes_max):
        byte = data.take(at[left] + place, mode="clip")
        raw[left] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * place)
        width[left] += 1
        if place == VARLONG_BYTES_MAX - 1 and (byte > 1).any():
            raise Unreadable
        left = left[(byte & _MORE) != 0]
        if not len(left):
            break
    if len(left) or (bytes_max == VARINT_BYTES_MAX and (raw >> np.uint64(32)).any()):
        raise Unreadable
    return _unzigzag(raw).astype(np.int64), at + width


def _unzigzag(raw: NDArray[Any]) -> NDArray[Any]:
    """In as many bits as they came in, as if these had a sign."""
    return ((raw >> 1) ^ -(raw & 1)).view(_SIGNED[raw.itemsize])


def widths(numbers: Numbers) -> Numbers:
    """How many bytes each takes."""
    raw = _zigzag(numbers)
    width = np.ones(len(numbers), np.int64)
    for place in range(1, VARLONG_BYTES_MAX):
        larger = raw >= np.uint64(1) << np.uint64(7 * place)
        if not larger.any():
            break
        width += larger
    return width


def lay_out(numbers: Numbers) -> tuple[Bytes, Mask]:
    """A row for each number, and which bytes of the row are its own."""
    raw = _zigzag(numbers)
    width = widths(numbers)
    columns = int(width.max(initial=1))
    rows = np.empty((len(numbers), columns), np.uint8)
    for place in range(columns):
        rows[:, place] = (raw >> np.uint64(7 * place)).astype(np.uint8) & 0x7F
    places: Any = np.arange(columns)
    rows[places[None, :] < (width - 1)[:, None]] |= _MORE
    return rows, places[None, :] < width[:, None]


def _zigzag(numbers: Numbers) -> NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
