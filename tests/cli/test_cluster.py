"""`millpond up --cluster` and `millpond cluster status`: three processes started, looked at, and ended together."""

import json
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.cli.broker_process import SECONDS_MAX, BrokerProcess, Line, command, environment, run
from tests.interop.free_ports import free_ports


class ClusterProcess:
    """The command, which starts the brokers itself."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            command("up", "--cluster", "3", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.pid = self._process.pid

    def next_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"it ended: {self._process.communicate(timeout=SECONDS_MAX)[1]}"
        return line

    def line_of(self, event: str) -> Line:
        while (line := json.loads(self.next_line()))["event"] != event:
            pass
        found: Line = line
        return found

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> tuple[int, str, str]:
        out, err = self._process.communicate(timeout=SECONDS_MAX)
        return self._process.returncode, out, err

    def end(self) -> None:
        """Its brokers end with it."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.communicate(timeout=SECONDS_MAX)


@contextmanager
def cluster(*arguments: str) -> Iterator[ClusterProcess]:
    process = ClusterProcess(*arguments)
    try:
        yield process
    finally:
        process.end()


def three_free_ports() -> int:
    """The first of three in a row, as the command takes them."""
    while True:
        (first,) = free_ports(1)
        try:
            for port in (first + 1, first + 2):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def status(bootstrap: str) -> Line:
    code, out, err = run("cluster", "status", "--bootstrap", bootstrap, "--output", "json")
    assert (code, err) == (0, "")
    document: Line = json.loads(out)
    return document


