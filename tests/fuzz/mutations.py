"""Bytes of a valid request, damaged: flips, cuts, lies about lengths, other keys and versions, parts of two requests.

Invariant: the same `Random` gives the same bytes. Pure. The decoder's own fuzz lends its mutator.
"""

import random
import struct
from collections.abc import Callable

from millpond.protocol.messages.registry import APIS
from tests.protocol.messages.test_hostile_messages import mutated

VARINT_BOMBS = (b"\xff" * 5, b"\xff\xff\xff\xff\x0f", b"\x80" * 12, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
LENGTHS = (0, -1, -(2**31), 2**31 - 1, 104_857_600, 104_857_601, 1, 3, 7)


def damage(rng: random.Random, body: bytes, other: bytes) -> bytes:
    """`other` is a second body, for splicing."""
    return rng.choice(_WAYS)(rng, body, other)


def lie_about_length(rng: random.Random, body: bytes) -> bytes:
    """A frame whose length is not that of its body."""
    length = rng.choice((*LENGTHS, len(body) + rng.randrange(1, 50), max(0, len(body) - rng.randrange(1, 50))))
    return struct.pack("!i", length) + body


def _as_the_decoders_fuzz(rng: random.Random, body: bytes, other: bytes) -> bytes:
    return body[:4] + mutated(body[4:], rng)


def _flipped(rng: random.Random, body: bytes, other: bytes) -> bytes:
    out = bytearray(body)
    for _ in range(rng.choice((1, 1, 2, 8))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _flipped_behind_header(rng: random.Random, body: bytes, other: bytes) -> bytes:
    return body[:12] + _flipped(rng, body[12:], other) if len(body) > 12 else body


def _cut(rng: random.Random, body: bytes, other: bytes) -> bytes:
    return body[: rng.randrange(len(body))]


def _longer(rng: random.Random, body: bytes, other: bytes) -> bytes:
    """Bytes behind the end, which Kafka ignores."""
    return body + rng.randbytes(rng.randrange(1, 40))


def _bombed(rng: random.Random, body: bytes, other: bytes) -> bytes:
    at = rng.randrange(8, len(body) + 1)
    return body[:at] + rng.choice(VARINT_BOMBS) + body[at + rng.choice((0, 1)) :]


def _swapped(rng: random.Random, body: bytes, other: bytes) -> bytes:
    size = rng.choice((1, 2, 4, 8))
    first, second = sorted(rng.randrange(8, max(9, len(body) - size)) for _ in range(2))
    out = bytearray(body)
    out[first : first + size], out[second : second + size] = out[second : second + size], out[first : first + size]
    return bytes(out)


def _another_key(rng: random.Random, body: bytes, other: bytes) -> bytes:
    return struct.pack("!h", rng.choice((*APIS, -1, 4, 24, 32_767, -32_768))) + body[2:]


def _another_version(rng: random.Random, body: bytes, other: bytes) -> bytes:
    return body[:2] + struct.pack("!h", rng.choice((*range(-1, 20), 32_767, -32_768))) + body[4:]


def _spliced(rng: random.Random, body: bytes, other: bytes) -> bytes:
    return body[: rng.randrange(8, len(body) + 1)] + other[rng.randrange(8, len(other) + 1) :]


def _noise(rng: random.Random, body: bytes, other: bytes) -> bytes:
    return body[:8] + rng.randbytes(rng.randrange(60))


_WAYS: list[Callable[[random.Random, bytes, bytes], bytes]] = [
    _as_the_decoders_fuzz,
    _as_the_decoders_fuzz,
    _flipped,
    _flipped_behind_header,
    _flipped_behind_header,
    _cut,
    _longer,
    _bombed,
    _swapped,
    _another_key,
    _another_version,
    _spliced,
    _noise,
]
