"""Kafka's record batch, format v2, bit for bit.

record.py says what a record is, header.py reads, checks and patches a batch's first 61 bytes, encode.py and decode.py
make batches of records and records of batches, and kernel.py holds their inner loops.
"""

from millpond.protocol.compression import Codec
from millpond.protocol.records.decode import decode_batch, decode_batch_as
from millpond.protocol.records.encode import empty_batch, encode_batch, encode_survivors, encode_values
from millpond.protocol.records.header import (
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    check_batch,
    check_produced,
    iter_batches,
    parse_header,
    stamp,
    stamp_append_time,
    stamp_producer,
)
from millpond.protocol.records.record import Headers, NewRecord, Record

__all__ = [
    "HEADER",
    "HEADER_BYTES",
    "LENGTH_END",
    "BatchHeader",
    "Codec",
    "Headers",
    "NewRecord",
    "Record",
    "check_batch",
    "check_produced",
    "decode_batch",
    "decode_batch_as",
    "empty_batch",
    "encode_batch",
    "encode_survivors",
    "encode_values",
    "iter_batches",
    "parse_header",
    "stamp",
    "stamp_append_time",
    "stamp_producer",
]
