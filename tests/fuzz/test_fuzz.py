"""A broker process under tens of thousands of hostile frames: it answers, stays small, and nobody else notices.

Figures: python -m tests.fuzz does the same for longer, with a seed of its own.
"""

import contextlib
import os
import random
import resource
import socket
import struct
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic

from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.headers import request_frame
from millpond.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millpond.protocol.records import Codec
from tests.fuzz.batches import bomb
from tests.fuzz.checks import checked_answer
from tests.fuzz.foresight import foresee
from tests.fuzz.run import BROKER_CONFIGS, fuzz, private_bytes
from tests.interop.broker_process import BrokerProcess, running_broker
from tests.interop.confluent import (
    new_admin,
    new_consumer,
    new_producer,
    new_topic,
    read_from_start,
    receive,
    send,
    values_of,
)
from tests.interop.facts import FACT_SECONDS_MAX

pytestmark = pytest.mark.slow

FRAMES = int(os.environ.get("FUZZ_FRAMES", "50000"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or random.SystemRandom().randrange(1_000_000)
MIB = 1024 * 1024
GROWTH_BYTES_MAX = 48 * MIB
"""In the second half of a run. What is legitimately kept (groups, members, producers) is a few of them."""
CROWD = 200
MESSAGE_TOO_LARGE = 10


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path / "data", BROKER_CONFIGS) as process:
        yield process


def check_that_stock_clients_work(broker: BrokerProcess) -> None:
    """A producer, and a consumer in a group, neither of which was there before."""
    topic = new_topic(broker)
    values = [b"%d" % number for number in range(100)]
    send(broker, topic, values, enable_idempotence=True)
    consumer = new_consumer(broker, session_timeout_ms=6000)
    consumer.subscribe([topic])
    try:
        messages = receive(consumer, len(values))
        assert values_of(messages) == values
        consumer.commit(message=messages[-1], asynchronous=False)
    finally:
        consumer.close()


def test_a_fuzzed_broker_answers_stays_small_and_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    again = f"python -m tests.fuzz --seed {SEED} --frames {FRAMES}"
    with running_broker(tmp_path / "data", BROKER_CONFIGS) as broker:
        topic = new_topic(broker)
        send(broker, topic, [b"before"])
        report = fuzz(broker, seed=SEED, frames=FRAMES)
        for finding in report.findings.values():
            finding.add_note(f"seed {SEED}; run it again with: {again}")
        if report.findings:
            raise ExceptionGroup(f"seed {SEED}: {again}", list(report.findings.values()))
        assert report.frames >= FRAMES
        assert report.rounds > 0
        settled = report.memory[len(report.memory) // 2][1]
        assert private_bytes(broker) - settled < GROWTH_BYTES_MAX, f"{report.memory}; {again}"
        check_that_stock_clients_work(broker)
    with running_broker(tmp_path / "data", BROKER_CONFIGS) as broker:
        assert values_of(read_from_start(broker, topic, 1)) == [b"before"], again
        check_that_stock_clients_work(broker)


def connect(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=FACT_SECONDS_MAX)


def wait_closed(peer: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while peer.recv(65_536):
            pass


@pytest.mark.parametrize(
    ("length", "is_closed"), [(2**31 - 1, True), (104_857_601, True), (104_857_600, False)], ids=str
)
def test_a_frame_that_declares_much_and_brings_nothing_costs_nothing(
    broker: BrokerProcess, length: int, is_closed: bool
) -> None:
    check_that_stock_clients_work(broker)
    before = private_bytes(broker)
    with contextlib.ExitStack() as crowd:
        peers = [crowd.enter_context(connect(broker)) for _ in range(CROWD)]
        for peer in peers:
            peer.sendall(struct.pack("!i", length) + bytes(100))
        if is_closed:
            for peer in peers:
                wait_closed(peer)
        check_that_stock_clients_work(broker)
        assert private_bytes(broker) - before < 8 * MIB


def test_thousands_of_short_connections_leave_nothing_behind(broker: BrokerProcess) -> None:
    check_that_stock_clients_work(broker)
    before = private_bytes(broker)
    descriptors = len(os.listdir(f"/proc/{pid_of(broker)}/fd"))
    for number in range(3000):
        with connect(broker) as peer:
            if number % 3:
                linger = struct.pack("ii", 1, 0)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                peer.sendall(b"\0\0\0\x20\0\3"[: number % 7])
    check_that_stock_clients_work(broker)
    assert private_bytes(broker) - before < 8 * MIB
    assert len(os.listdir(f"/proc/{pid_of(broker)}/fd")) < descriptors + 20


def test_a_crowd_of_connections_leaves_files_for_the_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))

    monkeypatch.setattr(subprocess, "Popen", partial(subprocess.Popen, preexec_fn=limit_files))
    with running_broker(tmp_path / "data", BROKER_CONFIGS) as broker, contextlib.ExitStack() as crowd:
        create_topic(broker, "rolling", {"segment.bytes": "1024"})
        producer = new_producer(broker)
        producer.produce("rolling", b"connected")
        assert producer.flush(FACT_SECONDS_MAX) == 0
        failures: list[object] = []
        peers = [crowd.enter_context(connect(broker)) for _ in range(CROWD)]
        wait_closed(peers[-1])
        for _ in range(20):
            producer.produce("rolling", bytes(600), on_delivery=lambda error, _: failures.append(error))
            assert producer.flush(FACT_SECONDS_MAX) == 0
        assert failures == [None] * 20
        crowd.close()
        check_that_stock_clients_work(broker)


def pid_of(broker: BrokerProcess) -> int:
    return next(int(told["pid"]) for told in broker.told if told.get("event") == "broker_started")


def test_readers_that_never_read_cost_little_and_hold_nobody_up(broker: BrokerProcess) -> None:
    """Each asks for a megabyte, many times over, and takes nothing of it."""
    topic = new_topic(broker)
    send(broker, topic, [bytes(1000)] * 1000)
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    asked = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[part])])
    frame = b"".join(request_frame(asked, 11, correlation_id=1, client_id="deaf"))
    before = private_bytes(broker)
    with contextlib.ExitStack() as crowd:
        for _ in range(20):
            peer = crowd.enter_context(connect(broker))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.sendall(frame * 20)
        check_that_stock_clients_work(broker)
        assert private_bytes(broker) - before < 64 * MIB


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_a_bomb_is_refused_by_a_topic_that_looks_inside(broker: BrokerProcess, codec: Codec) -> None:
    create_topic(broker, "compacted", {"cleanup.policy": "compact"})
    check_that_stock_clients_work(broker)
    before = private_bytes(broker)
    data = [TopicProduceData(name="compacted", partition_data=[PartitionProduceData(index=0, records=bomb(codec))])]
    with connect(broker) as peer:
        answer = ask(peer, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 9)
    assert answer.responses[0].partition_responses[0].error_code == MESSAGE_TOO_LARGE
    check_that_stock_clients_work(broker)
    assert private_bytes(broker) - before < 64 * MIB


def create_topic(broker: BrokerProcess, name: str, configs: dict[str, str]) -> None:
    wanted = NewTopic(name, 1, 1, config=configs)
    admin = new_admin(broker)
    admin.create_topics([wanted])[name].result(FACT_SECONDS_MAX)


def ask(peer: socket.socket, message: Message, version: int) -> Any:  # noqa: ANN401 - its response
    frame = b"".join(request_frame(message, version, correlation_id=1, client_id="ask"))
    peer.sendall(frame)
    with peer.makefile("rb") as answers:
        (length,) = struct.unpack("!i", answers.read(4))
        return checked_answer(answers.read(length), foresee(frame[4:]))
