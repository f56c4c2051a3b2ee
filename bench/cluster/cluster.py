"""Three brokers as their users run them, a process each; any can be killed, stopped and started again on its port.

Invariant: nothing that was started is left when `stop` returns.
"""

import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.broker.processes import START_SECONDS_MAX, ServerProcess, free_port
from millpond.cli.cluster_state import ClusterState, look
from millpond.model.addresses import Address
from millpond.model.errors import BrokerUnreachable

BROKERS = (1, 2, 3)
COPIES, IN_SYNC_MIN = 3, 2
_POLL_SECONDS = 0.02
_ANSWER_SECONDS_MAX = 3.0


class RunningCluster:
    def __init__(self, directory: Path, configs: Mapping[str, str]) -> None:
        self._directory = directory
        self._sets = [f"--set={name}={text}" for name, text in configs.items()]
        self._ports = {number: free_port() for number in BROKERS}
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        self._processes: dict[int, ServerProcess] = {}
        (directory / "secret").write_text(secrets.token_hex(32))
        for number in BROKERS:
            self.start(number)
        self.wait_in_sync()

    def start(self, number: int) -> None:
        """Returns at once; the first two need each other."""
        place = self._directory / str(number)
        place.mkdir(exist_ok=True)
        peers = ",".join(f"{each}@127.0.0.1:{port}" for each, port in self._ports.items())
        command = [sys.executable, "-m", "millpond.cli", "up", "--log-format", "json", "--http", "off"]
        command += ["--kafka", f"127.0.0.1:{self._ports[number]}", "--data-dir", str(place / "data")]
        command += [
            "--node-id",
            str(number),
            "--peers",
            peers,
            "--cluster-secret-file",
            str(self._directory / "secret"),
        ]
        self._processes[number] = ServerProcess([*command, *self._sets], place)

    def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        os.kill(process.pid, signal.SIGKILL)
        process.stop()

    def stop_one(self, number: int) -> None:
        self._processes.pop(number).stop()

    def stop(self) -> None:
        for process in self._processes.values():
            os.kill(process.pid, signal.SIGTERM)
        for number in list(self._processes):
            self.stop_one(number)

    def cpu_seconds(self) -> float:
        return sum(process.cpu_seconds() for process in self._processes.values())

    # What it knows

    def make_topic(self, name: str, *, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wanted = NewTopic(name, partitions, COPIES, config={"min.insync.replicas": str(IN_SYNC_MIN)})
        admin.create_topics([wanted])[name].result(START_SECONDS_MAX)
        self.wait_in_sync()

    def leader_of(self, topic: str) -> int:
        def leader(state: ClusterState) -> int | None:
            return next((each.leader for each in state.every_partition if each.topic == topic), None)

        found = leader(self._wait(lambda state: leader(state) is not None))
        assert found is not None
        return found

    def logs_of(self, number: int, topic: str) -> list[Path]:
        return sorted((self._directory / str(number) / "data").glob(f"{topic}-*/*.log"))

    def wait_live(self) -> None:
        self._wait(_are_live)

    def wait_in_sync(self) -> None:
        """Until everybody is live and every replica has everything."""
        self._wait(lambda state: _are_live(state) and not state.under_replicated and not state.leaderless)

    def _wait(self, fact: Callable[[ClusterState], bool]) -> ClusterState:
        deadline = time.perf_counter() + START_SECONDS_MAX
        while time.perf_counter() < deadline:
            for number in self._processes:
                try:
                    state = look([Address("127.0.0.1", self._ports[number])], seconds_max=_ANSWER_SECONDS_MAX, now_ms=0)
                except BrokerUnreachable:
                    continue
                if fact(state):
                    return state
            time.sleep(_POLL_SECONDS)
        raise TimeoutError(f"the cluster was not what was waited for within {START_SECONDS_MAX:.0f} s")


def _are_live(state: ClusterState) -> bool:
    return sum(each.state == "live" for each in state.brokers) == len(BROKERS)
