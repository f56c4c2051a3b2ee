"""Health: whether this broker can serve everything it has, and if not, why not.

Driven by the front doors and by measure.py.
"""

from millpond.broker.node import Node

REASONS_MAX = 20
"""Of a thousand partitions on one failed disk, some are told and the rest are counted."""


def why_not_ready(node: Node) -> list[str]:
    """One sentence for each reason; none while all is well."""
    reasons = []
    if node.is_stopping:
        reasons.append("the broker is stopping")
    if node.groups.is_restoring:
        reasons.append("groups are read anew from their log at the next request, since the disk refused a change")
    failures = failed_logs(node)
    reasons += failures[:REASONS_MAX]
    if len(failures) > REASONS_MAX:
        reasons.append(f"and {len(failures) - REASONS_MAX} more partitions")
    return reasons


def failed_logs(node: Node) -> list[str]:
    """One sentence for each partition whose disk failed."""
    closed = [f"{at} is not open: {error}" for at, error in node.partitions.failures.items()]
    broken = [f"{each.at}: {each.log.failure}" for each in node.partitions if each.log.failure is not None]
    return closed + broken
