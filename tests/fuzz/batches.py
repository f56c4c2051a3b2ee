"""Record batches, whole and hostile: bombs, lies about lengths and counts, checksums right over nonsense.

Invariant: the same `Random` gives the same batch. Pure.
"""

import random
import struct
import zlib
from collections.abc import Callable
from functools import cache

import cramjam
from crc32c import crc32c

from millpond.model.ids import ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.protocol.messages.encoders import uvarint
from millpond.protocol.records import Codec, NewRecord, encode_batch

NOW_MS = 1_790_000_000_000
BOMB_BYTES = 300 * 1024 * 1024
"""More than the broker is ready to inflate."""
FIELDS = {"length": (8, "!i"), "magic": (16, "!b"), "crc": (17, "!I"), "attributes": (21, "!h")} | {
    "last_offset_delta": (23, "!i"),
    "base_timestamp": (27, "!q"),
    "max_timestamp": (35, "!q"),
    "producer_id": (43, "!q"),
    "producer_epoch": (51, "!h"),
    "base_sequence": (53, "!i"),
    "record_count": (57, "!i"),
}
CRC_AT, CRC_START, RECORDS_AT = 17, 21, 61


def whole(rng: random.Random, producers: list[tuple[int, int]]) -> bytes:
    """A batch that is as it should be, whatever its sequence numbers say."""
    stamp = TimestampMs(NOW_MS - rng.randrange(100_000))
    records = [
        NewRecord(rng.randbytes(rng.choice((0, 5, 40, 400))), key=_key(rng), timestamp=stamp)
        for _ in range(rng.choice((1, 1, 2, 10)))
    ]
    codec = rng.choice(list(Codec))
    if rng.random() < 0.6:
        return encode_batch(records, codec=codec)
    producer_id, epoch = rng.choice(producers)
    sequence = Sequence(rng.choice((0, 1, 2, 10, 2**31 - 1)))
    return encode_batch(
        records,
        codec=codec,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(max(0, epoch)),
        base_sequence=sequence,
    )


def _key(rng: random.Random) -> bytes | None:
    """Sometimes as if it were for the log of the groups, cut short; sometimes none."""
    if rng.random() < 0.1:
        return rng.choice((None, struct.pack("!hh", rng.choice((0, 1, 2, 3, 19_792, 19_793)), 3) + rng.randbytes(5)))
    return b"k%d" % rng.randrange(50)


def hostile(rng: random.Random, producers: list[tuple[int, int]]) -> bytes:
    if rng.random() < 0.01:
        return bomb(rng.choice((Codec.GZIP, Codec.LZ4, Codec.ZSTD)))
    batch = whole(rng, producers)
    return rng.choice(_WAYS)(rng, batch)


def sealed(batch: bytes) -> bytes:
    """With the checksum that its bytes have, and the length too."""
    if len(batch) < RECORDS_AT:
        return batch
    out = bytearray(batch)
    struct.pack_into("!i", out, 8, len(out) - 12)
    struct.pack_into("!I", out, CRC_AT, crc32c(bytes(out[CRC_START:])))
    return bytes(out)


def _lying(rng: random.Random, batch: bytes) -> bytes:
    """One or two fields of the header say something else; most often under a right checksum."""
    out = bytearray(batch)
    for _ in range(rng.choice((1, 1, 2))):
        at, code = FIELDS[rng.choice(list(FIELDS))]
        bits = struct.calcsize(code) * 8
        low, high = (0, 2**bits - 1) if code == "!I" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        value = rng.choice((low, high, 0, 1, max(low, -1), max(low, -2), high - 1, rng.randrange(low, high)))
        struct.pack_into(code, out, at, value)
    if rng.random() < 0.7:
        struct.pack_into("!I", out, CRC_AT, crc32c(bytes(out[CRC_START:])))
    return bytes(out)


def _noise_inside(rng: random.Random, batch: bytes) -> bytes:
    return sealed(batch[:RECORDS_AT] + rng.randbytes(rng.choice((0, 1, 10, 300))))


def _cut(rng: random.Random, batch: bytes) -> bytes:
    cut = batch[: rng.randrange(len(batch))]
    return sealed(cut) if rng.random() < 0.5 else cut


def _flipped(rng: random.Random, batch: bytes) -> bytes:
    out = bytearray(batch)
    out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return sealed(bytes(out)) if rng.random() < 0.5 else bytes(out)


def _repeated(rng: random.Random, batch: bytes) -> bytes:
    """Two batches where one is wanted, or one and a half."""
    return batch + batch[: rng.choice((len(batch), len(batch) // 2, 1))]


def _absurd_record(rng: random.Random, batch: bytes) -> bytes:
    """A record whose own lengths are absurd, in a batch whose header is right."""
    size = rng.choice((b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f", b"\x01", b"\x00", b"\xff" * 12))
    inner = (
        b"\x00" + b"\x00" * 2 + rng.choice((size, b"\x02k")) + rng.choice((size, b"\x02v")) + rng.choice((size, b"\0"))
    )
    record = rng.choice((size, uvarint(2 * len(inner)))) + inner
    head = bytearray(batch[:RECORDS_AT])
    struct.pack_into("!h", head, 21, 0)
    struct.pack_into("!i", head, 23, 0)
    struct.pack_into("!i", head, 57, 1)
    return sealed(bytes(head) + record)


def _wrong_codec(rng: random.Random, batch: bytes) -> bytes:
    out = bytearray(batch)
    struct.pack_into("!h", out, 21, rng.randrange(8) | rng.choice((0, 0, 8, 16, 32, 64, 0x7F80)))
    return sealed(bytes(out))


def _none(rng: random.Random, batch: bytes) -> bytes:
    return b""


_WAYS: list[Callable[[random.Random, bytes], bytes]] = [
    _lying,
    _lying,
    _noise_inside,
    _cut,
    _flipped,
    _repeated,
    _absurd_record,
    _wrong_codec,
    _none,
]


@cache
def bomb(codec: Codec) -> bytes:
    """Less than a message may have, and inflates to hundreds of megabytes."""
    piece = bytes(BOMB_BYTES)
    match codec:
        case Codec.GZIP:
            packer = zlib.compressobj(9, zlib.DEFLATED, 31)
            packed = packer.compress(piece) + packer.flush()
        case Codec.LZ4:
            packed = bytes(cramjam.lz4.compress(piece))
        case Codec.ZSTD:
            packed = bytes(cramjam.zstd.compress(piece))
        case _:
            raise AssertionError(codec)
    head = bytearray(encode_batch([NewRecord(b"v", key=b"k", timestamp=TimestampMs(NOW_MS))])[:RECORDS_AT])
    struct.pack_into("!h", head, 21, codec)
    return sealed(bytes(head) + packed)
