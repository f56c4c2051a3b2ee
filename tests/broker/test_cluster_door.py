"""Who has not proved to be a broker of the cluster gets nothing but a challenge."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millpond.core.cluster.handshake import NONCE_BYTES, Handshake, Side
from millpond.core.raft.encoding import encode_message
from millpond.core.raft.messages import Heartbeat
from millpond.net.client import ClientConnection, open_connection
from millpond.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from millpond.protocol.messages.change_members import ChangeMembersRequest
from millpond.protocol.messages.cluster_registry import CLUSTER_APIS
from millpond.protocol.messages.compiler import decode
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.headers import parse_response_header, request_frame
from millpond.protocol.messages.hello import HelloRequest, HelloResponse
from millpond.protocol.messages.meet import ANYBODY, MeetRequest, MeetResponse
from millpond.protocol.messages.propose_change import ProposeChangeRequest
from millpond.protocol.messages.prove import ProveRequest, ProveResponse
from millpond.protocol.messages.raft_messages import RaftMessagesRequest
from millpond.protocol.messages.registry import APIS
from millpond.testing import Simulation, simulate
from tests.broker.clusters import PORT, SECRET, SimCluster

NONCE, DIRECTORY = bytes(range(NONCE_BYTES)), bytes(16)


class Stranger:
    """A connection that says what a test wants it to say; an answer of None is the end of it."""

    def __init__(self) -> None:
        self._frames: asyncio.Queue[memoryview | None] = asyncio.Queue()
        self._connection: ClientConnection

    async def connect(self, host: str) -> "Stranger":
        self._connection = await open_connection(
            host,
            PORT,
            on_frame=self._frames.put_nowait,
            on_lost=lambda: self._frames.put_nowait(None),
            frame_bytes_max=1000,
        )
        return self

    async def ask(self, message: Message) -> memoryview | None:
        self._connection.send(request_frame(message, 0, correlation_id=7, client_id="stranger"))
        return await self._frames.get()

    async def greet(self, *, node_id: int = 2, expected: int = 1) -> HelloResponse:
        frame = await self.ask(
            HelloRequest(
                cluster_id="millpond",
                node_id=node_id,
                directory_id=DIRECTORY,
                node_id_expected=expected,
                nonce=NONCE,
            )
        )
        assert frame is not None
        number, position = parse_response_header(frame, header_version=0)
        assert number == 7
        return decode(HelloResponse, frame, 0, position)[0]

    def handshake(self, challenge: HelloResponse, *, server: int = 1) -> Handshake:
        return Handshake(
            cluster_id="millpond",
            client=2,
            client_directory=DIRECTORY,
            server=server,
            client_nonce=NONCE,
            server_nonce=challenge.nonce,
        )

    async def prove(self, proof: bytes) -> ProveResponse | None:
        frame = await self.ask(ProveRequest(proof=proof))
        return None if frame is None else decode(ProveResponse, frame, 0, 4)[0]

    def close(self) -> None:
        self._connection.abort()


Steps = Callable[[SimCluster, Stranger], Awaitable[None]]


def with_a_stranger(steps: Steps) -> Callable[[], None]:
    """At the door of broker 1 of a cluster that has no other yet."""

    def test() -> None:
        async def scenario(sim: Simulation) -> None:
            cluster = SimCluster(sim, 1)
            await cluster[1].start()
            stranger = await Stranger().connect("m1")
            await steps(cluster, stranger)
            stranger.close()
            await cluster.stop_all()

        simulate(1, scenario)

    test.__name__ = steps.__name__
    return test


@with_a_stranger
async def test_both_sides_prove_themselves(cluster: SimCluster, stranger: Stranger) -> None:
    challenge = await stranger.greet()
    handshake = stranger.handshake(challenge)
    answer = await stranger.prove(handshake.proof(Side.CLIENT, SECRET))
    assert answer is not None
    assert handshake.is_proved_by(answer.proof, Side.SERVER, SECRET)
    frame = await stranger.ask(BrokerHeartbeatRequest())
    assert frame is not None
    assert decode(BrokerHeartbeatResponse, frame, 0, 4)[0].leader == 1


@pytest.mark.parametrize(
    "message",
    [RaftMessagesRequest(), ProposeChangeRequest(), BrokerHeartbeatRequest(), ProveRequest(), MeetRequest()],
    ids=lambda message: type(message).__name__,
)
def test_nothing_but_a_greeting_is_heard_before_the_proof(message: Message) -> None:
    @with_a_stranger
    async def test(cluster: SimCluster, stranger: Stranger) -> None:
        assert await stranger.ask(message) is None

    test()


@with_a_stranger
async def test_who_greets_anybody_is_told_who_is_here(cluster: SimCluster, stranger: Stranger) -> None:
    handshake = stranger.handshake(await stranger.greet(expected=ANYBODY), server=ANYBODY)
    answer = await stranger.prove(handshake.proof(Side.CLIENT, SECRET))
    assert answer is not None
    assert handshake.is_proved_by(answer.proof, Side.SERVER, SECRET)
    frame = await stranger.ask(MeetRequest())
    assert frame is not None
    met = decode(MeetResponse, frame, 0, 4)[0]
    assert (met.node_id, met.founders, met.members, met.is_new) == (1, [1], [1], False)


@pytest.mark.parametrize(
    "message",
    [RaftMessagesRequest(), ProposeChangeRequest(), BrokerHeartbeatRequest(), ChangeMembersRequest()],
    ids=lambda message: type(message).__name__,
)
def test_who_greets_anybody_may_ask_nothing_else(message: Message) -> None:
    """So that whoever sits at an address that brokers try can not use what it is told to speak as one of them."""

    @with_a_stranger
    async def test(cluster: SimCluster, stranger: Stranger) -> None:
        handshake = stranger.handshake(await stranger.greet(expected=ANYBODY), server=ANYBODY)
        assert await stranger.prove(handshake.proof(Side.CLIENT, SECRET)) is not None
        assert await stranger.ask(message) is None

    test()


@with_a_stranger
async def test_a_proof_for_anybody_is_none_for_a_broker_nor_the_other_way_round(
    cluster: SimCluster, stranger: Stranger
) -> None:
    handshake = stranger.handshake(await stranger.greet(), server=ANYBODY)
    assert await stranger.prove(handshake.proof(Side.CLIENT, SECRET)) is None
    second = await Stranger().connect("m1")
    handshake = second.handshake(await second.greet(expected=ANYBODY))
    assert await second.prove(handshake.proof(Side.CLIENT, SECRET)) is None


@with_a_stranger
async def test_a_wrong_proof_ends_the_connection_without_a_word(cluster: SimCluster, stranger: Stranger) -> None:
    handshake = stranger.handshake(await stranger.greet())
    assert await stranger.prove(handshake.proof(Side.CLIENT, b"another secret altogether")) is None


@with_a_stranger
async def test_the_servers_kind_of_proof_is_none_of_a_client(cluster: SimCluster, stranger: Stranger) -> None:
    handshake = stranger.handshake(await stranger.greet())
    assert await stranger.prove(handshake.proof(Side.SERVER, SECRET)) is None


@with_a_stranger
async def test_a_proof_is_good_for_one_connection(cluster: SimCluster, stranger: Stranger) -> None:
    proof = stranger.handshake(await stranger.greet()).proof(Side.CLIENT, SECRET)
    assert await stranger.prove(proof) is not None
    second = await Stranger().connect("m1")
    await second.greet()
    assert await second.prove(proof) is None


@with_a_stranger
async def test_a_greeting_takes_back_what_was_proved(cluster: SimCluster, stranger: Stranger) -> None:
    handshake = stranger.handshake(await stranger.greet())
    assert await stranger.prove(handshake.proof(Side.CLIENT, SECRET)) is not None
    await stranger.greet(node_id=3)
    assert await stranger.ask(BrokerHeartbeatRequest()) is None


@with_a_stranger
async def test_a_broker_speaks_for_itself_alone(cluster: SimCluster, stranger: Stranger) -> None:
    handshake = stranger.handshake(await stranger.greet())
    await stranger.prove(handshake.proof(Side.CLIENT, SECRET))
    forged = encode_message(Heartbeat(sender=3, to=1, term=99, round=1, commit=0))
    assert await stranger.ask(RaftMessagesRequest(messages=[forged])) is None
    assert cluster[1].broker is not None
    assert cluster[1].broker.node.metadata.quorum.raft.term < 99


@with_a_stranger
async def test_whoever_greets_as_this_broker_or_looks_for_another_is_told_so(
    cluster: SimCluster, stranger: Stranger
) -> None:
    assert "node id 1 is taken" in ((await stranger.greet(node_id=1)).error_message or "")
    assert "correct the addresses" in ((await stranger.greet(expected=5)).error_message or "")


def test_a_broker_that_is_alone_knows_no_other() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = SimCluster(sim, 1)
        await cluster[1].start(peers={})
        stranger = await Stranger().connect("m1")
        with pytest.raises(AssertionError):
            await stranger.greet()
        await cluster.stop_all()

    simulate(1, scenario)


def test_no_client_is_told_of_the_clusters_apis() -> None:
    assert not CLUSTER_APIS.keys() & APIS.keys()
