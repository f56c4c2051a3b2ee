"""Which brokers vote on a cluster's metadata, as one asks for it.

Driven by cluster.py.
"""

from typing import TypeVar

from millpond.cli.asking import Asking, named_in
from millpond.client.refusals import refusal
from millpond.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

Answers = TypeVar("Answers", RemoveRaftVoterResponse, AddRaftVoterResponse)


def demote(broker: int, bootstrap: str, timeout: float) -> None:
    _change(broker, RemoveRaftVoterRequest(voter_id=broker), RemoveRaftVoterResponse, bootstrap, timeout)


def promote(broker: int, bootstrap: str, timeout: float) -> None:
    asked = AddRaftVoterRequest(voter_id=broker, timeout_ms=int(timeout * 1000))
    _change(broker, asked, AddRaftVoterResponse, bootstrap, timeout)


def _change(broker: int, request: Message, response_class: type[Answers], bootstrap: str, timeout: float) -> None:
    with Asking.connect(named_in(bootstrap), seconds_max=timeout) as asked:
        answer = asked.ask(request, response_class)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message, of=f"broker {broker}")
