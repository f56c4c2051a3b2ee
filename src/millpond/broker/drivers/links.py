"""Connections to the other brokers: one each for Raft's messages, changes, heartbeats, copies, states and queues.

Several, because a server answers each connection in order: a change that waits must not hold up a heartbeat. Each is
made when it is first needed, proves itself (core/cluster/handshake.py), and is made anew after a while when it is lost.

Invariant: what waits to be sent is bounded. Raft's messages may be lost, so they are dropped where a peer is slow or
away; a request is answered, or given up at its deadline, and nobody learns from that whether it was heard.
Tells absences.py where a broker has proved itself, and when a connection to it is lost.
Driven by quorum.py, metadata.py, life.py, followers.py, states.py and queue_links.py.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, TypeVar

from millpond.broker.drivers.absences import Absences
from millpond.broker.drivers.quorum import Accepted, Conflict, NotController, Outcome, Unheard
from millpond.core.cluster.handshake import NONCE_BYTES, Handshake, Side
from millpond.core.delivery.kept import Answer, Request
from millpond.core.delivery.kept_format import decode_answer, encode_request
from millpond.core.metadata.changes import Change, encode_change
from millpond.core.raft.encoding import encode_message
from millpond.core.raft.membership import PromoteLearner, RemoveNode
from millpond.core.raft.messages import Message as RaftMessage
from millpond.core.raft.output import Reason
from millpond.model.errors import InvalidRecord, MalformedMessage
from millpond.model.limits import MIB
from millpond.model.ports import Buffer, Rng
from millpond.model.values import dataclass
from millpond.net.client import ClientConnection, open_connection
from millpond.protocol.messages import keep_states, propose_change
from millpond.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from millpond.protocol.messages.change_members import (
    PROMOTE,
    REMOVE,
    ChangeMembersRequest,
    ChangeMembersResponse,
)
from millpond.protocol.messages.compiler import decode, is_flexible
from millpond.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from millpond.protocol.messages.fetch import FetchRequest, FetchResponse
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.headers import parse_response_header, request_frame
from millpond.protocol.messages.hello import HelloRequest, HelloResponse
from millpond.protocol.messages.keep_states import KeepStatesRequest, KeepStatesResponse
from millpond.protocol.messages.meet import ANYBODY, MeetRequest, MeetResponse
from millpond.protocol.messages.produce import ProduceRequest, ProduceResponse
from millpond.protocol.messages.propose_change import ProposeChangeRequest, ProposeChangeResponse
from millpond.protocol.messages.prove import ITSELF, REFUSED, TAKEN, ProveRequest, ProveResponse
from millpond.protocol.messages.raft_messages import RaftMessagesRequest

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 2.0
LOOK_SECONDS = 0.5
"""For what can be answered without the other one, if less well."""
SILENCE_SECONDS = 2.0
"""A peer that is sent to and says nothing for so long may be behind a connection that is dead: a new one is made."""
BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX = 0.05, 1.0
UNSENT_BYTES_MAX = 16 * MIB
WAITING_MESSAGES_MAX = 64
"""For a connection that is being made; they are lost if it is not."""
ANSWER_BYTES_MAX = MIB
COPIES_BYTES_MAX = 128 * MIB
"""More than any one batch, with what a fetch may bring beside it."""
STATES_BYTES_MAX = 32 * MIB
"""More than a broker answers in one go about states."""
WAITS_MAX = 256
"""For messages of one broker's queues, at a time."""
IDLE_WAITS_MAX = 16
FETCH_VERSION = 17
PRODUCE_VERSION = 13
DESCRIBE_QUORUM_VERSION = 2

Response = TypeVar("Response", bound=Message)
OnUnreached = Callable[[int, tuple[str, int] | None], bool]
"""A broker does not answer at the address, or another does, or its address is not known; returns whether it is looked
for elsewhere: a refusal by whoever is there says nothing, then."""


class Unanswered(Exception):
    """No answer came in time, or none will: what was asked may have been done all the same."""


