"""What a message that a queue has touched can be, and the legal ways from one to the next.

    ready ──acquire──> leased ──accept──────────────────────> done
      ^                  │ └────reject, or too many attempts─> doomed ──buried──> done
      └──due── waiting <─┘ release, or the lease ran out

A message that was never handed out has no state, and one that is done has none again: the ledger tells them apart by
their offset. Pure values; a run of equal ones is kept once.
"""

from enum import IntEnum
from typing import Final

from msgspec import Struct


class Lane(IntEnum):
    HIGH = 0
    NORMAL = 1
    LOW = 2


LANES: Final = tuple(Lane)


class Ready(Struct, frozen=True, gc=False):
    attempts: int
    """How often it has been handed out."""


class Leased(Struct, frozen=True, gc=False):
    attempts: int
    lane: Lane
    holder: str
    lock_ms: int
    until_ms: int
    """By the monotonic clock of this process; a restart gives every lease its whole time again."""


class Waiting(Struct, frozen=True, gc=False):
    attempts: int
    lane: Lane
    due_wall_ms: int
    until_ms: int
    """The same moment by the monotonic clock."""


class Doomed(Struct, frozen=True, gc=False):
    attempts: int
    reason: str
    sequence_shift: int
    """What makes of a message's offset its number in the dead-letter topic; sending it again is then harmless."""


State = Ready | Leased | Waiting | Doomed


class Outcome(IntEnum):
    """What a consumer says of a message; the numbers are Kafka's."""

    GAP = 0
    """There is no message at that offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
