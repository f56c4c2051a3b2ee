"""AddRaftVoter: a broker that has joined votes in the metadata quorum too.

Behaviour: the broker must be up and have joined, which tells its addresses and its directory; those in the request are
not looked at.
"""

from millpond.api.kafka.context import Context
from millpond.broker.node import Node
from millpond.core.raft.membership import PromoteLearner
from millpond.model.errors import MillpondError
from millpond.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

_DUPLICATE_VOTER = 126
_INCONSISTENT_CLUSTER_ID = 104


async def answer(node: Node, request: AddRaftVoterRequest, context: Context) -> AddRaftVoterResponse:
    if request.cluster_id not in (None, node.cluster_id):
        return AddRaftVoterResponse(
            error_code=_INCONSISTENT_CLUSTER_ID, error_message=f"this is cluster {node.cluster_id!r}"
        )
    voters = node.metadata.quorum.raft.membership.voters
    if request.voter_id in voters:
        return AddRaftVoterResponse(
            error_code=_DUPLICATE_VOTER, error_message=f"broker {request.voter_id} votes already"
        )
    try:
        await node.metadata.change_members(PromoteLearner(request.voter_id))
    except MillpondError as error:
        return AddRaftVoterResponse(error_code=error.kafka_code, error_message=str(error))
    return AddRaftVoterResponse()
