"""What the groups' machines told of themselves, counted.

Driven by broker/drivers/groups.py, which hands over each fact as it performs effects.
"""

from collections import Counter
from typing import assert_never

from millpond.core.groups.effects import Fact, MemberGone, MemberJoined, RebalanceBegan, RebalanceEnded, Why
from millpond.model.latencies import Latencies
from millpond.telemetry.bounded import BoundedCounts

GROUPS_MAX = 1_000
_NS_PER_MS = 1_000_000


class GroupFacts:
    def __init__(self) -> None:
        self.rebalances = BoundedCounts(label_count=2, names_max=GROUPS_MAX)
        """By group and reason, when they begin."""
        self.rebalance_latencies = Latencies()
        self.members_joined = 0
        self.members_gone: Counter[Why] = Counter()

    def note(self, fact: Fact) -> None:
        match fact:
            case MemberJoined():
                self.members_joined += 1
            case MemberGone():
                self.members_gone[fact.why] += 1
            case RebalanceBegan():
                self.rebalances.add(fact.group, reason_of(fact.why))
            case RebalanceEnded():
                self.rebalance_latencies.note(fact.took_ms * _NS_PER_MS)
            case _:
                assert_never(fact)


def reason_of(why: Why) -> str:
    """As a label's value."""
    return why.name.lower()
