"""ProposeChange: a change of the metadata for the controller's log. Between brokers only.

Behaviour: ACCEPTED says that it is in the log, at an index and in a term; CONFLICT that it was decided on an old image,
and where the newest change is; NOT_CONTROLLER whom to ask instead, or -1; REFUSED why the controller's disk takes none.
"""

from typing import ClassVar, Final

from millpond.protocol.messages.fields import data, int8, int32, int64, served, string, wire

ACCEPTED: Final = 0
CONFLICT: Final = 1
NOT_CONTROLLER: Final = 2
REFUSED: Final = 3


@wire
class ProposeChangeRequest:
    api_key: ClassVar[int] = 20003
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    change: bytes = data()
    """As core/metadata/changes.py writes it."""


@wire
class ProposeChangeResponse:
    api_key: ClassVar[int] = 20003
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    outcome: int = int8()
    index: int = int64()
    term: int = int64()
    leader: int = int32(default=-1)
    message: str | None = string(nullable_since=0, default=None)
