"""A time as people give it: a date, how long ago, or milliseconds; and how long something is to last.

Pure: the caller says what time it is. Driven by commands that seek by time.
"""

import re
from datetime import datetime
from typing import Final

from millpond.model.errors import InvalidSetting

_AGO: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d|w)")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_EPOCH_MS: Final = re.compile(r"\d{1,15}")


def parse_span(option: str, text: str) -> int:
    """In milliseconds."""
    found = _AGO.fullmatch(text.strip())
    if found is None:
        raise InvalidSetting(f"{option} is {text[:80]!r}; allowed is a span such as 500ms, 90s, 15m, 2h or 3d")
    return int(float(found[1]) * _UNIT_MS[found[2]])


def parse_moment(option: str, text: str, *, now_ms: int) -> int:
    """In milliseconds since 1970; a date without a zone is of this machine's zone."""
    given = text.strip()
    if ago := _AGO.fullmatch(given):
        return max(0, now_ms - int(float(ago[1]) * _UNIT_MS[ago[2]]))
    if _EPOCH_MS.fullmatch(given):
        return int(given)
    try:
        return max(0, int(datetime.fromisoformat(given).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        raise InvalidSetting(
            f"{option} is {text[:80]!r}; allowed is a date such as 2026-11-16T08:30 or 2026-11-16T08:30:00Z, how long "
            "ago such as 90s, 15m, 2h or 3d, or milliseconds since 1970"
        ) from None
