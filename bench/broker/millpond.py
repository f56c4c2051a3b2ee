"""Millpond itself: `millpond up`, as its users run it."""

import sys
from collections.abc import Mapping
from pathlib import Path

from bench.broker import kafka_wire, librdkafka
from bench.broker.driving import Conversation
from bench.broker.figures import MILLPOND, Durability
from bench.broker.processes import ServerProcess, free_port
from bench.broker.systems import Run
from millpond import __version__

_FLUSH = {Durability.SYNCED: "group", Durability.NOT_SYNCED: "none"}

_ENVIRON = {"PYTHONDONTWRITEBYTECODE": ""}
"""An installed Millpond is compiled once. One that may not keep what it compiled does so at every start."""


class RunningMillpond:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()
        doors = ["--kafka", f"127.0.0.1:{self.port}", "--http", f"127.0.0.1:{free_port()}"]
        command = [sys.executable, "-m", "millpond.cli", "up", "--log-format", "json", *doors]
        self.process = ServerProcess([*command, "--data-dir", str(directory / "data")], directory, _ENVIRON)

    def make_queue(self, name: str, durability: Durability) -> None:
        kafka_wire.make_topic(self.port, name, {"millpond.flush": _FLUSH[durability]})

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


class Millpond:
    name = MILLPOND
    durabilities: Mapping[Durability, str] = {
        Durability.SYNCED: "millpond.flush=group",
        Durability.NOT_SYNCED: "millpond.flush=none",
    }

    def why_not_here(self) -> str | None:
        return None

    def version(self) -> str:
        return __version__

    def start(self, directory: Path) -> RunningMillpond:
        return RunningMillpond(directory)
