"""SaslHandshake: the client names the SASL mechanism it will use.

Behaviour: an unknown mechanism is answered with those there are. Afterwards, in version 1, tokens travel in
SaslAuthenticate requests; in version 0, as bare length-prefixed bytes.

Version notes:
    1  tokens travel in SaslAuthenticate. No version is flexible
"""

from typing import ClassVar

from millpond.protocol.messages.fields import Kind, array, int16, served, string, wire


@wire
class SaslHandshakeRequest:
    api_key: ClassVar[int] = 17
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = None

    mechanism: str = string()


@wire
class SaslHandshakeResponse:
    api_key: ClassVar[int] = 17
    versions: ClassVar[range] = served(0, 1)
    flexible_since: ClassVar[int | None] = None

    error_code: int = int16()
    mechanisms: list[str] = array(Kind.STRING)
