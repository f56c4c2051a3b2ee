"""Each codec there and back, and bombs, which must not cost more than the limit."""

import contextlib
import subprocess
import sys
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import BatchTooLarge, MalformedBatch
from millpond.model.limits import KIB, MIB
from millpond.protocol.compression import Codec, compress, decompress

PACKING = [codec for codec in Codec if codec is not Codec.NONE]

BOMB_BYTES = 256 * MIB
LIMIT = 16 * MIB
XERIAL_HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


@pytest.mark.parametrize("codec", Codec)
@given(content=st.binary(max_size=3000), repeats=st.integers(1, 100))
def test_content_comes_back_even_where_it_just_fits(codec: Codec, content: bytes, repeats: int) -> None:
    content = content * repeats
    for view in (bytes, bytearray, memoryview):
        assert decompress(codec, view(compress(codec, content)), bytes_max=len(content)) == content


@pytest.mark.parametrize("codec", Codec)
def test_one_byte_more_than_allowed_is_too_large(codec: Codec) -> None:
    for size in (1, 100, 40_000, 3 * MIB):
        with pytest.raises(BatchTooLarge, match=f"more than {size - 1} bytes"):
            decompress(codec, compress(codec, b"p" * size), bytes_max=size - 1)


@pytest.mark.parametrize("codec", PACKING)
def test_content_far_larger_than_it_looks_is_inflated(codec: Codec) -> None:
    content = bytes(20 * MIB)
    assert decompress(codec, compress(codec, content), bytes_max=20 * MIB) == content


def test_lz4_and_zstd_without_a_declared_size_are_inflated_however_large() -> None:
    content = bytes(5 * MIB)
    assert decompress(Codec.LZ4, lz4.frame.compress(content, store_size=False), bytes_max=5 * MIB) == content
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(content)
    assert decompress(Codec.ZSTD, unsized, bytes_max=5 * MIB) == content


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_791, 65_792, 200_000])
def test_every_width_of_a_declared_zstd_size_is_understood(size: int) -> None:
    packed = zstandard.ZstdCompressor().compress(bytes(size))
    assert decompress(Codec.ZSTD, packed, bytes_max=size) == bytes(size)


@pytest.mark.parametrize("codec", PACKING)
def test_a_stream_cut_short_is_malformed(codec: Codec) -> None:
    packed = compress(codec, b"some content, some more content" * 20)
    for size in range(len(packed)):
        if codec is Codec.SNAPPY and size == len(XERIAL_HEADER):
            continue  # the framing has no end mark: no blocks is no content
        with pytest.raises(MalformedBatch):
            decompress(codec, packed[:size], bytes_max=MIB)


@pytest.mark.parametrize("codec", PACKING)
def test_bytes_after_a_stream_are_malformed(codec: Codec) -> None:
    with pytest.raises(MalformedBatch):
        decompress(codec, compress(codec, b"content") + b"\x00garbage", bytes_max=MIB)


@pytest.mark.parametrize("codec", PACKING)
@given(garbage=st.binary(max_size=300))
def test_garbage_is_malformed_or_bounded(codec: Codec, garbage: bytes) -> None:
    with contextlib.suppress(MalformedBatch, BatchTooLarge):
        assert len(decompress(codec, garbage, bytes_max=MIB)) <= MIB


@pytest.mark.parametrize("codec", PACKING)
@given(position=st.integers(0, 10_000), byte=st.integers(1, 255))
def test_a_damaged_stream_is_malformed_or_bounded(codec: Codec, position: int, byte: int) -> None:
    packed = bytearray(compress(codec, b"".join(b"%d," % number for number in range(2000))))
    packed[position % len(packed)] ^= byte
    with contextlib.suppress(MalformedBatch, BatchTooLarge):
        assert len(decompress(codec, packed, bytes_max=MIB)) <= MIB


