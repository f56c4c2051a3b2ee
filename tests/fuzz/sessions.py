"""One connection of the fuzzer: what it sends, in which manner, and whether what comes back is as foreseen.

A plan is made from the seed and the number of the session alone, besides what the world has learned; so a number names
a failing session, and its frames are printed as hex.
Driven by run.py.
"""

import asyncio
import random
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from millpond.api.kafka.served import SERVED
from millpond.protocol.messages.headers import request_frame
from tests.fuzz.checks import Finding, checked_answer
from tests.fuzz.foresight import Foreseen, Outcome, foresee, foresee_stream, is_allowed
from tests.fuzz.mutations import damage, lie_about_length
from tests.fuzz.values import RequestMaker
from tests.fuzz.world import World

FRAMES_MAX = 24
ANSWER_SECONDS_MAX = 30.0
"""Only a broker that hangs is waited for so long."""
PATIENCE_SECONDS = 0.15
"""For what may wait as long as it likes; then this peer is gone."""
LENGTH_BYTES = 4
HEX_MAX = 20_000


class Manner(Enum):
    WHOLE = auto()
    SPLIT = auto()
    DRIBBLED = auto()
    DEAF = auto()
    """Reads nothing until everything is sent."""
    HALF_CLOSED = auto()
    RESET = auto()
    """Gone in the middle of a frame."""
    GONE = auto()
    """Connected, and gone."""


# Deleting is rare, so that there mostly is something to work on; what keeps the most state is tried the most.
_SHARES = {0: 10, 1: 8, 8: 6, 11: 6, 12: 4, 14: 6, 68: 8, 20: 1, 42: 1}
_KEYS = [key for key in SERVED for _ in range(_SHARES.get(key, 3))]
MANNERS = [Manner.WHOLE] * 24 + [Manner.SPLIT] * 4 + [Manner.DEAF] * 2
MANNERS += [Manner.DRIBBLED, Manner.HALF_CLOSED, Manner.RESET, Manner.GONE]


@dataclass(frozen=True, slots=True)
class Plan:
    number: int
    stream: bytes
    frames: list[Foreseen]
    manner: Manner
    rng: random.Random


def make_plan(seed: int, number: int, world: World) -> Plan:
    rng = random.Random(f"{seed}/{number}")
    manner = rng.choice(MANNERS)
    pieces: list[bytes] = []
    strangeness = rng.choice((0.0, 0.05, 0.1, 0.3))
    maker = RequestMaker(rng, world, strangeness=strangeness)
    damaged_share = 0.0 if strangeness else 0.8
    for place in range(rng.randrange(1, FRAMES_MAX)):
        body = _new_body(rng, maker, place)
        if rng.random() < damaged_share:
            body = damage(rng, body, _new_body(rng, maker, place))
        foreseen = foresee(body)
        if not body or not is_allowed(foreseen):
            continue
        pieces.append(struct.pack("!i", len(body)) + body)
        if foreseen.outcome is not Outcome.ANSWERED:
            break
    if rng.random() < 0.03:
        pieces.append(lie_about_length(rng, _new_body(rng, maker, FRAMES_MAX)))
    stream = b"".join(pieces)
    frames = foresee_stream(stream)
    if not all(map(is_allowed, frames)):
        stream, frames = b"", []
    return Plan(number, stream, frames, manner, rng)


def _new_body(rng: random.Random, maker: RequestMaker, place: int) -> bytes:
    api = SERVED[rng.choice(_KEYS)]
    version = rng.randint(api.version_min, api.version_max)
    client_id = rng.choice(("fuzz", "fuzz", None, ""))
    message = maker.request(api, version)
    return b"".join(request_frame(message, version, correlation_id=place, client_id=client_id))[4:]


