"""`millpond up` as a process: started, used by a stock client, stopped, killed, started again."""

import os
import pty
import re
import select
import signal
import socket
import subprocess
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from millpond import __version__
from tests.cli.broker_process import SECONDS_MAX, BrokerProcess, command, environment, run


def produce(bootstrap: str, values: list[bytes], *, acknowledged: list[bytes] | None = None) -> None:
    """Every value to topic `t`, partition 0; returns when all are acknowledged, and lists them as they are."""
    refused: list[KafkaError] = []
    done = acknowledged if acknowledged is not None else []

    def answered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(error)
        else:
            done.append(message.value() or b"")

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce("t", value, partition=0, on_delivery=answered)
    assert producer.flush(SECONDS_MAX) == 0
    assert not refused


def consume(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "not used", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        values: list[bytes] = []
        while len(values) < count:
            messages = consumer.consume(count - len(values), timeout=SECONDS_MAX)
            assert messages, f"{len(values)} of {count} came"
            for message in messages:
                assert message.error() is None
                values.append(message.value() or b"")
        return values
    finally:
        consumer.close()


VALUES = [b"%d" % number for number in range(200)]
GROUP_PARTITIONS = 50
"""Of the topic that keeps groups, which is made when the first consumer asks who looks after its own."""


def test_what_was_produced_is_there_after_an_orderly_stop_and_a_new_start(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert broker.started["event"] == "broker_started"
        assert broker.started["pid"] == broker.pid
        assert broker.started["partitions"] == 0
        produce(broker.bootstrap, VALUES)
        assert consume(broker.bootstrap, len(VALUES)) == VALUES
        assert [line["event"] for line in broker.stop()] == ["broker_stopping", "broker_stopped"]
    with BrokerProcess(tmp_path) as broker:
        assert broker.started["partitions"] == 1 + GROUP_PARTITIONS
        assert (broker.started["logs_unclean"], broker.started["bytes_scanned"]) == (0, 0)
        assert consume(broker.bootstrap, len(VALUES)) == VALUES
        broker.stop()


def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[bytes] = []
    with BrokerProcess(tmp_path) as broker:
        produce(broker.bootstrap, VALUES, acknowledged=acknowledged)
        broker.send(signal.SIGKILL)
        assert broker.wait()[0] == -signal.SIGKILL
    assert acknowledged == VALUES
    with BrokerProcess(tmp_path) as broker:
        assert broker.started["logs_unclean"] == 1
        recovered = broker.lines_until("log_recovered")[-1]
        assert (recovered["partition"], recovered["next_offset"]) == ("t-0", len(VALUES))
        assert consume(broker.bootstrap, len(VALUES)) == VALUES
        broker.stop()


def test_an_interrupt_stops_it_in_order_too(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        broker.send(signal.SIGINT)
        code, lines, err = broker.wait()
    assert (code, err) == (0, "")
    assert lines[0]["signal"] == "SIGINT"
    assert lines[-1]["event"] == "broker_stopped"


def start_with_hangups(tmp_path: Path, handler: signal.Handlers) -> BrokerProcess:
    """Whatever these tests were started with: who runs them under `nohup` has the signal ignored."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        return BrokerProcess(tmp_path)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_is_closed_stops_it_in_order_too(tmp_path: Path) -> None:
    with start_with_hangups(tmp_path, signal.SIG_DFL) as broker:
        broker.send(signal.SIGHUP)
        code, lines, err = broker.wait()
    assert (code, err) == (0, "")
    assert lines[0]["signal"] == "SIGHUP"
    assert lines[-1]["event"] == "broker_stopped"


def test_a_broker_that_shall_outlive_its_terminal_does(tmp_path: Path) -> None:
    with start_with_hangups(tmp_path, signal.SIG_IGN) as broker:
        broker.send(signal.SIGHUP)
        lines = broker.stop()
    assert lines[0]["signal"] == "SIGTERM"


def test_a_second_signal_stops_it_at_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        address = broker.started["host"], broker.started["port"]
        with (
            socket.create_connection(address, SECONDS_MAX) as first,
            socket.create_connection(address, SECONDS_MAX) as second,
        ):
            # A member that waits for another, which an orderly stop would let have its answer.
            consume_nothing(broker.bootstrap)  # so there is somebody to look after groups
            first.sendall(joining())
            assert first.recv(4)
            second.sendall(joining())
            consume_nothing(broker.bootstrap)  # asked later and answered, so the member has been heard
            broker.send(signal.SIGTERM)
            broker.lines_until("broker_stopping")
            broker.send(signal.SIGTERM)
            code, lines, _ = broker.wait()
    assert code == 128 + signal.SIGTERM
    assert lines == []


def joining() -> bytes:
    """JoinGroup, version 0: a new member of g."""
    header = (11).to_bytes(2) + (0).to_bytes(2) + (7).to_bytes(4) + (1).to_bytes(2) + b"c"
    member = (1).to_bytes(2) + b"g" + (30_000).to_bytes(4) + (0).to_bytes(2) + (8).to_bytes(2) + b"consumer"
    body = header + member + (1).to_bytes(4) + (5).to_bytes(2) + b"range" + (0).to_bytes(4)
    return len(body).to_bytes(4) + body


def consume_nothing(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g2"})
    try:
        consumer.committed([TopicPartition("t", 0)], timeout=SECONDS_MAX)
    finally:
        consumer.close()


def test_what_waits_for_messages_is_answered_when_it_stops(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        address = broker.started["host"], broker.started["port"]
        with socket.create_connection(address, SECONDS_MAX) as waiting:
            produce(broker.bootstrap, [b"first"])
            waiting.sendall(waiting_fetch())
            consume(broker.bootstrap, 1)  # asked later and answered, so the fetch has been read
            assert [line["event"] for line in broker.stop()] == ["broker_stopping", "broker_stopped"]
            answer = waiting.recv(1 << 16)
    assert answer[4:8] == (7).to_bytes(4), "not what a connection that is cut off gives"


def waiting_fetch() -> bytes:
    """Fetch, version 4: wait up to 60 s for a byte behind offset 1 of t-0."""
    header = (1).to_bytes(2) + (4).to_bytes(2) + (7).to_bytes(4) + (1).to_bytes(2) + b"c"
    limits = (-1).to_bytes(4, signed=True) + (60_000).to_bytes(4) + (1).to_bytes(4) + (1 << 20).to_bytes(4) + b"\0"
    partition = (1).to_bytes(4) + (0).to_bytes(4) + (1).to_bytes(8) + (1 << 20).to_bytes(4)
    body = header + limits + (1).to_bytes(4) + (1).to_bytes(2) + b"t" + partition
    return len(body).to_bytes(4) + body


def test_clients_are_told_the_address_that_is_advertised(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--insecure", "--advertise", "localhost:0", kafka="0.0.0.0:0") as broker:
        assert broker.lines_until("open_to_everybody")[-1]["level"] == "warning"
        port = broker.started["port"]
        known = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=SECONDS_MAX).brokers
        assert [f"{each.host}:{each.port}" for each in known.values()] == [f"localhost:{port}"]
        broker.stop()


# What keeps it from starting


def test_two_processes_never_share_a_data_directory(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        code, out, err = run("up", "--data-dir", str(tmp_path), "--kafka", "127.0.0.1:0")
        assert (code, out) == (1, "")
        assert err == (
            f"millpond: the data directory {tmp_path} is in use by another broker, process {broker.pid}; "
            "stop that one first, or give this one its own with --data-dir\n"
        )
        broker.stop()


def test_a_data_directory_stays_with_its_node(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        broker.stop()
    code, out, err = run("up", "--data-dir", str(tmp_path), "--kafka", "127.0.0.1:0", "--node-id", "2")
    assert (code, out) == (2, "")
    assert err.startswith("millpond: node-id is 2 ")
    assert err.count("\n") == 1


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, out, err = run("up", "--data-dir", str(tmp_path), "--kafka", address)
    assert (code, out) == (1, "")
    assert err == (
        f"millpond: {address} is taken by another program; stop that one, or choose another port with --kafka\n"
    )


def test_an_address_that_this_machine_does_not_have(tmp_path: Path) -> None:
    code, _, err = run("up", "--data-dir", str(tmp_path), "--kafka", "192.0.2.1:9092", "--insecure")
    assert code == 1
    assert err == "millpond: 192.0.2.1:9092 is no address of this machine; give one that is with --kafka\n"


def test_a_data_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = run("up", "--data-dir", str(tmp_path / "file"), "--kafka", "127.0.0.1:0")
    assert code == 1
    assert err.startswith(f"millpond: cannot use the data directory {tmp_path / 'file'}: ")
    assert err.count("\n") == 1


# On a terminal


def test_on_a_terminal_it_says_where_it_is(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("up", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"),
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        env=environment(),
    )
    try:
        os.close(theirs)
        shown = b""
        while b"Ctrl-C" not in shown:
            assert select.select([ours], [], [], SECONDS_MAX)[0], shown
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 0
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
            process.wait()
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert f"Millpond {__version__}" in text
    assert "./millpond-data" in text
    assert "0; there are none yet" in text
    assert "bootstrap.servers=127.0.0.1:" in text
    assert re.search(r"http://127\.0\.0\.1:\d+/metrics", text)
