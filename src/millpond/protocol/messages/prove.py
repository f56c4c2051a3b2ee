"""Prove: a broker shows that it knows the cluster's secret, and is shown the same. Between brokers only.

Behaviour: answered only where the proof is right; otherwise the connection ends without a word.
"""

from typing import ClassVar, Final

from millpond.protocol.messages.fields import data, int16, served, string, wire

REFUSED: Final = 1
TAKEN: Final = 2
ITSELF: Final = 3
"""In answers to Hello and Prove: not now, or with these settings never; another broker has this node id; and, it is the
asker's own."""


@wire
class ProveRequest:
    api_key: ClassVar[int] = 20001
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    proof: bytes = data()


@wire
class ProveResponse:
    api_key: ClassVar[int] = 20001
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    proof: bytes = data()
