"""What the logs of one broker did with their disk, as plain numbers; telemetry renders them.

Written by rounds.py on the loop, so nothing here is locked. One object for all logs, so that a count never goes back
when a topic is deleted.
"""

from dataclasses import field

from millpond.model.latencies import Latencies
from millpond.model.values import dataclass


@dataclass(slots=True)
class StorageFacts:
    syncs: Latencies = field(default_factory=Latencies)
    """Each round of group commit, without the wait for its turn and for a thread."""
    synced_bytes: int = 0
    """Appended before a round began and not synced by an earlier one."""
