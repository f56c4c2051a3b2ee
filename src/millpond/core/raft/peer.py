"""What a leader knows of one other node, and how much it may send there.

    PROBE      one append at a time, until one fits
    REPLICATE  appends follow each other without waiting, up to a number in flight
    SNAPSHOT   chunks of a snapshot, one at a time; the entries the node lacks are gone

Invariant: `match` < `next`; the node has everything up to `match` on disk, for as long as this leader leads.
Pure. Belongs to leading.py.
"""

from collections import deque
from dataclasses import field
from enum import Enum

from millpond.core.raft.durable import Snapshot
from millpond.model.values import dataclass


class Sending(Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


@dataclass(slots=True)
class Peer:
    next: int
    heard_at: float
    """By the leader's clock."""
    match: int = 0
    commit_told: int = 0
    round_answered: int = 0
    session: int = 0
    """0 until it is known."""
    sending: Sending = Sending.PROBE
    probe_sent: bool = False
    in_flight: deque[int] = field(default_factory=deque)
    """The last index of each unanswered append."""
    snapshot: Snapshot | None = None
    snapshot_position: int = 0

    def is_full(self, appends_in_flight_max: int) -> bool:
        match self.sending:
            case Sending.PROBE:
                return self.probe_sent
            case Sending.REPLICATE:
                return len(self.in_flight) >= appends_in_flight_max
            case Sending.SNAPSHOT:
                return True

    def sent(self, last_index: int, commit: int) -> None:
        self.commit_told = commit
        if self.sending is Sending.PROBE:
            self.probe_sent = True
        elif last_index >= self.next:
            self.next = last_index + 1
            self.in_flight.append(last_index)

    def accepted(self, match: int) -> None:
        self.match = max(self.match, match)
        self.next = max(self.next, self.match + 1)
        while self.in_flight and self.in_flight[0] <= match:
            self.in_flight.popleft()
        if self.sending is Sending.PROBE or (self.snapshot and self.match >= self.snapshot.index):
            self._turn(Sending.REPLICATE)
            self.next = self.match + 1

    def is_stale_rejection(self, prev_index: int) -> bool:
        match self.sending:
            case Sending.PROBE:
                return prev_index != self.next - 1
            case Sending.REPLICATE:
                return prev_index <= self.match
            case Sending.SNAPSHOT:
                return True

    def probe_from(self, index: int) -> None:
        self._turn(Sending.PROBE)
        self.commit_told = 0
        self.next = max(index, self.match + 1)

    def send_snapshot(self, snapshot: Snapshot) -> None:
        self._turn(Sending.SNAPSHOT)
        self.commit_told = 0
        self.snapshot = snapshot

    def _turn(self, sending: Sending) -> None:
        self.sending = sending
        self.probe_sent = False
        self.in_flight.clear()
        self.snapshot = None
        self.snapshot_position = 0
