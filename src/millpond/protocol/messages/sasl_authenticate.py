"""SaslAuthenticate: one token of a SASL exchange, and the answer to it.

Behaviour: repeated until the mechanism is content. A session with a lifetime must be authenticated anew before it
is over.

Version notes:
    1  session_lifetime_ms, 0 where it does not end    2  flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import data, int16, int64, served, string, wire


@wire
class SaslAuthenticateRequest:
    api_key: ClassVar[int] = 36
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 2

    auth_bytes: bytes = data()


@wire
class SaslAuthenticateResponse:
    api_key: ClassVar[int] = 36
    versions: ClassVar[range] = served(0, 2)
    flexible_since: ClassVar[int | None] = 2

    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    auth_bytes: bytes = data()
    session_lifetime_ms: int = int64(since=1)
