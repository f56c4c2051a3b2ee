"""What a broker says of itself to everybody on its network: one datagram that only who knows the secret can make.

    0   4  "mpnd"
    4   1  version, 1
    5  32  HMAC-SHA256 by the cluster's secret, of the name of this format and all that follows
   37   4  node id
   41   2  port
   43   1  length of the cluster's name, then the name, in UTF-8
    .   1  length of the host, then the host, in UTF-8; nothing follows

It says where a broker may be, and no more: who is there is asked over the handshake (discovery.py), so that a datagram
that is sent again by somebody else does no harm.
Invariant: any bytes at all are either an announcement of this cluster, or ignored for a reason; nothing raises.
Pure. Driven by broker/drivers/discovery.py.
"""

import hashlib
import hmac
import struct
from enum import Enum
from typing import Final

from millpond.model.values import dataclass

NAME_BYTES_MAX: Final = 255
_MAGIC: Final = b"mpnd\x01"
_FORMAT: Final = b"millpond announcement 1\0"
_MAC_BYTES: Final = 32
_NUMBERS: Final = struct.Struct("!iH")
_BODY: Final = len(_MAGIC) + _MAC_BYTES
ANNOUNCEMENT_BYTES_MAX: Final = _BODY + _NUMBERS.size + 2 * (1 + NAME_BYTES_MAX)


class Ignored(Enum):
    """Why a datagram is none of ours."""

    JUNK = "junk"
    OTHER_CLUSTER = "other cluster"
    OTHER_SECRET = "other secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    cluster_id: str
    node_id: int
    host: str
    port: int

    def to_bytes(self, secret: bytes) -> bytes:
        body = _NUMBERS.pack(self.node_id, self.port)
        for name in (self.cluster_id, self.host):
            encoded = name.encode()
            assert len(encoded) <= NAME_BYTES_MAX, name
            body += bytes([len(encoded)]) + encoded
        return _MAGIC + _mac(body, secret) + body


def read_announcement(datagram: bytes, *, cluster_id: str, secret: bytes) -> Announcement | Ignored:
    if len(datagram) > ANNOUNCEMENT_BYTES_MAX or not datagram.startswith(_MAGIC):
        return Ignored.JUNK
    body = datagram[_BODY:]
    try:
        node_id, port = _NUMBERS.unpack_from(body)
        name, rest = _read_name(body[_NUMBERS.size :])
        host, rest = _read_name(rest)
    except (struct.error, IndexError, UnicodeDecodeError):
        return Ignored.JUNK
    if rest:
        return Ignored.JUNK
    if name != cluster_id:
        return Ignored.OTHER_CLUSTER
    if not hmac.compare_digest(datagram[len(_MAGIC) : _BODY], _mac(body, secret)):
        return Ignored.OTHER_SECRET
    return Announcement(cluster_id=name, node_id=node_id, host=host, port=port)


def _read_name(data: bytes) -> tuple[str, bytes]:
    end = 1 + data[0]
    if len(data) < end:
        raise IndexError(end)
    return data[1:end].decode(), data[end:]


def _mac(body: bytes, secret: bytes) -> bytes:
    return hmac.new(secret, _FORMAT + body, hashlib.sha256).digest()
