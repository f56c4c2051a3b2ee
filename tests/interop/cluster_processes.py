"""Three brokers as their users run them, a process each on loopback, or each in the place it is given; each can be
stopped, killed, paused and started again on its port. What they know of each other is asked over the wire.

Invariant: no process outlives `running_cluster`. A bug that a broker reports of itself fails whoever uses this.
"""

import json
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from millpond.cli.cluster_state import ClusterState, PartitionState, look
from millpond.model.addresses import Address
from millpond.model.errors import BrokerUnreachable
from tests.interop.broker_process import BrokerProcess
from tests.interop.facts import until
from tests.interop.free_ports import free_ports

BROKERS = (1, 2, 3)
QUICK = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "group.min.session.timeout.ms": "1000",
}
"""Sessions short enough to wait for."""
STATE_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 3.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker runs, and keeps its data."""

    host: str
    port: int
    directory: Path
    on: tuple[str, ...] = ()
    """What goes before its command, to run it in a network namespace for instance."""


class ClusterBroker(BrokerProcess):
    """One of them. Starting returns at once: the first two need each other."""

    def __init__(self, node_id: int, place: Place, secret_file: Path, peers: str, configs: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.peers = peers
        self._secret_file = secret_file
        self._directory = place.directory
        self._on = place.on
        self._sets = [f"--set={name}={value}" for name, value in configs.items()]
        self.host, self.port = place.host, place.port
        self.told: list[dict[str, Any]] = []
        self.is_up = False
        self.is_paused = False
        self.excused: set[str] = set()
        """Errors of its own that it may tell of, since somebody caused them."""

    @property
    def bugs(self) -> list[dict[str, Any]]:
        return [told for told in super().bugs if kind_of(told) not in self.excused]

    def launch(self) -> None:
        command = [sys.executable, "-m", "millpond.cli", "up", "--data-dir", str(self._directory)]
        own = ["--kafka", self.address, "--node-id", str(self.node_id), "--peers", self.peers]
        own += ["--cluster-secret-file", str(self._secret_file), "--http", "off", "--log-format", "json"]
        own += [] if self.host == BrokerProcess.host else ["--insecure"]
        self._process = subprocess.Popen(
            [*self._on, *command, *own, *self._sets], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._started = threading.Event()
        self._reader = threading.Thread(target=self._hear, args=(self._process, self._started), name="broker-lines")
        self._reader.start()
        self.is_up = True

    def _hear(self, process: "subprocess.Popen[str]", started: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            told: dict[str, Any] = json.loads(line) if line.startswith("{") else {"level": "error", "message": line}
            self.told.append(told)
            if told.get("event") == "broker_started":
                started.set()

    def wait_started(self) -> None:
        assert self._started.wait(STATE_SECONDS_MAX), self.told

    def wait_ended(self) -> int:
        """The exit code of one that ends by itself."""
        code = self._process.wait(STATE_SECONDS_MAX)
        self._end(signal.SIGKILL)
        return code

    def start(self) -> None:
        self.launch()
        self.wait_started()

    def _end(self, how: signal.Signals) -> None:
        if self.is_paused and how is signal.SIGTERM:
            self.resume()
        self.is_up = self.is_paused = False
        super()._end(how)

    def end(self) -> None:
        """However it is."""
        if self.is_up:
            self.kill()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def freeze(self) -> None:
        """Pauses it, and returns when it surely runs no more: what it asked of the kernel may go on, but it will not
        hear the answer."""
        self.pause()
        tasks = Path(f"/proc/{self._process.pid}/task")

        def is_frozen() -> bool:
            states = [_state((each / "stat").read_text()) for each in tasks.iterdir()]
            return all(state in "TD" for state in states)

        for _ in until(is_frozen, what=f"broker {self.node_id} stands still"):
            threading.Event().wait(0.001)


class ClusterProcesses:
    def __init__(self, directory: Path, configs: Mapping[str, str], places: Mapping[int, Place]) -> None:
        """Use `running_cluster`."""
        secret = directory / "secret"
        secret.write_text(secrets.token_hex(32))
        peers = ",".join(f"{number}@{place.host}:{place.port}" for number, place in places.items())
        self.brokers = {each: ClusterBroker(each, place, secret, peers, configs) for each, place in places.items()}

    @property
    def address(self) -> str:
        """Of all, as a client is told them."""
        return ",".join(each.address for each in self.brokers.values())

    def launch(self) -> None:
        for each in self.brokers.values():
            each.launch()
        for each in self.brokers.values():
            each.wait_started()

    # What they know

    def state(self) -> ClusterState | None:
        """As any of them that answers sees it."""
        for each in self.brokers.values():
            if each.is_up and not each.is_paused:
                try:
                    now_ms = time.time_ns() // 1_000_000
                    return look([Address(each.host, each.port)], seconds_max=ANSWER_SECONDS_MAX, now_ms=now_ms)
                except BrokerUnreachable:
                    continue
        return None

    def wait(self, fact: Callable[[ClusterState], object], *, what: str) -> ClusterState:
        """Asks until the fact holds, and returns the state in which it did."""
        found: list[ClusterState] = []
        for _ in until(lambda: found, what=what, seconds_max=STATE_SECONDS_MAX):
            state = self.state()
            if state is not None and fact(state):
                found.append(state)
            else:
                threading.Event().wait(0.05)
        return found[0]

    def wait_healthy(self) -> ClusterState:
        """Everybody is live and every replica in sync."""
        return self.wait(is_healthy, what="all brokers live, all replicas in sync")

    def leader_of(self, topic: str, partition: int = 0) -> ClusterBroker:
        state = self.wait(lambda state: _leader(state, topic, partition) is not None, what=f"{topic} has a leader")
        leader = _leader(state, topic, partition)
        assert leader is not None
        return self.brokers[leader]

    def controller(self) -> ClusterBroker:
        leader = self.wait(lambda state: state.quorum.leader is not None, what="there is a controller").quorum.leader
        assert leader is not None
        return self.brokers[leader]

    @property
    def bugs(self) -> list[dict[str, Any]]:
        return [bug for each in self.brokers.values() for bug in each.bugs]


def is_healthy(state: ClusterState) -> bool:
    live = sum(each.state == "live" for each in state.brokers)
    return live == len(BROKERS) and not state.leaderless and not state.under_replicated


def kind_of(told: Mapping[str, Any]) -> str:
    """Of the error that a line tells of."""
    error: str = told.get("trouble", told.get("error", ""))
    return error.partition(":")[0]


def _state(stat: str) -> str:
    """Of a thread: the letter behind its name."""
    return stat.rpartition(")")[2].split()[0]


def _leader(state: ClusterState, topic: str, partition: int) -> int | None:
    found = [each for each in state.every_partition if (each.topic, each.partition) == (topic, partition)]
    return found[0].leader if found else None


def replicas_of(state: ClusterState, topic: str) -> list[PartitionState]:
    return [each for each in state.every_partition if each.topic == topic]


def on_loopback(directories: Mapping[int, Path], *, on: tuple[str, ...] = ()) -> dict[int, Place]:
    ports = free_ports(len(directories))
    return {
        each: Place(BrokerProcess.host, port, directory, on)
        for (each, directory), port in zip(directories.items(), ports, strict=True)
    }


@contextmanager
def running_cluster(
    directory: Path,
    configs: Mapping[str, str] = MappingProxyType(QUICK),
    *,
    places: Mapping[int, Place] | None = None,
) -> Iterator[ClusterProcesses]:
    """`configs` are Kafka's broker settings by name."""
    directory.mkdir(parents=True, exist_ok=True)
    places = places or on_loopback({each: directory / str(each) for each in BROKERS})
    cluster = ClusterProcesses(directory, configs, places)
    with ExitStack() as stack:
        for each in cluster.brokers.values():
            stack.callback(each.end)
        cluster.launch()
        yield cluster
        for each in cluster.brokers.values():
            each.stop()
    assert not cluster.bugs, cluster.bugs
