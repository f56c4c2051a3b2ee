"""Records into batches and out of them, and checking a batch that nobody looks into. No disk.

Encoding and decoding have no system call to stand beside; `check_batch` stands beside the checksum alone.

Driven by suite.py.
"""

from collections.abc import Callable, Iterator
from functools import partial

from crc32c import crc32c

from bench.measuring import SIZES, Measurement, Row, Scale, cpu_seconds_of, in_turns, seconds_of
from bench.storage.batches import batch_of
from millpond.model.ids import TimestampMs
from millpond.protocol.records import NewRecord, check_batch, decode_batch, encode_batch, encode_values

_RECORDS = 1_000
_VALUE = bytes(range(100))
_CRC_START = 21
_CHECKS_MAX = 20_000


def measurements(scale: Scale) -> Iterator[Measurement[Row]]:
    yield Measurement("encode and decode records", partial(_records, scale))
    for name, size in SIZES.items():
        yield Measurement(f"check a batch of {name}", partial(_check, scale, name, size))


def _records(scale: Scale) -> list[Row]:
    values = [_VALUE] * _RECORDS
    plain = [NewRecord(_VALUE)] * _RECORDS
    keyed = [NewRecord(_VALUE, b"key %d" % number, TimestampMs(number)) for number in range(_RECORDS)]
    encoded, encoded_keyed = encode_batch(plain), encode_batch(keyed)
    return [
        _rate("encode values only", scale, lambda: encode_values(values, timestamp=TimestampMs(1))),
        _rate("encode", scale, lambda: encode_batch(plain)),
        _rate("encode with keys and times", scale, lambda: encode_batch(keyed)),
        _rate("decode", scale, lambda: decode_batch(encoded)),
        _rate("decode with keys and times", scale, lambda: decode_batch(encoded_keyed)),
    ]


def _rate(name: str, scale: Scale, work: Callable[[], object]) -> Row:
    best = min(seconds_of(work) for _ in range(scale.record_batches))
    return Row(section="records", name=name, value=_RECORDS / best, unit="records/s")


def _check(scale: Scale, name: str, size: int) -> list[Row]:
    batch = batch_of(size)
    covered = memoryview(batch)[_CRC_START:]
    count = min(scale.append_bytes // size, _CHECKS_MAX)
    pair = in_turns(
        scale.repetitions,
        lambda: cpu_seconds_of(lambda: _repeat(lambda: check_batch(batch), count)),
        lambda: cpu_seconds_of(lambda: _repeat(lambda: crc32c(covered), count)),
    )
    return [
        Row(
            section="records",
            name=f"check_batch {name}",
            value=pair.ours_s / count * 1e9,
            unit="ns",
            raw=pair.raw_s / count * 1e9,
            ratio=pair.ratio,
            compared_with="crc32c alone, CPU time",
        )
    ]


def _repeat(work: Callable[[], object], count: int) -> None:
    for _ in range(count):
        work()
