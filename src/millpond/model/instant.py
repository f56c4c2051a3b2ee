"""Now, by both clocks."""

from typing import NamedTuple


class Instant(NamedTuple):
    """What is waited for goes by the monotonic clock, what people and clients see by the wall."""

    monotonic_ms: int
    wall_ms: int