class RefusedByPeer(Exception):
    """The other broker does not want this one; `str(error)` says why, and what to do."""

    def __init__(self, why: str | None, *, code: int = REFUSED) -> None:
        super().__init__(why or "no reason given")
        self.is_taken = code == TAKEN
        """Another broker has this one's node id: going on would do harm."""
        self.is_itself = code == ITSELF


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this broker is to the others."""

    node_id: int
    cluster_id: str
    directory_id: bytes
    secret: bytes = field(repr=False)


class Purpose(Enum):
    RAFT = "raft"
    CHANGES = "changes"
    HEARTBEATS = "heartbeats"
    COPIES = "copies"
    QUIET_COPIES = "quiet copies"
    STATES = "states"
    LETTERS = "letters"
    QUEUES = "queues"
    WAITS = "waits"


_ANSWER_BYTES_MAX = {
    Purpose.COPIES: COPIES_BYTES_MAX,
    Purpose.QUIET_COPIES: COPIES_BYTES_MAX,
    Purpose.STATES: STATES_BYTES_MAX,
    Purpose.QUEUES: COPIES_BYTES_MAX,
}


class Link:
    """To one broker, for one purpose."""

    def __init__(
        self,
        to: int,
        identity: Identity,
        rng: Rng,
        *,
        address_of: Callable[[int], tuple[str, int] | None],
        on_refused: Callable[[int, RefusedByPeer | None], None],
        on_unreached: OnUnreached,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        absences: Absences | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._absences = absences
        self._answer_bytes_max = answer_bytes_max
        self._to = to
        self._identity = identity
        self._rng = rng
        self._address_of = address_of
        self._on_refused = on_refused
        self._on_unreached = on_unreached
        self._address: tuple[str, int] | None = None
        """Where it was tried last."""
        self._connection: ClientConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._correlation_id = 0
        self._answers: dict[int, asyncio.Future[memoryview]] = {}
        self._waiting: deque[list[Buffer]] = deque(maxlen=WAITING_MESSAGES_MAX)
        self._is_closed = False
        self._unheard_since: float | None = None
        """When the first message was sent since the peer last said anything, on whichever connection."""

    # One way

    def send(self, message: Message) -> None:
        """Or drops it."""
        frame = request_frame(message, 0, correlation_id=self._next_id(), client_id=None)
        connection = self._connection
        if connection is not None and self._is_unheard():
            connection.abort()
            self._connection = connection = None
        if connection is None or connection.is_closing:
            self._waiting.append(frame)
            self._connect_soon()
        elif connection.unsent_bytes <= UNSENT_BYTES_MAX:
            self._unheard_since = self._unheard_since or self._loop.time()
            connection.send(frame)

    def heard(self) -> None:
        self._unheard_since = None

    def _is_unheard(self) -> bool:
        return self._unheard_since is not None and self._loop.time() - self._unheard_since > SILENCE_SECONDS

    # With an answer

    async def request(
        self, message: Message, response_class: type[Response], until: float, *, version: int = 0
    ) -> Response:
        until = min(until, self._loop.time() + ANSWER_SECONDS)
        connection = self._connection
        if connection is None or connection.is_closing:
            try:
                async with asyncio.timeout_at(until):
                    connection = await self._connected()
            except TimeoutError:
                raise Unanswered(f"broker {self._to} could not be reached in time") from None
        return await self._ask(connection, message, response_class, version=version, until=until)

    async def _connected(self) -> ClientConnection:
        while (connection := self._connection) is None or connection.is_closing:
            if self._is_closed:
                raise Unanswered("this broker stops")
            self._connect_soon()
            if self._connecting is not None:
                await asyncio.wait([self._connecting])
            else:
                await asyncio.sleep(max(0.001, self._not_before - self._loop.time()))
        return connection

    async def _ask(
        self,
        connection: ClientConnection,
        message: Message,
        response_class: type[Response],
        *,
        version: int = 0,
        until: float | None = None,
    ) -> Response:
        number = self._next_id()
        answer = self._loop.create_future()
        self._answers[number] = answer
        # A timer of its own is cheaper than asyncio.timeout: a follower asks a thousand times a second.
        timer = None if until is None else self._loop.call_at(until, self._give_up, connection, answer)
        try:
            connection.send(request_frame(message, version, correlation_id=number, client_id=None))
            frame = await answer
        finally:
            self._answers.pop(number, None)
            if timer is not None:
                timer.cancel()
        header_version = 1 if is_flexible(response_class, version) else 0
        _, position = parse_response_header(frame, header_version=header_version)
        response, _ = decode(response_class, frame, version, position)
        return response

    def _give_up(self, connection: ClientConnection, answer: "asyncio.Future[memoryview]") -> None:
        if not answer.done():
            answer.set_exception(Unanswered(f"broker {self._to} did not answer in time"))
            connection.abort()

    def _next_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        return self._correlation_id

    def _on_frame(self, frame: memoryview) -> None:
        self.heard()
        number, _ = parse_response_header(frame, header_version=0)
        answer = self._answers.get(number)
        if answer is not None and not answer.done():
            answer.set_result(frame)

    def _on_lost(self) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(Unanswered(f"broker {self._to} ended the connection"))
        if self._absences is not None and self._connection is not None and self._connection.is_closing:
            self._absences.lost(self._to)

    # Connecting

    def _connect_soon(self) -> None:
        if self._connecting is None and not self._is_closed and self._loop.time() >= self._not_before:
            self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await self._open()
        except (OSError, TimeoutError, Unanswered, RefusedByPeer, MalformedMessage) as error:
            self._failed(error)
        else:
            self._failures = 0
            self._connection = connection
            self._on_refused(self._to, None)
            if self._absences is not None and self._address is not None:
                self._absences.connected(self._to, self._address, connection.peer)
            for frame in self._waiting:
                connection.send(frame)
        finally:
            self._waiting.clear()
            self._connecting = None

    async def _open(self) -> ClientConnection:
        """To a broker that has proved itself."""
        self._address = self._address_of(self._to)
        if self._address is None:
            raise Unanswered(f"it is not known where broker {self._to} is")
        connection = await open_connection(
            *self._address, on_frame=self._on_frame, on_lost=self._on_lost, frame_bytes_max=self._answer_bytes_max
        )
        try:
            await self._greet(connection)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def ask_once(self, message: Message, response_class: type[Response]) -> Response:
        """On a connection of its own. Raises what became of it where no answer did."""
        async with asyncio.timeout(CONNECT_SECONDS):
            connection = await self._open()
            try:
                return await self._ask(connection, message, response_class)
            finally:
                connection.abort()

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        pause = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * 2 ** min(self._failures, 10))
        self._not_before = self._loop.time() + self._rng.uniform(pause / 2, pause)
        is_looked_for = self._on_unreached(self._to, self._address)
        if isinstance(error, RefusedByPeer) and (error.is_taken or not is_looked_for):
            self._on_refused(self._to, error)

    async def _greet(self, connection: ClientConnection) -> None:
        mine, nonce = self._identity, self._rng.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")
        hello = HelloRequest(
            cluster_id=mine.cluster_id,
            node_id=mine.node_id,
            directory_id=mine.directory_id,
            node_id_expected=self._to,
            nonce=nonce,
        )
        challenge = await self._ask(connection, hello, HelloResponse)
        if challenge.error_code:
            raise RefusedByPeer(challenge.error_message, code=challenge.error_code)
        handshake = Handshake(
            cluster_id=mine.cluster_id,
            client=mine.node_id,
            client_directory=mine.directory_id,
            server=self._to,
            client_nonce=nonce,
            server_nonce=challenge.nonce,
        )
        try:
            proved = await self._ask(
                connection, ProveRequest(proof=handshake.proof(Side.CLIENT, mine.secret)), ProveResponse
            )
        except Unanswered:
            raise RefusedByPeer(
                f"{self._name} ended the connection when it was shown this broker's proof: its cluster secret is "
                "another one, most likely; give all brokers of a cluster the same"
            ) from None
        if proved.error_code:
            raise RefusedByPeer(proved.error_message, code=proved.error_code)
        if not handshake.is_proved_by(proved.proof, Side.SERVER, mine.secret):
            raise RefusedByPeer(
                f"whoever answers at the address of {self._name} does not know the cluster secret; look at peers and "
                "discovery, and give all brokers of a cluster the same secret"
            )

    @property
    def _name(self) -> str:
        return "the broker there" if self._to == ANYBODY else f"broker {self._to}"

    async def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._connection is not None:
            self._connection.abort()


async def meet(identity: Identity, rng: Rng, address: tuple[str, int]) -> MeetResponse:
    """Whoever is there. Raises OSError, TimeoutError, Unanswered, RefusedByPeer and MalformedMessage."""
    link = Link(
        ANYBODY, identity, rng, address_of=lambda _: address, on_refused=lambda *_: None, on_unreached=lambda *_: False
    )
    return await link.ask_once(MeetRequest(), MeetResponse)


class Links:
    def __init__(
        self,
        identity: Identity,
        rng: Rng,
        *,
        address_of: Callable[[int], tuple[str, int] | None],
        on_unreached: OnUnreached = lambda *_: False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._identity = identity
        self._rng = rng
        self.address_of = address_of
        self._on_unreached = on_unreached
        self._links: dict[tuple[int, Purpose], Link] = {}
        self.refusals: dict[int, RefusedByPeer] = {}
        """Brokers that do not want this one, and why."""
        self.absences: Absences | None = None
        """Told of connections, where a broker looks whether others are gone; set before the first is made."""
        self.told: dict[int, tuple[str, int]] = {}
        """Where brokers that join said they are reached, before the metadata says it."""
        self._idle: dict[int, list[Link]] = {}
        self._waits: dict[asyncio.Task[Any], int] = {}
        """Requests that wait, each on a connection of its own, and for which broker."""

    def _link(self, to: int, purpose: Purpose) -> Link:
        link = self._links.get((to, purpose))
        if link is None:
            link = self._links[to, purpose] = self._new_link(to, purpose)
        return link

    def _new_link(self, to: int, purpose: Purpose) -> Link:
        return Link(
            to,
            self._identity,
            self._rng,
            address_of=self.address_of,
            on_refused=self._note_refusal,
            on_unreached=self._on_unreached,
            answer_bytes_max=_ANSWER_BYTES_MAX.get(purpose, ANSWER_BYTES_MAX),
            absences=self.absences,
        )

    def _note_refusal(self, by: int, why: RefusedByPeer | None) -> None:
        if why is None:
            self.refusals.pop(by, None)
        else:
            self.refusals[by] = why

    def heard(self, broker: int) -> None:
        """It has said something on a connection of its own."""
        self._link(broker, Purpose.RAFT).heard()

    def send(self, messages: Sequence[RaftMessage]) -> None:
        by_node: dict[int, list[bytes]] = {}
        for message in messages:
            by_node.setdefault(message.to, []).append(encode_message(message))
        for to, contents in by_node.items():
            self._link(to, Purpose.RAFT).send(RaftMessagesRequest(messages=contents))

    async def ask(self, controller: int, change: Change, until: float) -> Outcome:
        """Where no answer comes, somebody else may be the controller by now; the change is known again by its id."""
        request = ProposeChangeRequest(change=encode_change(change))
        try:
            answer = await self._link(controller, Purpose.CHANGES).request(request, ProposeChangeResponse, until)
        except (Unanswered, MalformedMessage):
            return Unheard()
        match answer.outcome:
            case propose_change.ACCEPTED:
                return Accepted(answer.index, answer.term)
            case propose_change.CONFLICT:
                return Conflict(answer.index, answer.term)
            case _:
                return NotController(answer.leader if answer.leader >= 0 else None)

    async def heartbeat(
        self, controller: int, *, broker_epoch: int, until: float, at: tuple[str, int] = ("", 0)
    ) -> BrokerHeartbeatResponse | None:
        """None where no answer came. `at` is where this broker is reached, if that has to be told."""
        host, port = at
        request = BrokerHeartbeatRequest(
            broker_epoch=broker_epoch, directory_id=self._identity.directory_id, host=host, port=port
        )
        try:
            return await self._link(controller, Purpose.HEARTBEATS).request(request, BrokerHeartbeatResponse, until)
        except (Unanswered, MalformedMessage):
            return None

    async def change_members(self, controller: int, change: PromoteLearner | RemoveNode, until: float) -> Reason | None:
        """Why not; None where it has begun, or nobody knows."""
        kind = PROMOTE if isinstance(change, PromoteLearner) else REMOVE
        request = ChangeMembersRequest(change=kind, node=change.node)
        try:
            answer = await self._link(controller, Purpose.CHANGES).request(request, ChangeMembersResponse, until)
            return Reason[answer.refusal] if answer.refusal else None
        except (Unanswered, MalformedMessage, KeyError):
            return None

    async def introduce(self, brokers: Collection[int], at: tuple[str, int]) -> None:
        """Tells them where this broker is reached. One of them, or whom they know, is the controller."""
        until = self._loop.time() + ANSWER_SECONDS
        tellings = (self.heartbeat(each, broker_epoch=-1, until=until, at=at) for each in brokers)
        await asyncio.gather(*tellings)

    async def fetch(self, leader: int, request: FetchRequest, *, is_quiet: bool) -> FetchResponse | None:
        """None where no answer came. What is quiet has a connection of its own, to wait on."""
        purpose = Purpose.QUIET_COPIES if is_quiet else Purpose.COPIES
        until = self._loop.time() + request.max_wait_ms / 1000 + ANSWER_SECONDS
        try:
            return await self._link(leader, purpose).request(request, FetchResponse, until, version=FETCH_VERSION)
        except (Unanswered, MalformedMessage):
            return None

    async def keep_states(
        self, leader: int, number: int, requests: Sequence[Request], until: float
    ) -> list[Answer] | None:
        """Answers to the first of them, one at least; None where no answer came, or the broker has none."""
        wait_ms = max(0, round((until - self._loop.time()) * 1000))
        request = KeepStatesRequest(
            partition_index=number, wait_ms=wait_ms, requests=[encode_request(each) for each in requests]
        )
        try:
            answer = await self._link(leader, Purpose.STATES).request(
                request, KeepStatesResponse, until + ANSWER_SECONDS
            )
            answers = [decode_answer(each) for each in answer.answers]
        except (Unanswered, MalformedMessage, InvalidRecord):
            return None
        is_answer = answer.outcome == keep_states.DONE and 0 < len(answers) <= len(requests)
        return answers if is_answer else None

    async def produce(self, leader: int, request: ProduceRequest) -> ProduceResponse | None:
        """None where no answer came: it may be there all the same."""
        until = self._loop.time() + request.timeout_ms / 1000 + ANSWER_SECONDS
        try:
            return await self._link(leader, Purpose.LETTERS).request(
                request, ProduceResponse, until, version=PRODUCE_VERSION
            )
        except (Unanswered, MalformedMessage):
            return None

    async def describe_quorum(self, controller: int, request: DescribeQuorumRequest) -> DescribeQuorumResponse | None:
        """As that one sees it; None where no answer came soon."""
        until = self._loop.time() + LOOK_SECONDS
        try:
            return await self._link(controller, Purpose.QUEUES).request(
                request, DescribeQuorumResponse, until, version=DESCRIBE_QUORUM_VERSION
            )
        except (Unanswered, MalformedMessage):
            return None

    async def ask_queues(self, leader: int, request: Message, response_class: type[Response]) -> Response | None:
        """What is answered at once; None where no answer came."""
        until = self._loop.time() + ANSWER_SECONDS
        try:
            return await self._link(leader, Purpose.QUEUES).request(request, response_class, until)
        except (Unanswered, MalformedMessage):
            return None

    async def wait_queues(self, leader: int, request: Message, response_class: type[Response]) -> Response | None:
        """What waits, for less than ANSWER_SECONDS; None where no answer came, or too much waits there already.

        Who gives up leaves the connection to the answer that is still to come.
        """
        if sum(to == leader for to in self._waits.values()) >= WAITS_MAX:
            return None
        work = self._loop.create_task(self._wait(leader, request, response_class))
        self._waits[work] = leader
        work.add_done_callback(self._waits.pop)
        return await asyncio.shield(work)

    async def _wait(self, leader: int, request: Message, response_class: type[Response]) -> Response | None:
        idle = self._idle.setdefault(leader, [])
        link = idle.pop() if idle else self._new_link(leader, Purpose.WAITS)
        try:
            return await link.request(request, response_class, self._loop.time() + ANSWER_SECONDS)
        except (Unanswered, MalformedMessage):
            return None
        finally:
            if len(idle) < IDLE_WAITS_MAX:
                idle.append(link)
            else:
                await link.close()

    async def close(self) -> None:
        for task in list(self._waits):
            task.cancel()
        await asyncio.gather(*self._waits, return_exceptions=True)
        if self.absences is not None:
            await self.absences.close()
        for link in (*self._links.values(), *(each for idle in self._idle.values() for each in idle)):
            await link.close()
