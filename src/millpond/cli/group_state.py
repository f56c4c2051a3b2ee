"""What a cluster says of one group: its members, and how far it is behind.

Driven by groups.py.
"""

from dataclasses import asdict
from typing import Self

from millpond.client import Admin
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True)
class GroupState:
    group: str
    state: str
    protocol: str
    assignor: str
    members: list[dict[str, object]]
    partitions: list[dict[str, object]]

    @classmethod
    async def look(cls, admin: Admin, group: str) -> Self:
        found = await admin.describe_group(group)
        members: list[dict[str, object]] = [
            asdict(each) | {"assigned": [str(at) for at in each.assigned]} for each in found.members
        ]
        return cls(group, found.state, found.protocol, found.assignor, members, await lag_rows(admin, group))

    def document(self) -> dict[str, object]:
        return asdict(self)


async def lag_rows(admin: Admin, group: str) -> list[dict[str, object]]:
    return [
        {
            "topic": each.at.topic,
            "partition": each.at.partition,
            "committed": each.committed,
            "end": each.end,
            "lag": each.messages,
            "lag_seconds": each.seconds,
        }
        for each in await admin.group_lag(group)
    ]
