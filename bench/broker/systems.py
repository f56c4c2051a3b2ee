"""What every broker that is measured can be asked, whoever made it. Driven by suite.py.

A system that is not on this machine says why, and is left out. A queue is whatever keeps messages in order there: a
partition, a stream, a queue.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from bench.broker.driving import Conversation
from bench.broker.figures import Durability
from bench.broker.processes import ServerProcess, own_cpu_seconds


@dataclass(frozen=True, slots=True)
class Run:
    """Many messages through one client."""

    workload: str
    messages: int
    seconds: float
    client_cpu_seconds: float
    server_cpu_seconds: float


class Running(Protocol):
    port: int
    process: ServerProcess

    def make_queue(self, name: str, durability: Durability) -> None:
        """Raises `NotReady` or `OSError` while the server is still starting."""

    def publisher(self, name: str, durability: Durability) -> Conversation: ...

    def produce_many(self, name: str, durability: Durability, count: int) -> list[Run]:
        """One run for each way there is; each leaves `count` messages or more."""

    def consume_many(self, name: str, count: int) -> list[Run]:
        """The first `count` messages of the queue, once for each way there is."""

    def stop(self) -> None: ...


@runtime_checkable
class ServesFetches(Protocol):
    """One where reading is a request as well."""

    def fetcher(self, name: str, records: int) -> Conversation:
        """Reads one record a request from all over a queue of so many."""


class System(Protocol):
    name: str
    durabilities: Mapping[Durability, str]
    """Those that one server of it has at once, and by which setting."""

    def why_not_here(self) -> str | None: ...

    def version(self) -> str:
        """Of one that is here."""

    def start(self, directory: Path) -> Running:
        """Returns when the process runs, before it is ready."""


def timed_run(workload: str, messages: int, process: ServerProcess, work: Callable[[], None]) -> Run:
    server_began, client_began, began = process.cpu_seconds(), own_cpu_seconds(), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    client, server = own_cpu_seconds() - client_began, process.cpu_seconds() - server_began
    return Run(workload, messages, seconds, client, server)