@pytest.mark.slow
def test_three_brokers_are_started_looked_at_and_stopped_together(tmp_path: Path) -> None:
    first = three_free_ports()
    arguments = ("--data-dir", str(tmp_path / "d"), "--kafka", f"127.0.0.1:{first}", "--log-format", "json")
    with cluster(*arguments, "--http", "127.0.0.1:0") as running:
        listening = [running.line_of("broker_started") for _ in range(3)]
        for each in listening:
            assert each["http"].startswith("127.0.0.1:"), "any broker of a cluster answers, at every door"
        started = running.line_of("cluster_started")
        addresses = [f"127.0.0.1:{first + number}" for number in range(3)]
        assert (started["brokers"], started["bootstrap"]) == (3, ",".join(addresses))
        secret = tmp_path / "d" / "cluster-secret"
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        admin = AdminClient({"bootstrap.servers": started["bootstrap"]})
        admin.create_topics([NewTopic("t", 3)])["t"].result(SECONDS_MAX)
        seen = status(addresses[1])
        assert {each["node_id"]: (each["address"], each["state"]) for each in seen["brokers"]} == {
            number: (address, "live") for number, address in enumerate(addresses, start=1)
        }
        assert seen["quorum"]["leader"] in (1, 2, 3)
        assert [each["node_id"] for each in seen["quorum"]["voters"]] == [1, 2, 3]
        assert seen["quorum"]["observers"] == []
        assert (seen["partitions"], seen["leaderless"]) == (3, [])
        assert sum(each["leads"] for each in seen["brokers"]) == 3
        running.send(signal.SIGINT)
        code, out, err = running.wait()
    assert (code, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["event"] == "cluster_stopped"
    assert not any(is_running(pid) for pid in started["pids"].values())
    with cluster(*arguments) as running:  # the same secret, the same data
        kept = secret.read_text()
        running.line_of("cluster_started")
        assert secret.read_text() == kept
        assert status(addresses[2])["partitions"] == 3


@pytest.mark.slow
def test_a_broker_that_dies_is_told_of_and_the_others_go_on(tmp_path: Path) -> None:
    with cluster("--data-dir", str(tmp_path), "--kafka", "127.0.0.1:0", "--log-format", "json") as running:
        started = running.line_of("cluster_started")
        os.kill(started["pids"]["2"], signal.SIGKILL)
        ended = running.line_of("cluster_broker_ended")
        assert (ended["level"], ended["node_id"], ended["how"], ended["left"]) == ("error", 2, "SIGKILL", 2)
        third = started["bootstrap"].split(",")[2]
        assert [each["node_id"] for each in status(third)["quorum"]["voters"]] == [1, 2, 3]
        for number in ("1", "3"):
            os.kill(started["pids"][number], signal.SIGKILL)
        code, _, err = running.wait()
    assert code == 1
    assert err == "millpond: every broker of the cluster has ended; what they said is above\n"


@pytest.mark.slow
def test_people_see_one_line_when_it_is_ready_and_each_line_with_its_broker(tmp_path: Path) -> None:
    with cluster("--data-dir", str(tmp_path), "--kafka", "127.0.0.1:0") as running:
        lines = [running.next_line()]
        while "is ready" not in lines[-1]:
            lines.append(running.next_line())
        assert sorted(line[:4] for line in lines[:-1]) == ["1 | ", "2 | ", "3 | "]
        assert "a cluster of 3 brokers is ready: bootstrap.servers=127.0.0.1:" in lines[-1]
        running.send(signal.SIGTERM)
        assert running.wait()[0] == 0


@pytest.mark.slow
def test_one_broker_that_cannot_start_ends_all(tmp_path: Path) -> None:
    first = three_free_ports()
    with socket.create_server(("127.0.0.1", first + 1)):
        code, _, err = run("up", "--cluster", "3", "--data-dir", str(tmp_path), "--kafka", f"127.0.0.1:{first}")
    assert code == 1
    assert err.startswith("millpond: broker 2 ended before the cluster was ready (exit code 1): ")
    assert f"127.0.0.1:{first + 1} is taken by another program" in err
    assert err.count("\n") == 1
    for port in (first, first + 2):
        socket.create_server(("127.0.0.1", port)).close()  # nobody is left there


def test_one_broker_is_a_cluster_too_and_is_shown_in_every_way(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--rack", "cellar") as broker:
        seen = status(broker.bootstrap)
        assert seen["brokers"] == [
            {"node_id": 1, "address": broker.bootstrap, "rack": "cellar", "state": "live", "leads": 0}
        ]
        assert (seen["quorum"]["leader"], seen["quorum"]["voters"][0]["lag"]) == (1, 0)
        code, table, err = run("cluster", "status", "--bootstrap", broker.bootstrap)
        assert (code, err) == (0, "")
        assert "controller is broker 1" in table
        assert "cellar" in table
        assert "every one has a leader" in table
        code, text, err = run("cluster", "status", "--bootstrap", broker.bootstrap, "--output", "yaml")
        assert (code, err) == (0, "")
        assert '    rack: "cellar"\n' in text
        broker.stop()


def test_a_broker_that_waits_for_its_peers_stops_when_it_is_told_to(tmp_path: Path) -> None:
    first, second = free_ports(2)
    secret = tmp_path / "secret"
    secret.write_text("a secret of these two brokers")
    cluster_of_two = ("--peers", f"1@127.0.0.1:{first},2@127.0.0.1:{second}", "--cluster-secret-file", str(secret))
    process = subprocess.Popen(
        command("up", "--data-dir", str(tmp_path / "d"), "--kafka", f"127.0.0.1:{first}", *cluster_of_two),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        with socket.create_server(("127.0.0.1", second)) as peer:
            peer.settimeout(SECONDS_MAX)
            peer.accept()[0].close()  # it looks for the other one
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "")
    assert "SIGTERM: finishing what was asked" in out
    assert "stopped, every log closed in order" in out


# What is refused


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cluster", "1"), "--cluster is 1; allowed is a number of brokers from 2 to 9"),
        (("--cluster", "3", "--peers", "1@127.0.0.1:1,2@127.0.0.1:2"), "leave those out"),
        (("--cluster", "3", "--advertise", "a:1"), "leave --advertise out"),
        (("--cluster", "3", "--kafka", "127.0.0.1:65534"), "3 brokers need as many ports from there on"),
        (("--cluster-secret", "hush"), "not taken on the command line, where every user of this machine can read it"),
    ],
)
def test_what_does_not_fit_together_is_refused(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run("up", *arguments, "--data-dir", str(tmp_path / "d"))
    assert (code, out) == (2, "")
    assert said in err
    assert "hush" not in err
    assert not (tmp_path / "d").exists()


def test_the_data_of_one_broker_or_of_another_number_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "node").touch()
    code, _, err = run("up", "--cluster", "3", "--data-dir", str(tmp_path))
    assert (code, "belongs to one broker" in err) == (1, True)
    (tmp_path / "node").unlink()
    for number in range(1, 6):
        (tmp_path / str(number)).mkdir()
    code, _, err = run("up", "--cluster", "3", "--data-dir", str(tmp_path))
    assert (code, "holds a cluster of 5 brokers; start it with --cluster 5" in err) == (1, True)


def test_the_data_of_a_cluster_is_not_taken_by_one_broker(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "node").touch()
    code, out, err = run("up", "--data-dir", str(tmp_path), "--kafka", "127.0.0.1:0")
    assert (code, out) == (1, "")
    assert "holds brokers that were started together; start them with --cluster" in err


def test_nobody_there_to_ask(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    code, out, err = run("cluster", "status", "--bootstrap", f"127.0.0.1:{port}")
    assert (code, out) == (4, "")
    assert err.startswith(f"millpond: no broker answers at 127.0.0.1:{port} (Connection refused); start one")
    code, _, err = run("cluster", "status", "--bootstrap", "nonsense")
    assert code == 2
    assert "--bootstrap is 'nonsense'" in err
