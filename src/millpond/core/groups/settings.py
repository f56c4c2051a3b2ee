"""What a group coordinator may be told. Frozen, and checked when made. Pure."""

from collections.abc import Mapping
from dataclasses import field, fields
from typing import NamedTuple

from millpond.core.groups.assignors import ASSIGNORS, Assignor
from millpond.model.errors import InvalidSetting
from millpond.model.values import dataclass

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
DAY_MS = 24 * 60 * MINUTE_MS


class Pace(NamedTuple):
    heartbeat_ms: int
    """Told to members at rest: what changes for them, they hear of after this long at most."""
    session_timeout_ms: int


class Paces(NamedTuple):
    """Of one group, by its settings: as a consumer group, and as a share group."""

    consumer: Pace = Pace(700, 45 * SECOND_MS)
    share: Pace = Pace(1_000, 45 * SECOND_MS)


def usual_paces(_group: str) -> Paces:
    return Paces()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    initial_rebalance_delay_ms: int = 100
    """How long an empty group waits for more members before its first generation; each newcomer prolongs it once."""
    session_timeout_ms_min: int = 6 * SECOND_MS
    session_timeout_ms_max: int = 30 * MINUTE_MS
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """A member whose first join is still unanswered after this has most likely hung up."""
    members_max: int = 10_000
    """Of a classic group, and of a share group."""
    consumer_members_max: int = 10_000
    consumer_reconciling_heartbeat_ms: int = 150
    """Told to members that wait for a partition, so that it does not lie idle once it is free."""
    consumer_rebalance_timeout_ms_max: int = 30 * MINUTE_MS
    offset_metadata_chars_max: int = 4096
    offsets_retention_ms: int = 7 * DAY_MS
    offsets_check_ms: int = 10 * MINUTE_MS
    """How often offsets whose time is over, and empty groups without any, are forgotten."""
    assignors: Mapping[str, Assignor] = field(default_factory=lambda: ASSIGNORS)
    """Those that members may ask for; the first is the default."""

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self) if each.type is int):
            least = 0 if name == "initial_rebalance_delay_ms" else 1
            value: int = getattr(self, name)
            if value < least:
                raise InvalidSetting(f"{name} is {value}; it must be at least {least}")
        if self.session_timeout_ms_min > self.session_timeout_ms_max:
            raise InvalidSetting(
                f"session_timeout_ms_min is {self.session_timeout_ms_min}; it must not exceed "
                f"session_timeout_ms_max, which is {self.session_timeout_ms_max}"
            )
