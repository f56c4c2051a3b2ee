"""What a queue group may be told, as its ledgers need it."""

from enum import Enum
from typing import Final

from millpond.model.values import dataclass

REASON_CHARS_MAX: Final = 128


class Priority(Enum):
    OFF = "off"
    STRICT = "strict"
    WEIGHTED = "weighted"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    attempts_max: int = 5
    lock_ms: int = 30_000
    leased_max: int = 100_000
    """Messages of one partition that consumers hold at a time."""
    held_max: int = 10_000
    """Those that one of them holds."""
    backoff_ms: int = 0
    """Before the second attempt; doubled for each one after that."""
    backoff_ms_max: int = 300_000
    jitter: float = 0.2
    """The part of a backoff that is left to chance."""
    has_dead_letters: bool = True
    buries_expired: bool = False
    is_ordered_by_key: bool = False
    priority: Priority = Priority.OFF
    priority_age_ms_max: int = 60_000
    """What has waited longer comes first, whatever its lane."""

    @property
    def looks_at_messages(self) -> bool:
        """Messages are looked at before they are handed out; otherwise only their offsets are."""
        return self.is_ordered_by_key or self.priority is not Priority.OFF

    def backoff_after(self, attempts: int, chance: float) -> int:
        """How long a message that was handed out so often waits; `chance` is between 0 and 1."""
        if self.backoff_ms == 0:
            return 0
        whole = min(self.backoff_ms_max, self.backoff_ms << min(attempts - 1, 40))
        return int(whole * (1 - self.jitter * chance))
