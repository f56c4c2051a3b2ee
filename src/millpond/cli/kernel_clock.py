"""Whether the kernel takes its clock for synchronised, as it tells everybody who asks.

    struct timex    0  modes  u32     40  status  i32, on 64-bit Linux; 208 bytes in all

Driven by examination.py.
"""

import ctypes
import struct
from typing import Final

STATUS_AT: Final = 40
TIMEX_BYTES: Final = 208
POINTER_BYTES: Final = 8
UNSYNCHRONISED: Final = 0x0040
ERROR: Final = 5
"""The state in which the clock is not synchronised."""


def is_synchronised() -> bool | None:
    """None where there is nobody to ask."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    if struct.calcsize("P") != POINTER_BYTES:
        return None
    timex = ctypes.create_string_buffer(TIMEX_BYTES)  # modes of zero: asks, and sets nothing
    state = adjtimex(ctypes.byref(timex))
    if state < 0:
        return None
    (status,) = struct.unpack_from("=i", timex, STATUS_AT)
    return state != ERROR and not status & UNSYNCHRONISED