def test_snappy_that_claims_more_than_it_can_hold_is_refused_before_memory_is_set_aside() -> None:
    claims_four_gib = b"\xff\xff\xff\xff\x0f" + b"\x00a"
    for data in (claims_four_gib, XERIAL_HEADER + len(claims_four_gib).to_bytes(4, "big") + claims_four_gib):
        with pytest.raises(MalformedBatch, match="cannot hold"):
            decompress(Codec.SNAPPY, data, bytes_max=2**40)


@pytest.mark.parametrize("length", [-1, 0, 5, 2**31 - 1, -(2**31)])
def test_a_snappy_block_length_that_lies_is_malformed(length: int) -> None:
    with pytest.raises(MalformedBatch, match=f"block length {length};"):
        decompress(Codec.SNAPPY, XERIAL_HEADER + length.to_bytes(4, "big", signed=True) + b"abcd", bytes_max=MIB)


def test_streams_of_countless_tiny_pieces_are_refused() -> None:
    tiny_block = b"\x00\x00\x00\x01\x00"
    with pytest.raises(MalformedBatch, match="blocks"):
        decompress(Codec.SNAPPY, XERIAL_HEADER + tiny_block * 300_000, bytes_max=MIB)
    with pytest.raises(MalformedBatch, match="members"):
        decompress(Codec.GZIP, compress(Codec.GZIP, b"") * 1000, bytes_max=MIB)


def gzip_bomb() -> bytes:
    compressor = zlib.compressobj(1, wbits=31)
    return b"".join(compressor.compress(bytes(MIB)) for _ in range(BOMB_BYTES // MIB)) + compressor.flush()


def snappy_bomb() -> bytes:
    return bytes(snappy.compress(bytes(BOMB_BYTES)))


def xerial_bomb() -> bytes:
    block = bytes(snappy.compress(bytes(32 * KIB)))
    return XERIAL_HEADER + (len(block).to_bytes(4, "big") + block) * (BOMB_BYTES // (32 * KIB))


def lz4_bomb() -> bytes:
    return bytes(lz4.frame.compress(bytes(BOMB_BYTES), store_size=False))


def lz4_bomb_of_many_frames() -> bytes:
    return bytes(lz4.frame.compress(bytes(MIB))) * (BOMB_BYTES // MIB)


def zstd_bomb() -> bytes:
    return bytes(cramjam.zstd.compress(bytes(BOMB_BYTES), level=1))


def zstd_bomb_without_a_declared_size() -> bytes:
    return zstandard.ZstdCompressor(level=1, write_content_size=False).compress(bytes(BOMB_BYTES))


def zstd_bomb_of_many_frames() -> bytes:
    return zstandard.compress(bytes(MIB)) * (BOMB_BYTES // MIB)


IN_A_NEW_PROCESS = """
import sys
from millpond.model.errors import BatchTooLarge
from millpond.protocol.compression import Codec, compress, decompress

def peak_bytes():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM:"))

codec, limit = Codec(int(sys.argv[1])), int(sys.argv[2])
bomb = sys.stdin.buffer.read()
decompress(codec, compress(codec, b"warm"), bytes_max=limit)
before = peak_bytes()
try:
    decompress(codec, bomb, bytes_max=limit)
except BatchTooLarge:
    print(peak_bytes() - before)
"""


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (Codec.GZIP, gzip_bomb),
        (Codec.SNAPPY, snappy_bomb),
        (Codec.SNAPPY, xerial_bomb),
        (Codec.LZ4, lz4_bomb),
        (Codec.LZ4, lz4_bomb_of_many_frames),
        (Codec.ZSTD, zstd_bomb),
        (Codec.ZSTD, zstd_bomb_without_a_declared_size),
        (Codec.ZSTD, zstd_bomb_of_many_frames),
    ],
)
def test_a_bomb_is_refused_without_costing_much_more_than_the_limit(codec: Codec, bomb: Callable[[], bytes]) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", IN_A_NEW_PROCESS, str(int(codec)), str(LIMIT)],
        input=bomb(),
        capture_output=True,
        check=True,
    )
    assert int(answer.stdout) < 2 * LIMIT
