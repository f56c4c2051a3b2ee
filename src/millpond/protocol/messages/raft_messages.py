"""RaftMessages: what one broker's Raft node says to another's. Between brokers only.

Behaviour: never answered; what should be answered is answered by a RaftMessages the other way, on another connection.
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, served, wire


@wire
class RaftMessagesRequest:
    api_key: ClassVar[int] = 20002
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    messages: list[bytes] = array(Kind.DATA)
    """As core/raft/encoding.py writes them."""


@wire
class RaftMessagesResponse:
    """For the sake of the table of APIs; it is never sent."""

    api_key: ClassVar[int] = 20002
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None
