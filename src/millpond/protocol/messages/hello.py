"""Hello: a broker says who it is, and asks another for a challenge. Between brokers only.

Behaviour: answered with a nonce, or with why not. Nothing secret is said before the asker has proved itself (Prove).
"""

from typing import ClassVar

from millpond.protocol.messages.fields import data, int16, int32, served, string, uuid, wire


@wire
class HelloRequest:
    api_key: ClassVar[int] = 20000
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    cluster_id: str = string()
    node_id: int = int32()
    directory_id: bytes = uuid()
    node_id_expected: int = int32()
    """Whom the asker wants to talk to, or ANYBODY (Meet)."""
    nonce: bytes = data()


@wire
class HelloResponse:
    api_key: ClassVar[int] = 20000
    versions: ClassVar[range] = served(0, 0)
    flexible_since: ClassVar[int | None] = None

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    nonce: bytes = data()
