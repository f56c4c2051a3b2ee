"""Meet: a broker asks another, of which it knows no more than an address, who it is. Between brokers only.

Behaviour: answered on a connection that greeted nobody in particular (`ANYBODY`) and proved itself, which may ask
nothing else: so whoever sits at an address that brokers try, and passes on what they say, gains nothing by it.
"""

from typing import ClassVar, Final

from millpond.protocol.messages.fields import Kind, array, boolean, int32, served, uuid, wire

ANYBODY: Final = -1
"""In place of a node id: whoever is there."""


@wire
class MeetRequest:
    api_key: ClassVar[int] = 20006
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None


@wire
class MeetResponse:
    api_key: ClassVar[int] = 20006
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    node_id: int = int32()
    directory_id: bytes = uuid()
    founders: list[int] = array(Kind.INT32)
    """As its settings name them."""
    members: list[int] = array(Kind.INT32)
    """Of the quorum, as far as it knows."""
    is_new: bool = boolean()
    """It has not been part of the cluster yet."""
