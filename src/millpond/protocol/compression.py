"""The codecs a record batch may be packed with, and inflation that cannot be made to eat the machine.

    codec   what is written                            what is read besides
    gzip    one member                                 several members
    snappy  xerial's framing, blocks of 32 KiB         bare snappy, as librdkafka sends it
    lz4     one frame, independent blocks              linked blocks, several frames
    zstd    one frame, with its content size           without the size, several frames

What is written is what every stock client reads: Java's lz4 reader, for one, refuses linked blocks.

Invariant: `decompress` never holds much more than `bytes_max` bytes, whatever the data claim or contain, and a claim
that the data cannot keep is refused before memory is set aside for it.
Pure. The only module that knows the compressors; driven by records/encode.py and records/decode.py.
"""

import enum
import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from millpond.model.errors import BatchTooLarge, MalformedBatch
from millpond.model.limits import INFLATED_BYTES_MAX, KIB, MIB
from millpond.model.ports import Buffer


class Codec(enum.IntEnum):
    """As numbered in bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


GZIP_LEVEL: Final = 6
LZ4_LEVEL: Final = 1
"""The fast one; cramjam's own default searches ten times as long for little."""
ZSTD_LEVEL: Final = 3
"""What Kafka's clients use by default."""

_GZIP_WINDOW_BITS: Final = 15 + 16
"""zlib's way to say: the largest window, and a gzip wrapper around it."""
_GZIP_MEMBERS_MAX: Final = 64
"""Each member costs a copy of the rest; clients write one."""
_GZIP_PIECE_BYTES: Final = 8 * MIB

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack("!ii", 1, 1)  # version, and the oldest that can read it
_XERIAL_BLOCK_BYTES: Final = 32 * KIB
_XERIAL_BLOCKS_MAX: Final = INFLATED_BYTES_MAX // KIB
"""Blocks of 1 KiB are the smallest xerial's library can be set to; tiny ones only burn time."""
_SNAPPY_RATIO_MAX: Final = 22
"""No snappy element yields more than 64 bytes from 3."""

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_NO_ROOM: Final = "failed to write whole buffer"
"""How cramjam says that the output did not fit; all its other errors are about the input."""

_I32: Final = struct.Struct("!i")


def compress(codec: Codec, data: bytes) -> bytes:
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return zlib.compress(data, GZIP_LEVEL, _GZIP_WINDOW_BITS)
        case Codec.SNAPPY:
            return _snappy_compress(data)
        case Codec.LZ4:
            compressor = cramjam.lz4.Compressor(level=LZ4_LEVEL, content_checksum=False, block_linked=False)
            compressor.compress(data)
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def decompress(codec: Codec, data: Buffer, *, bytes_max: int = INFLATED_BYTES_MAX) -> bytes:
    """The content of `data`. More than `bytes_max` of it is `BatchTooLarge`, a broken stream `MalformedBatch`."""
    match codec:
        case Codec.NONE:
            if len(data) > bytes_max:
                raise _too_large(codec, bytes_max)
            return bytes(data)
        case Codec.GZIP:
            return _gzip_decompress(data, bytes_max)
        case Codec.SNAPPY:
            return _snappy_decompress(data, bytes_max)
        case Codec.LZ4:
            return _inflate_growing(codec, cramjam.lz4.decompress_into, data, _lz4_content_bytes(data), bytes_max)
        case Codec.ZSTD:
            return _inflate_growing(codec, cramjam.zstd.decompress_into, data, _zstd_content_bytes(data), bytes_max)


def _too_large(codec: Codec, bytes_max: int) -> BatchTooLarge:
    return BatchTooLarge(f"{codec.name.lower()} content is more than {bytes_max} bytes; send smaller batches")


def _broken(codec: Codec, reason: object) -> MalformedBatch:
    return MalformedBatch(f"content is not valid {codec.name.lower()}: {reason}")


