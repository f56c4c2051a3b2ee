"""BrokerHeartbeat: a broker tells the controller that it is alive. Between brokers only.

Behaviour: ALIVE renews the broker's lease, from the moment it sent this; REGISTER_AGAIN says that it was taken for
dead, or is known with another epoch or directory; NOT_CONTROLLER whom to ask instead, or -1. A broker that is not among
those that found the cluster says at its start where it is reached: the controller then sends it the log.
"""

from typing import ClassVar, Final

from millpond.protocol.messages.fields import int8, int32, int64, served, string, uuid, wire

ALIVE: Final = 0
REGISTER_AGAIN: Final = 1
NOT_CONTROLLER: Final = 2


@wire
class BrokerHeartbeatRequest:
    api_key: ClassVar[int] = 20004
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    broker_epoch: int = int64()
    directory_id: bytes = uuid()
    host: str = string(default="")
    port: int = int32(default=0)
    """Where the others reach it; said by one that joins, empty otherwise."""


@wire
class BrokerHeartbeatResponse:
    api_key: ClassVar[int] = 20004
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    outcome: int = int8()
    leader: int = int32(default=-1)
