"""Which broker a connection has proved to be: the server's side of core/cluster/handshake.py.

Invariant: a `Session` names a broker only after a proof that fits a nonce drawn for this connection. One that fails to
prove itself gets no second try, and no answer.
Driven by the cluster's front door.
"""

import asyncio
from collections.abc import Callable

from millpond.broker.drivers.follower_waits import Question
from millpond.broker.drivers.links import Identity
from millpond.broker.drivers.quorum_store import start_anew
from millpond.core.cluster.handshake import NONCE_BYTES, Handshake, Side
from millpond.model.ports import Rng
from millpond.model.values import dataclass
from millpond.protocol.messages.hello import HelloRequest, HelloResponse
from millpond.protocol.messages.meet import ANYBODY
from millpond.protocol.messages.prove import ITSELF, REFUSED, TAKEN, ProveRequest, ProveResponse

PRESENT_SECONDS = 10.0
"""A broker that said something within this time is there, so that another by its name is not."""


@dataclass(slots=True)
class Session:
    """Of one connection."""

    handshake: Handshake | None = None
    broker: int | None = None
    is_meeting: bool = False
    """It asked for nobody in particular, and may ask nothing but who is here."""
    question: Question | None = None
    """The last fetch of a follower."""

    def ask(self) -> Question:
        """The next one, in the place of the last."""
        if self.question is not None:
            self.question.replace()
        self.question = Question()
        return self.question


class Doorkeeper:
    def __init__(self, identity: Identity, rng: Rng, *, has_forgotten: Callable[[int, bytes], bool]) -> None:
        """`has_forgotten` says of a broker and its data directory whether the quorum counts on another one."""
        self._identity = identity
        self._rng = rng
        self._has_forgotten = has_forgotten
        self._loop = asyncio.get_running_loop()
        self._present: dict[int, tuple[bytes, float]] = {}
        """The directory each broker last spoke from, and when."""

    def hello(self, session: Session, request: HelloRequest) -> HelloResponse:
        why_not = self._why_not(request)
        if why_not is not None:
            code, message = why_not
            return HelloResponse(error_code=code, error_message=message)
        nonce = self._rng.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")
        session.broker = None
        session.is_meeting = request.node_id_expected == ANYBODY
        session.handshake = Handshake(
            cluster_id=request.cluster_id,
            client=request.node_id,
            client_directory=request.directory_id,
            server=ANYBODY if session.is_meeting else self._identity.node_id,
            client_nonce=request.nonce,
            server_nonce=nonce,
        )
        return HelloResponse(nonce=nonce)

    def _why_not(self, request: HelloRequest) -> tuple[int, str] | None:
        mine = self._identity
        if request.cluster_id != mine.cluster_id:
            return REFUSED, (
                f"broker {mine.node_id} belongs to cluster {mine.cluster_id!r}, and broker {request.node_id} to "
                f"{request.cluster_id!r}; look at peers, discovery and cluster-id"
            )
        if request.node_id == mine.node_id and request.directory_id == mine.directory_id:
            return ITSELF, f"broker {mine.node_id} talks to itself; give each broker its own address in peers"
        if request.node_id == mine.node_id:
            taken = f"node id {mine.node_id} is taken by another broker; give each broker of a cluster its own node-id"
            return TAKEN, taken
        if request.node_id_expected not in (mine.node_id, ANYBODY):
            return REFUSED, (
                f"broker {mine.node_id} answers where broker {request.node_id_expected} is expected; correct the "
                "addresses in peers"
            )
        return None

    def prove(self, session: Session, request: ProveRequest) -> ProveResponse | None:
        handshake, session.handshake = session.handshake, None
        secret = self._identity.secret
        if handshake is None or not handshake.is_proved_by(request.proof, Side.CLIENT, secret):
            return None
        if len(handshake.client_nonce) != NONCE_BYTES:
            return None
        broker, directory = handshake.client, handshake.client_directory
        known, heard_at = self._present.get(broker, (directory, 0.0))
        if known != directory and self._loop.time() - heard_at < PRESENT_SECONDS:
            why = (
                f"node id {broker} is taken by a broker with another data directory, which was up a moment ago; give "
                "each broker of a cluster its own node-id; if that one is gone for good, start this one again in "
                f"{PRESENT_SECONDS:.0f} s"
            )
            return ProveResponse(error_code=TAKEN, error_message=why)
        if not session.is_meeting and self._has_forgotten(broker, directory):
            return ProveResponse(error_code=TAKEN, error_message=_forgotten(broker))
        session.broker = broker
        self._present[broker] = (directory, self._loop.time())
        return ProveResponse(proof=handshake.proof(Side.SERVER, secret))

    def heard(self, broker: int) -> None:
        directory, _ = self._present[broker]
        self._present[broker] = (directory, self._loop.time())


def _forgotten(broker: int) -> str:
    return (
        f"broker {broker} votes in this cluster, and comes with another data directory than it had: it does not know "
        f"any more what it promised. Start it with the directory it had; if that is lost, {start_anew(broker)}"
    )
