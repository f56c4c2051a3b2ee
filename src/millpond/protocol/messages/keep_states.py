"""KeepStates: what machines at the leaders of partitions want kept, for the leader of a part of `__share_group_state`.

Between brokers only.

Behaviour: DONE brings an answer to each of the first requests, at least one, in their order; what was asked is kept
then. The others were not answered for want of space, and shall be sent again. UNAVAILABLE says that another broker
leads the partition, or that nothing could be kept now; what was asked may be kept later all the same.
"""

from typing import ClassVar, Final

from millpond.protocol.messages.fields import Kind, array, int8, int32, served, wire

DONE: Final = 0
UNAVAILABLE: Final = 1


@wire
class KeepStatesRequest:
    api_key: ClassVar[int] = 20007
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    partition_index: int = int32()
    wait_ms: int = int32()
    """How long the answer may take."""
    requests: list[bytes] = array(Kind.DATA)
    """As core/delivery/kept_format.py writes them."""


@wire
class KeepStatesResponse:
    api_key: ClassVar[int] = 20007
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    outcome: int = int8()
    answers: list[bytes] = array(Kind.DATA)
