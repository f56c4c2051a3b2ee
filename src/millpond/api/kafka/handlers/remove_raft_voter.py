"""RemoveRaftVoter: a broker no longer votes in the metadata quorum.

Behaviour: it goes on keeping what it keeps. Before it is started again it must be taken out of its own `peers`.
"""

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.raft.membership import RemoveNode
from millpond.model.errors import MillpondError
from millpond.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

_VOTER_NOT_FOUND = 127
_INCONSISTENT_CLUSTER_ID = 104


async def answer(node: Node, request: RemoveRaftVoterRequest, context: Context) -> RemoveRaftVoterResponse:
    if request.cluster_id not in (None, node.cluster_id):
        return RemoveRaftVoterResponse(
            error_code=_INCONSISTENT_CLUSTER_ID, error_message=f"this is cluster {node.cluster_id!r}"
        )
    voters = node.metadata.quorum.raft.membership.voters
    if request.voter_id not in voters:
        why = f"broker {request.voter_id} does not vote; voters are {list(voters)}"
        return RemoveRaftVoterResponse(error_code=_VOTER_NOT_FOUND, error_message=why)
    try:
        await node.metadata.change_members(RemoveNode(request.voter_id))
    except MillpondError as error:
        return RemoveRaftVoterResponse(error_code=error.kafka_code, error_message=str(error))
    return RemoveRaftVoterResponse()
