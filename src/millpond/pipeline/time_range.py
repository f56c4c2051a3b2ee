"""The range of a back-fill: whole hours, since windows are as wide as that.

Pure, and without Spark. Driven by backfill.py and the command line.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from millpond.model.errors import InvalidSetting

STEP_MS: Final = 3_600_000
"""The widest window."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `start` on, before `end`, of times of metrics."""

    start_ms: int
    end_ms: int

    def __post_init__(self) -> None:
        for name, moment in (("begins", self.start_ms), ("ends", self.end_ms)):
            if moment % STEP_MS:
                raise InvalidSetting(
                    f"the range {name} at {written(moment)}; it goes from one whole hour (UTC) to another, since "
                    "windows are as wide as that"
                )
        if self.end_ms <= self.start_ms:
            raise InvalidSetting(
                f"the range ends at {written(self.end_ms)}, and begins at {written(self.start_ms)}; it must end later"
            )


def written(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
