"""One system under measurement, step by step: started a few times, then one server for all the rest.

Invariant: after `close` its server is gone and its data with it. Whoever drives it calls `close`, however it ends.
Driven by suite.py, which lets all systems take their turns at each stage.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count

from bench.broker.driving import Conversation, Driven, drive
from bench.broker.figures import CONSUME, LEAST_CPU, MILLPOND, PRODUCE, REQUESTS, START, WAITING, Durability, Figure
from bench.broker.processes import NotReady
from bench.broker.systems import Run, Running, ServesFetches, System
from bench.measuring import Target
from bench.workspace import Workspace

_SETTLE_SECONDS = 1.0
_REQUEST_CONNECTIONS = 4
_REQUEST_WINDOW = 32
_REQUESTS_MAX = 10_000_000
_TARGETS = {
    PRODUCE.name: {"messages_per_s": Target("value", least=1_000_000)},
    CONSUME.name: {"messages_per_s": Target("value", least=1_000_000)},
    REQUESTS.name: {"server_us_per_request": Target("value", most=40)},
    START.name: {"first_ack_s": Target("value", most=0.7), "idle_mb": Target("value", most=80)},
}
"""Millpond's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    name: str
    rounds: int
    request_rounds: int
    messages: int
    """In one batched run."""
    warm_up_seconds: float
    request_seconds: float
    waiting_seconds: float
    connections: tuple[int, ...] = (1, 8, 64)


