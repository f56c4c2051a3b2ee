"""What is measured of the gRPC door, by name. Pure; works.py does it."""

from typing import Final

RAW_PRODUCE, RAW_FETCH = "raw batches, produce", "raw batches, fetch"
UNARY, STREAM_ONE = "messages, one a unary call", "messages, one a request of a stream"
STREAM_MANY, CONSUME = "messages, 100 a request of a stream", "messages, consume"
WORKS: Final = (RAW_PRODUCE, RAW_FETCH, UNARY, STREAM_ONE, STREAM_MANY, CONSUME)
READS: Final = frozenset({RAW_FETCH, CONSUME})
