"""What the fuzzed broker has, as far as frames should refer to it: topics, groups, members, producers.

Frames that name what exists get past the decoder and into the handlers. Some of it is learned from answers (topic ids,
members and their generations), and what fuzzing deletes is made again, by run.py.
Invariant: nothing here is the neighbour's, so no frame reaches it by name, and no list grows without bound.
"""

from collections import deque
from typing import Any, NamedTuple

from millpond.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from millpond.protocol.messages.init_producer_id import InitProducerIdResponse
from millpond.protocol.messages.join_group import JoinGroupResponse

TOPICS: dict[str, dict[str, str]] = {
    "fuzz-plain": {},
    "fuzz-compact": {"cleanup.policy": "compact", "segment.bytes": "65536"},
    "fuzz-stamped": {"message.timestamp.type": "LogAppendTime", "segment.bytes": "16384"},
    "fuzz-small": {"max.message.bytes": "1000", "retention.bytes": "100000"},
}
PARTITIONS = 3
GROUPS = ("fuzz-classic", "fuzz-new", "fuzz-simple")
REMEMBERED_MAX = 32
NAME_BYTES_MAX = 10_000


class Membership(NamedTuple):
    group: str
    member_id: str
    generation: int


class World:
    def __init__(self) -> None:
        self.topic_ids: dict[str, bytes] = dict.fromkeys(TOPICS, bytes(range(16)))
        self.members = deque([Membership(GROUPS[0], "m-0", 1)], maxlen=REMEMBERED_MAX)
        self.producers = deque([(1, 0)], maxlen=REMEMBERED_MAX)

    def learn(self, group: str, answer: Any) -> None:  # noqa: ANN401 - any response
        """`group` is the one that was asked about. Names that old versions have no room for are not remembered."""
        if len((getattr(answer, "member_id", "") or "").encode()) > NAME_BYTES_MAX:
            return
        if isinstance(answer, JoinGroupResponse) and answer.member_id:
            self.members.append(Membership(group, answer.member_id, answer.generation_id))
        elif isinstance(answer, ConsumerGroupHeartbeatResponse) and answer.member_id:
            self.members.append(Membership(group, answer.member_id, answer.member_epoch))
        elif isinstance(answer, InitProducerIdResponse) and answer.producer_id >= 0:
            self.producers.append((answer.producer_id, answer.producer_epoch))
