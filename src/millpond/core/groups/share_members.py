"""One member of a share group. It is told its target at its next heartbeat, and has nothing to give up before.

Invariant: `assigned` is what the member was told in the answer that told it `epoch`.
Pure; `share.py` decides when.
"""

from millpond.core.groups.records import ShareMemberRecord, TopicIdPartition
from millpond.core.groups.share_events import ShareHeartbeat
from millpond.model.values import dataclass

Partitions = frozenset[TopicIdPartition]
NOTHING: Partitions = frozenset()


@dataclass(slots=True)
class ShareMember:
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = NOTHING
    target: Partitions = NOTHING

    def update(self, event: ShareHeartbeat) -> None:
        """Takes over what the heartbeat says; what it leaves out has not changed."""
        self.client_id, self.client_host = event.client_id, event.client_host
        if event.rack_id is not None:
            self.rack_id = event.rack_id
        if event.topics is not None:
            self.topics = event.topics

    def advance(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch
        self.assigned = self.target

    def record(self, group: str) -> ShareMemberRecord:
        return ShareMemberRecord(
            group=group,
            member_id=self.member_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            topics=self.topics,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            assigned=self.assigned,
            target=self.target,
        )

    @classmethod
    def restored(cls, record: ShareMemberRecord) -> "ShareMember":
        return cls(
            member_id=record.member_id,
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            topics=record.topics,
            epoch=record.epoch,
            previous_epoch=record.previous_epoch,
            assigned=record.assigned,
            target=record.target,
        )
