"""A cluster's state as people read it.

Driven by cluster.py.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from millpond.cli.cluster_state import ClusterState, Member, PartitionState

PARTITIONS_SHOWN_MAX = 50


def show(state: ClusterState) -> None:
    console = Console(highlight=False)
    quorum = state.quorum
    leader = f"broker {quorum.leader}" if quorum.leader is not None else "nobody at the moment"
    console.print(
        f"Cluster {state.cluster_id}: controller is {leader}, term {quorum.term}, "
        f"metadata committed up to {quorum.committed}"
    )
    console.print(_members(state))
    console.print(_brokers(state))
    console.print(f"{state.partitions} partitions; {_summary(state)}")
    for title, partitions, style in (
        ("Without a leader", state.leaderless, "bold red"),
        ("Under-replicated", state.under_replicated, "yellow"),
    ):
        if partitions:
            console.print(_partitions(title, partitions, style))
            if len(partitions) > PARTITIONS_SHOWN_MAX:
                console.print(f"and {len(partitions) - PARTITIONS_SHOWN_MAX} more; --output json has them all")


def _summary(state: ClusterState) -> str:
    if not state.leaderless and not state.under_replicated:
        return "every one has a leader, and all its replicas in sync"
    return f"{len(state.leaderless)} without a leader, {len(state.under_replicated)} under-replicated"


def _members(state: ClusterState) -> Table:
    table = _table("Quorum", "broker", "role", "log end", "lag", "last heard")
    for role, members in (("voter", state.quorum.voters), ("observer", state.quorum.observers)):
        for each in members:
            is_leader = each.node_id == state.quorum.leader
            table.add_row(
                str(each.node_id), "leader" if is_leader else role, _number(each.log_end), _number(each.lag), _ago(each)
            )
    return table


def _brokers(state: ClusterState) -> Table:
    table = _table("Brokers", "broker", "address", "rack", "state", "leads")
    for each in state.brokers:
        style = "green" if each.state == "live" else "bold red"
        table.add_row(str(each.node_id), each.address, each.rack or "", Text(each.state, style=style), str(each.leads))
    return table


def _partitions(title: str, partitions: Sequence[PartitionState], style: str) -> Table:
    table = _table(Text(title, style=style), "partition", "leader", "replicas", "in sync")
    for each in partitions[:PARTITIONS_SHOWN_MAX]:
        leader = "none" if each.leader is None else str(each.leader)
        table.add_row(f"{each.topic}-{each.partition}", leader, _list(each.replicas), _list(each.in_sync))
    return table


def _table(title: str | Text, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column)
    return table


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _ago(member: Member) -> str:
    return "" if member.heard_ms_ago is None else f"{member.heard_ms_ago / 1000:.1f} s ago"


def _list(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes)) or "none"
