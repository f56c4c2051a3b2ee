"""Our bytes against those of the encoders and decoders that stock clients use."""

import gzip
import io
import warnings
from types import ModuleType

import aiokafka.codec
import aiokafka.record.default_records
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.ids import LeaderEpoch, ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.model.limits import MIB
from millpond.protocol.compression import Codec, compress, decompress
from millpond.protocol.records import NewRecord, check_batch, check_produced, decode_batch, encode_batch, encode_values

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in an old way
    import kafka.codec
    import kafka.record.default_records

GOLDEN_RECORDS = [
    NewRecord(b"hello", b"k1", TimestampMs(1_700_000_000_000), (("h", b"v"), ("n", None))),
    NewRecord(b"world", None, TimestampMs(1_700_000_000_005)),
    NewRecord(None, b"gone", TimestampMs(1_699_999_999_990)),
]
GOLDEN = bytes.fromhex(
    "0000000000000000 0000005d 00000000 02 b9ca1184"  # offset, length, leader epoch, magic, checksum
    "0000 00000002 0000018bcfe56800 0000018bcfe56805"  # attributes, last delta, base and max timestamp
    "ffffffffffffffff ffff ffffffff 00000003"  # producer, record count
    "28 00 00 00 04 6b31 0a 68656c6c6f 04 0268 0276 026e 01"  # two headers, one without a value
    "16 00 0a 02 01 0a 776f726c64 00"  # five milliseconds later, no key
    "14 00 13 04 08 676f6e65 01 00"  # ten milliseconds earlier, no value
)

CLIENTS = [kafka.record.default_records, aiokafka.record.default_records]
CLIENT_LEADER_EPOCH = {
    kafka.record.default_records: LeaderEpoch(0),
    aiokafka.record.default_records: LeaderEpoch(-1),
}

new_records = st.builds(
    NewRecord,
    value=st.none() | st.binary(max_size=200),
    key=st.none() | st.binary(max_size=80),
    timestamp=st.integers(0, 2**41).map(TimestampMs),
    headers=st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=3).map(tuple),
)


def built_by(client: ModuleType, records: list[NewRecord], codec: Codec = Codec.NONE, **producer: int) -> bytes:
    builder = client.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=producer.get("producer_id", -1),
        producer_epoch=producer.get("producer_epoch", -1),
        base_sequence=producer.get("base_sequence", -1),
        batch_size=64 * MIB,
    )
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def as_new(batch: bytes) -> list[NewRecord]:
    return [NewRecord(value, key, timestamp, headers) for _, timestamp, key, value, headers in decode_batch(batch)]


def test_the_golden_batch_is_written_and_read() -> None:
    assert encode_batch(GOLDEN_RECORDS, leader_epoch=LeaderEpoch(0)) == GOLDEN
    assert as_new(GOLDEN) == GOLDEN_RECORDS


@pytest.mark.parametrize("client", CLIENTS)
@given(records=st.lists(new_records, min_size=1, max_size=20))
def test_a_batch_is_byte_for_byte_what_a_stock_client_builds(client: ModuleType, records: list[NewRecord]) -> None:
    theirs = built_by(client, records, producer_id=4, producer_epoch=3, base_sequence=2)
    ours = encode_batch(
        records,
        leader_epoch=CLIENT_LEADER_EPOCH[client],
        producer_id=ProducerId(4),
        producer_epoch=ProducerEpoch(3),
        base_sequence=Sequence(2),
    )
    assert ours == theirs


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("count", [1, 64, 65, 8192, 8193, 9000])
def test_the_fast_way_is_byte_for_byte_what_a_stock_client_builds(client: ModuleType, count: int) -> None:
    values = [b"v" * (number * 7919 % 150) for number in range(count)]
    theirs = built_by(client, [NewRecord(value, timestamp=TimestampMs(10)) for value in values])
    assert encode_values(values, timestamp=TimestampMs(10), leader_epoch=CLIENT_LEADER_EPOCH[client]) == theirs


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [1, 3, 2000])
def test_every_codec_crosses_both_ways(client: ModuleType, codec: Codec, count: int) -> None:
    records = [
        NewRecord(b"value %d " % number * 9, b"key", TimestampMs(1000 + number), (("é", b"\xff"),))
        for number in range(count)
    ]
    theirs = built_by(client, records, codec)
    assert check_batch(theirs).codec is codec
    check_produced(check_batch(theirs))
    assert as_new(theirs) == records

    read = client.DefaultRecordBatch(encode_batch(records, codec=codec))
    assert read.validate_crc()
    found = [
        NewRecord(
            record.value and bytes(record.value), record.key and bytes(record.key), record.timestamp, (*record.headers,)
        )
        for record in read
    ]
    assert found == records


CONTENTS = [b"", b"a", b"pond " * 30_000, bytes(range(256)) * 300]


@pytest.mark.parametrize("content", CONTENTS, ids=len)
def test_what_we_compress_stock_libraries_read(content: bytes) -> None:
    assert gzip.decompress(compress(Codec.GZIP, content)) == content
    assert lz4.frame.decompress(compress(Codec.LZ4, content)) == content
    assert zstandard.ZstdDecompressor().decompress(compress(Codec.ZSTD, content)) == content
    assert kafka.codec.snappy_decode(compress(Codec.SNAPPY, content)) == content
    assert bytes(aiokafka.codec.snappy_decode(compress(Codec.SNAPPY, content))) == content


@pytest.mark.parametrize("content", CONTENTS, ids=len)
def test_what_stock_libraries_compress_we_read(content: bytes) -> None:
    streamed = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(streamed, closefd=False) as writer:  # no content size in the frame
        writer.write(content)
    packed = [
        (Codec.GZIP, gzip.compress(content, 9)),
        (Codec.GZIP, gzip.compress(content) + gzip.compress(b"more")),
        (Codec.SNAPPY, snappy.compress(content)),
        (Codec.SNAPPY, kafka.codec.snappy_encode(content or b"\x00")),
        (Codec.SNAPPY, kafka.codec.snappy_encode(content or b"\x00", xerial_blocksize=1024)),
        (Codec.LZ4, lz4.frame.compress(content, block_linked=True, content_checksum=True)),
        (Codec.LZ4, lz4.frame.compress(content, store_size=False, block_checksum=True)),
        (Codec.LZ4, lz4.frame.compress(content) + lz4.frame.compress(b"more")),
        (Codec.ZSTD, zstandard.ZstdCompressor(level=19, write_checksum=True).compress(content)),
        (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(content)),
        (Codec.ZSTD, streamed.getvalue()),
        (Codec.ZSTD, zstandard.compress(content) + zstandard.compress(b"more")),
    ]
    for codec, data in packed:
        assert decompress(codec, data, bytes_max=MIB) in (content, content + b"more", content or b"\x00")


def test_snappy_framing_with_versions_in_the_wrong_byte_order_is_read() -> None:
    framed = kafka.codec.snappy_encode(b"pond")
    assert decompress(Codec.SNAPPY, framed[:8] + b"\x01\x00\x00\x00" * 2 + framed[16:], bytes_max=4) == b"pond"


def test_lz4_blocks_are_independent_as_the_java_client_demands() -> None:
    assert compress(Codec.LZ4, b"x" * 200_000)[4] & 0b10_0000
