"""Hashes of keys, as other clients compute them, so that a key lands on the same partition whoever sends it.

murmur2 is Kafka's own, with its seed; murmur3 is the 32-bit one; `jump` spreads hashes over a number of places so that
one place more moves only its fair share of them.

Pure. Driven by partitioners.py.
"""

from functools import lru_cache
from typing import Final

KEYS_REMEMBERED: Final = 1 << 16
"""Hashes kept: keys come again, and a look-up costs a twentieth of a hash in Python."""

_MASK: Final = 0xFFFF_FFFF
_SEED_2: Final = 0x9747_B28C
_M_2: Final = 0x5BD1_E995
_C1_3: Final = 0xCC9E_2D51
_C2_3: Final = 0x1B87_3593


@lru_cache(KEYS_REMEMBERED)
def murmur2(data: bytes) -> int:
    """Without sign; Kafka takes the lower 31 bits of it."""
    length = len(data)
    hashed = _SEED_2 ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M_2 & _MASK
        word = (word ^ word >> 24) * _M_2 & _MASK
        hashed = hashed * _M_2 & _MASK ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M_2 & _MASK
    hashed = (hashed ^ hashed >> 13) * _M_2 & _MASK
    return hashed ^ hashed >> 15


@lru_cache(KEYS_REMEMBERED)
def murmur3(data: bytes, seed: int = 0) -> int:
    """32 bits, without sign."""
    length = len(data)
    hashed = seed
    whole = length & ~3
    for at in range(0, whole, 4):
        hashed ^= _mixed(int.from_bytes(data[at : at + 4], "little"))
        hashed = (hashed << 13 | hashed >> 19) & _MASK
        hashed = hashed * 5 + 0xE654_6B64 & _MASK
    if whole < length:
        hashed ^= _mixed(int.from_bytes(data[whole:], "little"))
    hashed ^= length
    hashed = (hashed ^ hashed >> 16) * 0x85EB_CA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2_AE35 & _MASK
    return hashed ^ hashed >> 16


def _mixed(word: int) -> int:
    word = word * _C1_3 & _MASK
    return (word << 15 | word >> 17) * _C2_3 & _MASK


def jump(hashed: int, places: int) -> int:
    """Jump consistent hashing: from `places` to `places + 1`, only one in `places + 1` moves, and all of them to it."""
    place, following = -1, 0
    state = hashed
    while following < places:
        place = following
        state = state * 2862933555777941757 + 1 & 0xFFFF_FFFF_FFFF_FFFF
        following = int((place + 1) * ((1 << 31) / ((state >> 33) + 1)))
    return place
