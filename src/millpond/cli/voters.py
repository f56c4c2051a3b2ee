"""Which brokers vote on a cluster's metadata, as one asks for it.

Driven by cluster.py.
"""

from typing import TypeVar

from millpond.app.refusals import CannotStart
from millpond.cli.asking import Asking, first_of
from millpond.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

Answers = TypeVar("Answers", RemoveRaftVoterResponse, AddRaftVoterResponse)


def demote(broker: int, bootstrap: str, timeout: float) -> None:
    _change(RemoveRaftVoterRequest(voter_id=broker), RemoveRaftVoterResponse, bootstrap, timeout)


def promote(broker: int, bootstrap: str, timeout: float) -> None:
    asked = AddRaftVoterRequest(voter_id=broker, timeout_ms=int(timeout * 1000))
    _change(asked, AddRaftVoterResponse, bootstrap, timeout)


def _change(request: Message, response_class: type[Answers], bootstrap: str, timeout: float) -> None:
    address = first_of(bootstrap)
    with Asking.connect(address.host, address.port, seconds_max=timeout) as broker:
        answer = broker.ask(request, response_class)
    if answer.error_code:
        raise CannotStart(f"refused: {answer.error_message or answer.error_code}")
