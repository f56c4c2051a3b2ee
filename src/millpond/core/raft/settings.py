"""What a Raft node may be told. Frozen, and checked when made. Pure.

All nodes of a cluster must agree on `election_timeout_s_min`: the leader's lease is a promise its followers keep.
"""

from typing import Final

from millpond.model.errors import InvalidSetting
from millpond.model.limits import GIB, KIB, MIB
from millpond.model.values import dataclass

MESSAGE_BYTES_MAX: Final = 64 * MIB
ENTRIES_PER_MESSAGE_MAX: Final = 10_000
SNAPSHOT_BYTES_MAX: Final = 2 * GIB
"""Walls: no node says more in one message, and none listens to more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    election_timeout_s_min: float = 1.0
    """A follower neither campaigns nor votes until it has not heard from a leader for this long."""
    election_timeout_s_max: float = 2.0
    gone_delay_s_min: float = 0.02
    gone_delay_s_max: float = 0.15
    """How long a follower waits that knows the leader's process to be gone: others have to learn of it too, and two
    that campaign at once win nothing."""
    heartbeat_s: float = 0.1
    clock_drift_max: float = 0.01
    """By which fraction the slowest and the fastest clock of the cluster may differ in rate."""
    lease_reads: bool = True
    """Whether a leader in its lease answers a read without asking its peers."""
    append_bytes_max: int = MIB
    """Entries in one message; a single entry may be larger."""
    appends_in_flight_max: int = 64
    """Unanswered append messages to one peer."""
    entry_bytes_max: int = 4 * MIB
    proposals_in_flight_max: int = 10_000
    proposal_bytes_in_flight_max: int = 64 * MIB
    reads_in_flight_max: int = 10_000
    snapshot_chunk_bytes: int = 512 * KIB
    snapshot_bytes_max: int = GIB
    learner_entries_behind_max: int = 1_000
    """A learner further behind does not become a voter: it could stall the next commit."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0 and name not in {
                "clock_drift_max",
                "lease_reads",
                "learner_entries_behind_max",
            }:
                raise InvalidSetting(f"{name} is {getattr(self, name)}; it must be more than 0")
        if not self.heartbeat_s * 2 <= self.election_timeout_s_min <= self.election_timeout_s_max:
            raise InvalidSetting(
                f"heartbeat_s is {self.heartbeat_s}, the election timeout {self.election_timeout_s_min} to "
                f"{self.election_timeout_s_max}; two heartbeats must fit into the shortest timeout"
            )
        if self.gone_delay_s_min > self.gone_delay_s_max:
            raise InvalidSetting(
                f"gone_delay_s_min is {self.gone_delay_s_min}, gone_delay_s_max {self.gone_delay_s_max}; the first "
                "must not be more than the second"
            )
        if not 0 <= self.clock_drift_max < 1:
            raise InvalidSetting(f"clock_drift_max is {self.clock_drift_max}; it must be from 0 to less than 1")
        if self.learner_entries_behind_max < 0:
            raise InvalidSetting(
                f"learner_entries_behind_max is {self.learner_entries_behind_max}; at least 0 is needed"
            )
        largest_message = ENTRIES_PER_MESSAGE_MAX * 32 + max(
            self.append_bytes_max, self.entry_bytes_max, self.snapshot_chunk_bytes
        )
        if largest_message > MESSAGE_BYTES_MAX or self.snapshot_bytes_max > SNAPSHOT_BYTES_MAX:
            raise InvalidSetting(
                f"append_bytes_max, entry_bytes_max and snapshot_chunk_bytes must fit a message of {MESSAGE_BYTES_MAX} "
                f"bytes, and snapshot_bytes_max must not exceed {SNAPSHOT_BYTES_MAX}"
            )

    @property
    def lease_s(self) -> float:
        return self.election_timeout_s_min * (1 - self.clock_drift_max)
