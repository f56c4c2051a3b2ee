"""A cluster's state as people read it.

Driven by cluster.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from millpond.cli.cluster_state import ClusterState, Member, PartitionState
from millpond.cli.showing import Section

PARTITIONS_SHOWN_MAX = 50


def drawn(state: ClusterState) -> Iterator[Section | str]:
    quorum = state.quorum
    leader = f"broker {quorum.leader}" if quorum.leader is not None else "nobody at the moment"
    yield (
        f"Cluster {state.cluster_id}: controller is {leader}, term {quorum.term}, "
        f"metadata committed up to {quorum.committed}"
    )
    yield _members(state)
    brokers = [asdict(each) for each in state.brokers]
    yield Section(brokers, ("node_id", "address", "rack", "state", "leads"), "Brokers")
    yield f"{state.partitions} partitions; {_summary(state)}"
    for title, partitions in (("Without a leader", state.leaderless), ("Under-replicated", state.under_replicated)):
        if partitions:
            yield _partitions(title, partitions)
            if len(partitions) > PARTITIONS_SHOWN_MAX:
                yield f"and {len(partitions) - PARTITIONS_SHOWN_MAX} more; --output json has them all"


def _summary(state: ClusterState) -> str:
    if not state.leaderless and not state.under_replicated:
        return "every one has a leader, and all its replicas in sync"
    return f"{len(state.leaderless)} without a leader, {len(state.under_replicated)} under-replicated"


def _members(state: ClusterState) -> Section:
    rows = [
        asdict(each) | {"role": "leader" if each.node_id == state.quorum.leader else role, "last_heard": _ago(each)}
        for role, members in (("voter", state.quorum.voters), ("observer", state.quorum.observers))
        for each in members
    ]
    return Section(rows, ("node_id", "role", "log_end", "lag", "last_heard"), "Quorum")


def _partitions(title: str, partitions: Sequence[PartitionState]) -> Section:
    rows = [asdict(each) for each in partitions[:PARTITIONS_SHOWN_MAX]]
    return Section(rows, ("topic", "partition", "leader", "replicas", "in_sync"), title)


def _ago(member: Member) -> str:
    return "" if member.heard_ms_ago is None else f"{member.heard_ms_ago / 1000:.1f} s ago"
