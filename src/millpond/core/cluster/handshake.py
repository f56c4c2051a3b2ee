"""How two brokers prove to each other that they know the cluster's secret, without saying it.

    client ── Hello: cluster, who, whom, nonce ──> server
    client <────────────── nonce ───────────────── server
    client ── Prove: HMAC of all that, as client ─> server      only if right:
    client <───── HMAC of all that, as server ──── server

Both nonces are drawn anew for each connection, so that no proof can be used again; each side's role and both names are
part of what is proved, so that none can be reflected or passed on. The server speaks second: whoever does not know the
secret gets nothing from it to guess at.
What follows on the connection is not encrypted; who can change packets on the way needs TLS to be kept out.
Pure. Driven by broker/drivers/links.py (client) and broker/drivers/doorkeeper.py (server).
"""

import hashlib
import hmac
import json
from enum import Enum
from typing import Final

from millpond.model.values import dataclass

NONCE_BYTES: Final = 32
SECRET_BYTES_MIN: Final = 16


class Side(Enum):
    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """What both sides know once Hello has been answered."""

    cluster_id: str
    client: int
    client_directory: bytes
    server: int
    client_nonce: bytes
    server_nonce: bytes

    def proof(self, side: Side, secret: bytes) -> bytes:
        said = json.dumps(
            [
                "millpond handshake 1",
                side.value,
                self.cluster_id,
                self.client,
                self.client_directory.hex(),
                self.server,
                self.client_nonce.hex(),
                self.server_nonce.hex(),
            ],
            separators=(",", ":"),
        )
        return hmac.new(secret, said.encode(), hashlib.sha256).digest()

    def is_proved_by(self, proof: bytes, side: Side, secret: bytes) -> bool:
        return hmac.compare_digest(proof, self.proof(side, secret))
