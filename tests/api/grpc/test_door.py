"""The gRPC door, from its start to its end, and what it does with bugs and with too much."""

import asyncio
import errno
import socket
import subprocess
import sys

import grpc
import pytest

from millpond.api.grpc import limits
from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.app.broker_settings import BrokerSettings
from millpond.app.grpc_door import GrpcDoor
from millpond.app.refusals import CannotListen
from millpond.testing.broker import InProcessBroker
from tests.api.grpc.asking import SECONDS_MAX, Door, refused


def test_the_door_is_shut_unless_asked_for() -> None:
    assert BrokerSettings().grpc is None
    with InProcessBroker() as broker:
        assert broker.broker.grpc_port is None


def test_a_bug_is_answered_and_told() -> None:
    broker = InProcessBroker(grpc=True)
    broker.start()
    try:
        broker.create_topic("orders")
        with grpc.insecure_channel(broker.grpc_address) as channel:
            broker.broker.node.clock = None  # type: ignore[assignment]
            with refused(grpc.StatusCode.INTERNAL, "internal_error", naming="its log says why"):
                batch = wire.ProduceBatchRequest(topic="orders", partition=0, batch=b"any")
                Door(channel).append(batch)
    finally:
        broker.broker.node.clock = broker.clock
        with pytest.raises(BaseExceptionGroup) as raised:
            broker.stop()
    (bug,) = raised.value.exceptions
    assert isinstance(bug, AttributeError)


def test_a_broker_that_stops_ends_those_who_follow() -> None:
    with InProcessBroker(grpc=True) as broker:
        broker.create_topic("followed")
        with grpc.insecure_channel(broker.grpc_address) as channel:
            answers = Door(channel).messages.Consume(wire.ConsumeRequest(topic="followed", follow=True))
            Door(channel).produce(wire.NewMessage(topic="followed", value=b"x"))
            assert next(answers).messages[0].value == b"x"
            port = broker.broker.grpc_port
            broker.stop()
            with pytest.raises(grpc.RpcError) as caught:
                next(answers)
            assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)


def test_an_address_that_is_taken_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(CannotListen) as caught:
            asyncio.run(GrpcDoor.reserve("127.0.0.1", taken.getsockname()[1]))
        assert (caught.value.setting, caught.value.error.errno) == ("grpc", errno.EADDRINUSE)


WITHOUT_GRPCIO = """
import asyncio, sys
from millpond.app.grpc_door import GrpcDoor
from millpond.app.refusals import CannotStart
sys.modules["grpc"] = None
try:
    asyncio.run(GrpcDoor.reserve("127.0.0.1", 0))
except CannotStart as refusal:
    print(refusal)
"""


def test_without_grpcio_it_is_told_how_to_get_it() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT_GRPCIO], check=True, capture_output=True, text=True)
    assert ran.stdout == "--grpc needs grpc, which is not installed; say: pip install 'millpond[grpc]'\n"


def test_more_calls_than_are_allowed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    few = limits.GrpcLimits(calls_max=1)
    monkeypatch.setattr(limits, "GrpcLimits", lambda: few)
    with InProcessBroker(grpc=True) as broker, grpc.insecure_channel(broker.grpc_address) as channel:
        door = Door(channel)
        broker.create_topic("one")
        door.produce(wire.NewMessage(topic="one", value=b"x"))
        following = door.messages.Consume(wire.ConsumeRequest(topic="one", follow=True), timeout=SECONDS_MAX)
        assert next(following).messages
        with pytest.raises(grpc.RpcError) as caught:
            door.produce(wire.NewMessage(topic="one", value=b"y"))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        following.cancel()
