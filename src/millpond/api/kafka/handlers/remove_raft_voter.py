"""RemoveRaftVoter: a broker no longer votes in the metadata quorum.

Behaviour: it goes on keeping what it keeps. Before it is started again it must be taken out of its own `peers`.
"""

from millpond.api.kafka.context import Context
from millpond.api.kafka.voters import change_voters
from millpond.broker.node import Node
from millpond.core.raft.membership import RemoveNode
from millpond.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

_VOTER_NOT_FOUND = 127


async def answer(node: Node, request: RemoveRaftVoterRequest, context: Context) -> RemoveRaftVoterResponse:
    broker, voters = request.voter_id, node.metadata.quorum.raft.membership.voters
    refusal = None
    if broker not in voters:
        refusal = (_VOTER_NOT_FOUND, f"broker {broker} does not vote; voters are {list(voters)}")
    code, why = await change_voters(node, request.cluster_id, RemoveNode(broker), refusal=refusal)
    return RemoveRaftVoterResponse(error_code=code, error_message=why)
