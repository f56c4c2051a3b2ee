"""Which partition each row goes to: where Kafka's default partitioner puts it, computed of very many keys at a time.

Invariant: a key lands where `millpond.client` and Kafka's Java client put it (client/hashing.py).
Pure. Driven by sink.py.
"""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millpond.pipeline.varints import Bytes, Numbers

_SEED: Final = np.uint32(0x9747_B28C)
_M: Final = np.uint32(0x5BD1_E995)
_POSITIVE: Final = np.uint32(0x7FFF_FFFF)

Hashes = NDArray[np.uint32]


def murmur2(keys: pa.Array) -> Hashes:
    """Of each key; of a null key, nothing that means anything."""
    bounds = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    content = keys.buffers()[2]
    data = np.frombuffer(b"" if content is None else content, np.uint8)
    lengths = np.diff(bounds)
    hashes = np.zeros(len(keys), np.uint32)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _hash_alike(data, bounds[:-1][rows], length)
    return hashes


def _hash_alike(data: Bytes, starts: Numbers, length: int) -> Hashes:
    """Keys of one length, word by word."""
    hashed = np.full(len(starts), _SEED ^ np.uint32(length), np.uint32)
    whole = length & ~3
    if length:
        rows = data[starts[:, None] + np.arange(length)[None, :]]
        words = np.ascontiguousarray(rows[:, :whole]).view("<u4").astype(np.uint32)
        for number in range(whole // 4):
            word = words[:, number] * _M
            word = (word ^ (word >> np.uint32(24))) * _M
            hashed = hashed * _M ^ word
        if whole < length:
            rest = np.zeros(len(starts), np.uint32)
            for place in range(whole, length):
                rest |= rows[:, place].astype(np.uint32) << np.uint32(8 * (place - whole))
            hashed = (hashed ^ rest) * _M
    hashed = (hashed ^ (hashed >> np.uint32(13))) * _M
    return hashed ^ (hashed >> np.uint32(15))


def by_key(keys: pa.Array, *, partitions: int, without_key: int) -> Numbers:
    """Rows without a key all go to `without_key`: the caller moves on from batch to batch."""
    chosen = ((murmur2(keys) & _POSITIVE) % np.uint32(partitions)).astype(np.int64)
    if keys.null_count:
        chosen[keys.is_null().to_numpy(zero_copy_only=False)] = without_key
    return chosen