def _gzip_decompress(data: Buffer, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    total = 0
    rest: Buffer = data
    for _ in range(_GZIP_MEMBERS_MAX):
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        while not member.eof:
            try:
                # One byte more than allowed is asked for, so that a content of just `bytes_max` is told from a larger.
                piece = member.decompress(rest, min(_GZIP_PIECE_BYTES, bytes_max - total + 1))
            except zlib.error as error:
                raise _broken(Codec.GZIP, error) from None
            if not piece and not member.eof:
                raise _broken(Codec.GZIP, "it ends early")
            total += len(piece)
            if total > bytes_max:
                raise _too_large(Codec.GZIP, bytes_max)
            pieces.append(piece)
            rest = member.unconsumed_tail
        rest = member.unused_data
        if not rest:
            return b"".join(pieces)
    raise _broken(Codec.GZIP, f"more than {_GZIP_MEMBERS_MAX} members; write one")


def _snappy_compress(data: bytes) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    # Even nothing gets a block: some readers take a header alone for bare snappy.
    for start in range(0, max(len(data), 1), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_I32.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, bytes_max: int) -> bytes:
    view = memoryview(data)
    # The two version numbers after the magic are not looked at: some producers write them in the wrong byte order.
    framed = len(view) >= len(_XERIAL_HEADER) and bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    blocks = _xerial_blocks(view) if framed else [view]
    sizes = [_snappy_content_bytes(block) for block in blocks]
    if sum(sizes) > bytes_max:
        raise _too_large(Codec.SNAPPY, bytes_max)
    content = bytearray(sum(sizes))
    target = memoryview(content)
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        try:
            cramjam.snappy.decompress_raw_into(block, target[position : position + size])
        except cramjam.DecompressionError as error:
            raise _broken(Codec.SNAPPY, error) from None
        position += size
    return bytes(content)


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    """The bare snappy blocks within xerial's framing: a header of 16 bytes, then [i32 length, block] to the end."""
    blocks: list[memoryview] = []
    position, end = len(_XERIAL_HEADER), len(view)
    while position < end:
        if end - position < _I32.size:
            raise _broken(Codec.SNAPPY, f"{end - position} bytes where a block length should be")
        (length,) = _I32.unpack_from(view, position)
        position += _I32.size
        if not 0 < length <= end - position:
            raise _broken(Codec.SNAPPY, f"block length {length}; here it can be 1 to {end - position}")
        if len(blocks) == _XERIAL_BLOCKS_MAX:
            raise _broken(Codec.SNAPPY, f"more than {_XERIAL_BLOCKS_MAX} blocks; write larger ones")
        blocks.append(view[position : position + length])
        position += length
    return blocks


def _snappy_content_bytes(block: memoryview) -> int:
    """What a snappy block says it holds, once that is known to be possible."""
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise _broken(Codec.SNAPPY, error) from None
    if size > len(block) * _SNAPPY_RATIO_MAX:
        raise _broken(Codec.SNAPPY, f"{len(block)} bytes cannot hold the {size} they claim")
    return size


def _lz4_content_bytes(data: Buffer) -> int | None:
    """The size an lz4 frame declares: 8 little-endian bytes at 6, if bit 3 of the flags at 4 is set."""
    if len(data) < 14 or bytes(data[:4]) != _LZ4_MAGIC or not data[4] & 0b1000:
        return None
    return int.from_bytes(data[6:14], "little")


def _zstd_content_bytes(data: Buffer) -> int | None:
    """The size a zstd frame declares, after the magic and a descriptor byte.

    Bits 6-7 of the descriptor give the width of the size, bit 5 says that there is no window byte before it, and bits
    0-1 the width of a dictionary id before it.
    """
    if len(data) < 18 or bytes(data[:4]) != _ZSTD_MAGIC:
        return None
    descriptor = data[4]
    single_segment = descriptor >> 5 & 1
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 0b11]
    if width == 0:
        return None
    return int.from_bytes(data[start : start + width], "little") + (256 if width == 2 else 0)


def _inflate_growing(
    codec: Codec,
    decompress_into: Callable[[Buffer, bytearray], int],
    data: Buffer,
    declared: int | None,
    bytes_max: int,
) -> bytes:
    """Inflates into a buffer as large as declared or likely, and again into a larger one while it proves too small.

    The declared size is a hint only: it may lie, and more frames may follow.
    """
    if declared is not None and declared > bytes_max:
        raise _too_large(codec, bytes_max)
    # A buffer is zeroed when it is made, so a small batch cannot have a large one just for the asking.
    capacity = max(64 * KIB, 8 * len(data)) if declared is None else min(declared, max(MIB, 64 * len(data)))
    while True:
        capacity = min(capacity, bytes_max)
        content = bytearray(capacity)
        try:
            size = decompress_into(data, content)
        except cramjam.DecompressionError as error:
            if str(error) != _NO_ROOM:
                raise _broken(codec, error) from None
            if capacity == bytes_max:
                raise _too_large(codec, bytes_max) from None
        else:
            return bytes(memoryview(content)[:size])
        del content  # before the next is made, or both would count
        capacity = max(64 * KIB, 4 * capacity)
