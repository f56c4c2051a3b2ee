"""Receipts: what a consumer of a queue shows to say what became of a message.

    byte 0       1, the form of what follows
    1 to 16      who holds the lease: 128 bits, drawn anew for every receive
    17 to 20     partition, big-endian
    21 to 28     offset, big-endian

as base64url without padding, 39 characters; the first 28 are the same for all messages that one receive had of a
partition. Nothing in it is secret but the holder, and that nobody can guess: the ledger knows who holds what, so a
receipt is worth nothing once the lease is over, nor to another group.
Pure. Driven by the queue routes.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from millpond.broker.operations.queues import Lease
from millpond.model.ports import Rng

HOLDER_BITS: Final = 128
_FORM: Final = b"\1"
_HOLDER_BYTES: Final = HOLDER_BITS // 8
_PREFIX: Final = "http:"
"""So that no member of a share group is ever a holder of this kind."""
_LOOKS_RIGHT: Final = re.compile(r"[A-Za-z0-9_-]{39}")


def draw_holder(rng: Rng) -> str:
    return f"{_PREFIX}{rng.getrandbits(HOLDER_BITS):032x}"


def stem(holder: str, partition: int) -> str:
    """How all receipts of this holder begin for messages of this partition."""
    drawn = bytes.fromhex(holder.removeprefix(_PREFIX))
    return urlsafe_b64encode(_FORM + drawn + partition.to_bytes(4, "big")).decode()


def receipt(stem: str, offset: int) -> str:
    return stem + urlsafe_b64encode(offset.to_bytes(8, "big"))[:11].decode()


def lease_of(text: str) -> Lease | None:
    """None where it is no receipt at all."""
    if _LOOKS_RIGHT.fullmatch(text) is None:
        return None
    content = urlsafe_b64decode(f"{text}=")
    form, drawn, place = content[:1], content[1 : 1 + _HOLDER_BYTES], content[1 + _HOLDER_BYTES :]
    if form != _FORM:
        return None
    return Lease(
        partition=int.from_bytes(place[:4], "big"),
        offset=int.from_bytes(place[4:], "big"),
        holder=f"{_PREFIX}{drawn.hex()}",
    )
