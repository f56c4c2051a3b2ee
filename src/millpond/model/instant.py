"""Now, by both clocks."""

from msgspec import Struct


class Instant(Struct, frozen=True, gc=False):
    """What is waited for goes by the monotonic clock, what people and clients see by the wall."""

    monotonic_ms: int
    wall_ms: int
