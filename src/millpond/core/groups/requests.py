"""Everything a group can be asked, and how a request is refused as a whole.

Pure data. Answered by registry.py; refused by its driver too, where this broker is not, or not yet, the coordinator.
"""

from typing import assert_never

from millpond.core.groups.classic_events import (
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    SyncGroup,
    SyncResult,
)
from millpond.core.groups.consumer_events import ConsumerHeartbeat, ConsumerHeartbeatResult
from millpond.core.groups.effects import Reply, Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.offsets import CommitOffsets, DeleteOffsets, FetchedOffsets, FetchOffsets, PartitionErrors
from millpond.core.groups.share_events import ShareHeartbeat, ShareHeartbeatResult
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    token: Token


@dataclass(frozen=True, slots=True)
class DeleteGroupResult:
    error: GroupError = GroupError.NONE


ClassicRequest = JoinGroup | SyncGroup | Heartbeat | LeaveGroup
Request = (
    ClassicRequest | ConsumerHeartbeat | ShareHeartbeat | CommitOffsets | FetchOffsets | DeleteOffsets | DeleteGroup
)


def refusal_for_now(request: Request, error: GroupError) -> Reply:
    """By a broker that is the coordinator, or was until a moment ago.

    Who fetches offsets is told to ask again: of any other refusal librdkafka says nothing to anybody, and never reads
    the partitions that it asked for (its issue 5586). Its heartbeats tell it whom to ask.
    """
    return refusal(request, GroupError.COORDINATOR_LOAD_IN_PROGRESS if isinstance(request, FetchOffsets) else error)


def refusal(request: Request, error: GroupError) -> Reply:
    """The answer, in the shape that the request's own answers have."""
    result: object
    match request:
        case JoinGroup():
            result = JoinResult(error=error, member_id=request.member_id)
        case SyncGroup():
            result = SyncResult(error=error)
        case Heartbeat():
            result = HeartbeatResult(error)
        case LeaveGroup():
            result = LeaveResult(error, tuple((each, error) for each in request.members))
        case ConsumerHeartbeat():
            result = ConsumerHeartbeatResult(error=error)
        case ShareHeartbeat():
            result = ShareHeartbeatResult(error=error)
        case CommitOffsets():
            result = PartitionErrors(error, tuple((each.at, error) for each in request.offsets))
        case FetchOffsets():
            result = FetchedOffsets(error)
        case DeleteOffsets():
            result = PartitionErrors(error)
        case DeleteGroup():
            result = DeleteGroupResult(error)
        case _:
            assert_never(request)
    return Reply(request.token, result)
