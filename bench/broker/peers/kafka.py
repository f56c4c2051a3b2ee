"""Apache Kafka: one node that is broker and controller, with the heap its own scripts give it.

By default Kafka answers before it syncs. `flush.messages=1` makes it sync first, each append by itself.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from bench.broker import kafka_wire, librdkafka
from bench.broker.driving import Conversation
from bench.broker.figures import Durability
from bench.broker.peers.cache import CACHE, HOW
from bench.broker.processes import ServerProcess, free_port
from bench.broker.systems import Run

LIBRARIES = CACHE / "kafka" / "libs"
_CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_HEAP = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_FORMAT_SECONDS_MAX = 60.0
_NONE: Mapping[str, str] = MappingProxyType({})
_CONFIGS: dict[Durability, dict[str, str]] = {Durability.SYNCED: {"flush.messages": "1"}, Durability.NOT_SYNCED: {}}


class RunningKafka:
    def __init__(self, directory: Path, configs: Mapping[str, str] = _NONE, heap: Sequence[str] = _HEAP) -> None:
        self._directory = directory
        self.port = free_port()
        properties = directory / "server.properties"
        properties.write_text(_properties(directory, self.port, free_port(), configs))
        java = ["java", "-cp", f"{LIBRARIES}/*"]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)],
            check=True,
            capture_output=True,
            timeout=_FORMAT_SECONDS_MAX,
        )
        self.process = ServerProcess([java[0], *heap, *java[1:], "kafka.Kafka", str(properties)], directory)

    def make_queue(self, name: str, durability: Durability) -> None:
        kafka_wire.make_topic(self.port, name, _CONFIGS[durability])

    def publisher(self, name: str, durability: Durability) -> Conversation:
        return kafka_wire.producing(self.port, name)

    def fetcher(self, name: str, records: int) -> Conversation:
        return kafka_wire.fetching(self.port, name, records=records)

    def produce_many(self, name: str, durability: Durability, count: int) -> list[Run]:
        return librdkafka.produce_many(self.port, name, count, self.process, self._directory)

    def consume_many(self, name: str, count: int) -> list[Run]:
        return librdkafka.consume_many(self.port, name, count, self.process)

    def stop(self) -> None:
        self.process.stop()


class Kafka:
    name = "Apache Kafka"
    durabilities: Mapping[Durability, str] = {
        Durability.NOT_SYNCED: "its default",
        Durability.SYNCED: "flush.messages=1",
    }

    def why_not_here(self) -> str | None:
        if not shutil.which("java"):
            return "no java here"
        return None if any(LIBRARIES.glob("kafka_*.jar")) else f"not fetched: {HOW}"

    def version(self) -> str:
        return next(LIBRARIES.glob("kafka_*.jar")).stem.rpartition("-")[2]

    def start(self, directory: Path) -> RunningKafka:
        return RunningKafka(directory)


def _properties(directory: Path, port: int, controller_port: int, configs: Mapping[str, str]) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": directory / "data",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        **configs,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