class _Peer(asyncio.Protocol):
    def __init__(self, frames: list[Foreseen], world: World) -> None:
        self.transport: asyncio.Transport
        self.finding: Finding | None = None
        self.ended = asyncio.Event()
        self.progressed = asyncio.Event()
        self.answered = 0
        self._expected = [each for each in frames if each.outcome in (Outcome.ANSWERED, Outcome.MAY_WAIT)]
        self._world = world
        self._received = bytearray()

    @property
    def awaited(self) -> Foreseen | None:
        return self._expected[self.answered] if self.answered < len(self._expected) else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # uvloop's is none by name

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            for answer in self._answers():
                asked = self.awaited
                if asked is None:
                    raise Finding(f"an answer nobody asked for: {answer[:200].hex()}")
                response = checked_answer(answer, asked)
                self._world.learn(asked.group, response)
                self.answered += 1
        except Finding as finding:
            self.finding = self.finding or finding
        self.progressed.set()

    def _answers(self) -> Iterator[bytes]:
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            answer = bytes(self._received[4:end])
            del self._received[:end]
            yield answer

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()
        self.progressed.set()

    async def wait_progress(self, seconds: float) -> bool:
        self.progressed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self.progressed.wait()
        except TimeoutError:
            return self.progressed.is_set()  # both at once
        return True


async def run_session(plan: Plan, port: int, world: World) -> int:
    """Returns how many frames reached the broker; raises Finding, with what was sent."""
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(lambda: _Peer(plan.frames, world), "127.0.0.1", port)
    try:
        await _send(plan, peer)
        if plan.manner in (Manner.RESET, Manner.GONE):
            return 0
        await _receive(plan, peer)
    except Finding as finding:
        asked = peer.awaited.body if peer.awaited else plan.stream
        finding.add_note(f"session {plan.number}, {plan.manner.name}, after {peer.answered} answers")
        finding.add_note(f"awaited: {asked[:HEX_MAX].hex()}")
        finding.add_note(f"sent: {plan.stream[:HEX_MAX].hex()}")
        raise
    finally:
        peer.transport.abort()
    return len(plan.frames)


async def _send(plan: Plan, peer: _Peer) -> None:
    stream, rng, transport = plan.stream, plan.rng, peer.transport
    if plan.manner is Manner.GONE:
        return
    if plan.manner is Manner.RESET:
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.write(stream[: rng.randrange(len(stream) + 1)])
        await asyncio.sleep(0)
        return
    if plan.manner is Manner.DEAF:
        transport.pause_reading()
    for piece in _pieces(plan):
        if peer.ended.is_set():
            return
        transport.write(piece)
        await asyncio.sleep(0)
    if plan.manner is Manner.DEAF:
        await asyncio.sleep(PATIENCE_SECONDS)
        transport.resume_reading()
    elif plan.manner is Manner.HALF_CLOSED:
        transport.write_eof()


def _pieces(plan: Plan) -> Iterator[bytes]:
    stream, rng = plan.stream, plan.rng
    if plan.manner is Manner.SPLIT:
        cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.randrange(1, 12)))
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            yield stream[start:end]
    elif plan.manner is Manner.DRIBBLED:
        few = stream[:400]
        yield from (few[at : at + 1] for at in range(len(few)))
        yield stream[400:]
    else:
        yield stream


async def _receive(plan: Plan, peer: _Peer) -> None:
    """Waits for every answer that must come, and for the end where the connection must end."""
    last = plan.frames[-1].outcome if plan.frames else Outcome.ANSWERED
    # Behind a length that cannot be, Kafka ends the connection then and there. And where more bytes come than are read
    # before a socket is closed, the kernel resets the connection, and answers that were on their way are lost.
    reached_bytes = sum(LENGTH_BYTES + len(each.body) for each in plan.frames)
    is_cut_off = last is Outcome.CLOSED and reached_bytes != len(plan.stream)
    while peer.finding is None:
        asked = peer.awaited
        if peer.ended.is_set():
            if asked is None or plan.manner is Manner.HALF_CLOSED or is_cut_off:
                return
            raise Finding(f"the connection ended where an answer had to come, to {type(asked.message).__name__}")
        must_close = plan.manner is Manner.HALF_CLOSED or last is Outcome.CLOSED
        if asked is None and not must_close:
            return
        is_patient = asked is not None and asked.outcome is Outcome.MAY_WAIT
        if not await peer.wait_progress(PATIENCE_SECONDS if is_patient else ANSWER_SECONDS_MAX):
            if is_patient:
                return
            what = "an answer" if asked is not None else "the end of the connection"
            raise Finding(f"after {ANSWER_SECONDS_MAX} s still not: {what}")
    raise peer.finding
