"""What one log may be told: how it flushes, rolls, forgets and compacts. Kafka's names are in the comments.

Frozen, and checked when made: a log never meets a setting it cannot keep. Pure.
"""

from enum import Enum

from millpond.model.errors import InvalidSetting
from millpond.model.limits import BATCH_BYTES_MAX, GIB, KIB, MIB, SEGMENT_BYTES_MAX
from millpond.model.values import dataclass

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Flush(Enum):
    """When an append counts as kept."""

    GROUP = "group"
    """After an fdatasync that all appends waiting at that moment share. A power cut loses nothing acknowledged."""

    INTERVAL = "interval"
    """At once; synced every `flush_interval_ms`. A power cut loses at most that much; a killed process nothing."""

    NONE = "none"
    """At once; the operating system writes when it likes. A power cut loses what it had not; a kill nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    flush: Flush = Flush.GROUP
    flush_interval_ms: int = 1_000  # flush.ms

    segment_bytes: int = GIB  # segment.bytes
    segment_ms: int = 7 * DAY_MS  # segment.ms
    index_interval_bytes: int = 4 * KIB  # index.interval.bytes
    batch_bytes_max: int = 1024 * KIB + 12  # max.message.bytes
    checkpoint_bytes: int = 64 * MIB
    """How much is synced before a round notes how far: about what recovery has to check after a crash."""

    verify_reads: bool = True
    """Check every batch's checksum and place each time it is read, so that rot on disk is never served."""

    producer_expiry_ms: int = DAY_MS  # producer.id.expiration.ms
    """How long an idempotent producer that sends nothing is remembered."""

    delete: bool = True  # cleanup.policy contains delete
    retention_ms: int | None = 7 * DAY_MS  # retention.ms; None keeps for ever
    retention_bytes: int | None = None  # retention.bytes; None is no bound

    compact: bool = False  # cleanup.policy contains compact
    compaction_lag_ms_min: int = 0  # min.compaction.lag.ms
    compaction_dirty_ratio_min: float = 0.5  # min.cleanable.dirty.ratio
    compaction_keys_max: int = 1_000_000
    """Most keys one pass remembers; a log with more is compacted in several passes."""
    tombstone_grace_ms: int = DAY_MS  # delete.retention.ms

    def __post_init__(self) -> None:
        self._require("flush_interval_ms", self.flush_interval_ms, 1, 24 * HOUR_MS)
        self._require("segment_bytes", self.segment_bytes, KIB, SEGMENT_BYTES_MAX)
        self._require("segment_ms", self.segment_ms, 1, None)
        self._require("index_interval_bytes", self.index_interval_bytes, 0, SEGMENT_BYTES_MAX)
        self._require("batch_bytes_max", self.batch_bytes_max, 61, BATCH_BYTES_MAX)
        self._require("checkpoint_bytes", self.checkpoint_bytes, 1, None)
        self._require("producer_expiry_ms", self.producer_expiry_ms, 1, None)
        self._require("retention_ms", self.retention_ms, 0, None)
        self._require("retention_bytes", self.retention_bytes, 0, None)
        self._require("compaction_lag_ms_min", self.compaction_lag_ms_min, 0, None)
        self._require("compaction_dirty_ratio_min", self.compaction_dirty_ratio_min, 0, 1)
        self._require("compaction_keys_max", self.compaction_keys_max, 1, None)
        self._require("tombstone_grace_ms", self.tombstone_grace_ms, 0, None)

    @staticmethod
    def _require(name: str, value: float | None, least: float, most: float | None) -> None:
        if value is None or (value >= least and (most is None or value <= most)):
            return
        allowed = f"at least {least}" if most is None else f"{least} to {most}"
        raise InvalidSetting(f"{name} is {value}; allowed is {allowed}")