FULL = Scale(
    name="full",
    rounds=3,
    request_rounds=7,
    messages=1_000_000,
    warm_up_seconds=3.0,
    request_seconds=1.0,
    waiting_seconds=0.7,
)
QUICK = Scale(
    name="quick",
    rounds=1,
    request_rounds=1,
    messages=10_000,
    warm_up_seconds=0.1,
    request_seconds=0.2,
    waiting_seconds=0.2,
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Something all systems do, one after the other, as often as there are rounds."""

    title: str
    rounds: int
    run: Callable[["Trial"], list[Figure]]


def stages(scale: Scale) -> Iterator[Stage]:
    yield Stage("start", scale.rounds, Trial.measure_start)
    yield Stage("warm-up", 1, Trial.warm_up)
    yield Stage("produce", scale.rounds, Trial.measure_produce)
    yield Stage("consume", scale.rounds, Trial.measure_consume)
    yield Stage("requests", scale.request_rounds, Trial.measure_requests)
    for connections in scale.connections:
        run = partial(Trial.measure_waiting, connections=connections)
        yield Stage(f"{connections} waiting", scale.rounds, run)


class Trial:
    def __init__(self, system: System, place: Workspace, scale: Scale) -> None:
        self.system = system
        self._place = place
        self._scale = scale
        self._stack = ExitStack()
        self._server: Running | None = None
        self._names = (f"queue-{number:03}" for number in count())
        self._filled: list[tuple[str, int]] = []
        """Queues to consume, and how many messages each has at least."""
        self.failure: str | None = None

    def close(self) -> None:
        self._stack.close()

    def run(self, stage: Stage) -> list[Figure]:
        """A peer that fails is left out from there on; Millpond may not fail."""
        if self.failure:
            return []
        try:
            return stage.run(self)
        except (OSError, RuntimeError, EOFError, NotReady) as error:
            if self.system.name == MILLPOND:
                raise
            self.failure = f"failed at {stage.title}: {error}"
            self.close()
            return []

    # --- Stages ----------------------------------------------------------------------------------

    def measure_start(self) -> list[Figure]:
        with ExitStack() as stack:
            server = self._start(stack)
            server.process.wait_for(partial(_publish_first, server, next(self._names), self._first_durability))
            first_ack_s = time.perf_counter() - server.process.began
            time.sleep(_SETTLE_SECONDS)
            values = {"first_ack_s": first_ack_s, "idle_mb": server.process.resident_bytes() / 1e6}
        return [self._figure(START.name, None, "", values)]

    def warm_up(self) -> list[Figure]:
        """Compilers that compile while they run have done so, and caches are filled."""
        server = self._server = self._start(self._stack)
        name, durability = next(self._names), self._first_durability
        server.process.wait_for(partial(_publish_first, server, name, durability))
        publishers = [server.publisher(name, durability) for _ in range(_REQUEST_CONNECTIONS)]
        self._drive(publishers, _REQUEST_WINDOW, self._scale.warm_up_seconds)
        return []

    def measure_produce(self) -> list[Figure]:
        figures = []
        for durability in self.system.durabilities:
            name = self._queue(durability)
            runs = self._running.produce_many(name, durability, self._scale.messages)
            self._filled.append((name, min(run.messages for run in runs)))
            figures += [self._figure_of(PRODUCE.name, durability, run) for run in runs]
        return figures

    def measure_consume(self) -> list[Figure]:
        name, messages = self._filled.pop()
        return [self._figure_of(CONSUME.name, None, run) for run in self._running.consume_many(name, messages)]

    def measure_requests(self) -> list[Figure]:
        """Of those that speak Kafka's protocol; what the others do with a request is among the batched."""
        server = self._running
        if not isinstance(server, ServesFetches):
            return []
        figures = []
        name, produced = "", 0
        for durability in self.system.durabilities:
            name = self._queue(durability)
            publishers = [self._running.publisher(name, durability) for _ in range(_REQUEST_CONNECTIONS)]
            produced, values = self._requests(publishers)
            figures.append(self._figure(REQUESTS.name, durability, "produce", values))
        fetchers = [server.fetcher(name, produced) for _ in range(_REQUEST_CONNECTIONS)]
        return [*figures, self._figure(REQUESTS.name, None, "fetch", self._requests(fetchers)[1])]

    def measure_waiting(self, *, connections: int) -> list[Figure]:
        how = "1 connection" if connections == 1 else f"{connections} connections"
        return [
            self._figure(WAITING.name, durability, how, self._waiting(durability, connections))
            for durability in self.system.durabilities
        ]

    # --- Parts of stages -------------------------------------------------------------------------

    @property
    def _running(self) -> Running:
        assert self._server is not None, "the warm-up starts it"
        return self._server

    @property
    def _first_durability(self) -> Durability:
        return next(iter(self.system.durabilities))

    def _start(self, stack: ExitStack) -> Running:
        directory = stack.enter_context(self._place.directory())
        server = self.system.start(directory)
        stack.callback(server.stop)
        return server

    def _queue(self, durability: Durability) -> str:
        name = next(self._names)
        self._running.process.wait_for(partial(self._running.make_queue, name, durability))
        return name

    def _requests(self, conversations: Sequence[Conversation]) -> tuple[int, dict[str, float]]:
        driven, server_cpu = self._drive(conversations, _REQUEST_WINDOW, self._scale.request_seconds)
        server_us = server_cpu / driven.requests * 1e6
        values = {
            "requests_per_s": driven.requests / driven.seconds,
            "client_cores": driven.client_cpu_seconds / driven.seconds,
            "server_cores": server_cpu / driven.seconds,
            "server_us_per_request": server_us,
            LEAST_CPU.quantity: server_us,
        }
        return driven.requests, values

    def _waiting(self, durability: Durability, connections: int) -> dict[str, float]:
        name = self._queue(durability)
        publishers = [self._running.publisher(name, durability) for _ in range(connections)]
        driven, server_cpu = self._drive(publishers, 1, self._scale.waiting_seconds)
        return {
            "requests_per_s": driven.requests / driven.seconds,
            "p50_us": driven.microseconds(0.5),
            "p99_us": driven.microseconds(0.99),
            "server_us_per_request": server_cpu / driven.requests * 1e6,
        }

    def _drive(self, conversations: Sequence[Conversation], window: int, seconds: float) -> tuple[Driven, float]:
        process = self._running.process
        try:
            began = process.cpu_seconds()
            driven = drive(conversations, window=window, seconds=seconds, requests_max=_REQUESTS_MAX)
            return driven, process.cpu_seconds() - began
        finally:
            for each in conversations:
                each.socket.close()

    def _figure_of(self, section: str, durability: Durability | None, run: Run) -> Figure:
        values = {
            "messages_per_s": run.messages / run.seconds,
            "client_cores": run.client_cpu_seconds / run.seconds,
            "server_cores": run.server_cpu_seconds / run.seconds,
            "server_us_per_message": run.server_cpu_seconds / run.messages * 1e6,
        }
        return self._figure(section, durability, run.workload, values)

    def _figure(self, section: str, durability: Durability | None, workload: str, values: dict[str, float]) -> Figure:
        return Figure(
            section=section,
            system=self.system.name,
            durability=durability,
            setting=self.system.durabilities[durability] if durability else "",
            workload=workload,
            values=values,
            targets=_TARGETS.get(section, {}) if self.system.name == MILLPOND else {},
        )


def _publish_first(server: Running, name: str, durability: Durability) -> None:
    server.make_queue(name, durability)
    conversation = server.publisher(name, durability)
    try:
        drive([conversation], window=1, seconds=0, requests_max=1)
    finally:
        conversation.socket.close()
