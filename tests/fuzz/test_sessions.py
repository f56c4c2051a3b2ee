"""The fuzzer finds what it is there to find: against servers that answer wrongly, late, never, or hang up."""

import asyncio
import contextlib
import struct
from collections.abc import Callable

import pytest

from millpond.api.kafka.served import SERVED
from millpond.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millpond.protocol.messages.headers import request_frame, response_encoder
from tests.fuzz import sessions
from tests.fuzz.checks import Finding
from tests.fuzz.foresight import foresee_stream
from tests.fuzz.sessions import Manner, Plan, make_plan, run_session
from tests.fuzz.world import World

VERSION = 2
MALFORMED = struct.pack("!i", 3) + b"\0\0\0"

Answering = Callable[[asyncio.StreamWriter], None]


def respond(writer: asyncio.StreamWriter, *, correlation_id: int = 7, error_code: int = 0, tail: bytes = b"") -> None:
    encode = response_encoder(ApiVersionsResponse, VERSION)
    answer = b"".join(encode(ApiVersionsResponse(error_code=error_code), correlation_id))
    writer.write(struct.pack("!i", len(answer) + len(tail)) + answer + tail)


def plan_of(stream: bytes) -> Plan:
    made = make_plan(1, 1, World())
    return Plan(1, stream, foresee_stream(stream), Manner.WHOLE, made.rng)


def asked() -> bytes:
    return b"".join(
        request_frame(
            ApiVersionsRequest(client_software_name="test", client_software_version="1"),
            VERSION,
            correlation_id=7,
            client_id="test",
        )
    )


def session_against(answering: Answering, stream: bytes) -> int:
    async def run() -> int:
        serving: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.read(4)
                answering(writer)
                await reader.read()  # until the peer has gone
            except OSError:
                pass  # gone without a word
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
                serving.set_result(None)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            try:
                return await run_session(plan_of(stream), server.sockets[0].getsockname()[1], World())
            finally:
                await serving

    return asyncio.run(run())


def test_a_right_answer_is_no_finding() -> None:
    assert session_against(respond, asked()) == 1


@pytest.mark.parametrize(
    ("answering", "words"),
    [
        (lambda writer: respond(writer, correlation_id=8), "asked as 7, answered as 8"),
        (lambda writer: respond(writer, error_code=-1), "answered with error -1"),
        (lambda writer: respond(writer, error_code=56), "answered with error 56"),
        (lambda writer: respond(writer, error_code=30_000), "answered with error 30000"),
        (lambda writer: respond(writer, tail=b"\0"), "1 bytes behind the answer"),
        (lambda writer: writer.write(struct.pack("!i", 6) + struct.pack("!i", 7) + b"\0\0"), "is malformed"),
        (lambda writer: writer.close(), "ended where an answer had to come"),
        (lambda writer: writer.transport.abort(), "ended where an answer had to come"),
        (lambda writer: None, "still not: an answer"),
    ],
)
def test_a_wrong_answer_is_found(answering: Answering, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ANSWER_SECONDS_MAX", 0.1)
    with pytest.raises(Finding, match=words) as found:
        session_against(answering, asked())
    assert asked().hex() in "".join(found.value.__notes__)


def test_a_connection_that_should_have_ended_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ANSWER_SECONDS_MAX", 0.1)
    with pytest.raises(Finding, match="still not: the end of the connection"):
        session_against(lambda writer: None, MALFORMED)
    assert session_against(lambda writer: writer.close(), MALFORMED) == 1


def test_a_seed_and_a_number_give_the_same_plan_again() -> None:
    plans = [make_plan(5, number, World()) for number in range(40)]
    assert [plan.stream for plan in plans] == [make_plan(5, number, World()).stream for number in range(40)]
    assert len({plan.stream for plan in plans}) > 30


def test_every_api_is_asked_at_every_version() -> None:
    served = {(api.key, version) for api in SERVED.values() for version in range(api.version_min, api.version_max + 1)}
    world = World()
    for number in range(4000):
        served -= {(each.key, each.version) for each in make_plan(3, number, world).frames}
        if not served:
            return
    pytest.fail(f"never asked: {sorted(served)}")
