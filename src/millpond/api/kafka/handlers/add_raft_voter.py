"""AddRaftVoter: a broker that has joined votes in the metadata quorum too.

Behaviour: the broker must be up and have joined, which tells its addresses and its directory; those in the request are
not looked at.
"""

from millpond.api.kafka.context import Context
from millpond.api.kafka.voters import change_voters
from millpond.broker.node import Node
from millpond.core.raft.membership import PromoteLearner
from millpond.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

_DUPLICATE_VOTER = 126


async def answer(node: Node, request: AddRaftVoterRequest, context: Context) -> AddRaftVoterResponse:
    broker = request.voter_id
    refusal = None
    if broker in node.metadata.quorum.raft.membership.voters:
        refusal = (_DUPLICATE_VOTER, f"broker {broker} votes already")
    code, why = await change_voters(node, request.cluster_id, PromoteLearner(broker), refusal=refusal)
    return AddRaftVoterResponse(error_code=code, error_message=why)
