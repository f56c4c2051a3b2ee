"""One system under measurement, step by step. Its server lives from the second step to the last.

Invariant: after `close` its server is gone and its data with it. Whoever drives it calls `close`, however it ends.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count

from bench.broker.driving import Conversation, Driven, drive
from bench.broker.figures import CONSUME, MILLPOND, PRODUCE, REQUESTS, START, WAITING, Durability, Figure
from bench.broker.processes import ServerProcess
from bench.broker.systems import Run, Running, System
from bench.measuring import Measurement, Target
from bench.workspace import Workspace

_SETTLE_SECONDS = 1.0
_REQUEST_CONNECTIONS = 4
_REQUEST_WINDOW = 32
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
    repetitions: int
    messages: int
    """In one batched run."""
    warm_up_seconds: float
    request_seconds: float
    waiting_seconds: float
    connections: tuple[int, ...]
    requests_max: int = 10_000_000


FULL = Scale(
    name="full",
    repetitions=3,
    messages=1_000_000,
    warm_up_seconds=2.0,
    request_seconds=3.0,
    waiting_seconds=2.0,
    connections=(1, 8, 64),
)
QUICK = Scale(
    name="quick",
    repetitions=1,
    messages=10_000,
    warm_up_seconds=0.1,
    request_seconds=0.2,
    waiting_seconds=0.2,
    connections=(1, 8, 64),
)


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

    def measurements(self) -> Iterator[Measurement[Figure]]:
        """To be run in this order, all of them."""
        system, scale = self.system, self._scale
        yield self._step("start", self._measure_start)
        yield self._step("warm-up", self._warm_up)
        for durability in system.durabilities:
            yield self._step(f"produce, {_said(durability)}", partial(self._measure_produce, durability))
        yield self._step("consume", self._measure_consume)
        for durability in system.durabilities:
            yield self._step(f"requests, {_said(durability)}", partial(self._measure_requests, durability))
        for durability in system.durabilities:
            for connections in scale.connections:
                title = f"{connections} waiting, {_said(durability)}"
                yield self._step(title, partial(self._measure_waiting, durability, connections))
        yield self._step("stop", self._stop)

    def _step(self, title: str, run: Callable[[], list[Figure]]) -> Measurement[Figure]:
        return Measurement(f"{self.system.name}: {title}", partial(self._guarded, run))

    def _guarded(self, run: Callable[[], list[Figure]]) -> list[Figure]:
        """A peer that fails is left out from there on; Millpond may not fail."""
        if self.failure:
            return []
        try:
            return run()
        except (OSError, RuntimeError, EOFError) as error:
            if self.system.name == MILLPOND:
                raise
            self.failure = f"failed: {error}"
            self.close()
            return []

    # --- Steps -----------------------------------------------------------------------------------

    def _measure_start(self) -> list[Figure]:
        durability = next(iter(self.system.durabilities))
        first_acks, residents = [], []
        for _ in range(self._scale.repetitions):
            with ExitStack() as stack:
                server = self._started(stack)
                name = next(self._names)
                server.process.wait_for(partial(_publish_first, server, name, durability))
                first_acks.append(time.perf_counter() - server.process.began)
                time.sleep(_SETTLE_SECONDS)
                residents.append(server.process.resident_bytes() / 1e6)
        values = {"first_ack_s": statistics.median(first_acks), "idle_mb": statistics.median(residents)}
        return [self._figure(START.name, None, "", values)]

    def _warm_up(self) -> list[Figure]:
        """Compilers that compile while they run have done so, and caches are filled."""
        server = self._server = self._started(self._stack)
        durability = next(iter(self.system.durabilities))
        name = next(self._names)
        server.process.wait_for(partial(_publish_first, server, name, durability))
        publish = partial(server.publisher, name, durability)
        self._drive([publish() for _ in range(_REQUEST_CONNECTIONS)], _REQUEST_WINDOW, self._scale.warm_up_seconds)
        return []

    def _measure_produce(self, durability: Durability) -> list[Figure]:
        runs: list[Run] = []
        for _ in range(self._scale.repetitions):
            name = self._queue(durability)
            made = self._running.produce_many(name, durability, self._scale.messages)
            self._filled.append((name, min(run.messages for run in made)))
            runs += made
        return self._figures_of(PRODUCE.name, durability, runs)

    def _measure_consume(self) -> list[Figure]:
        runs: list[Run] = []
        for name, messages in self._filled[: self._scale.repetitions]:
            runs += self._running.consume_many(name, messages)
        return self._figures_of(CONSUME.name, None, runs)

    def _measure_requests(self, durability: Durability) -> list[Figure]:
        """Of those that speak Kafka's protocol; what the others do with a request is among the batched."""
        name = self._queue(durability)
        if self._running.fetcher(name, 1) is None:
            return []
        publishers = [self._running.publisher(name, durability) for _ in range(_REQUEST_CONNECTIONS)]
        produced, values = self._requests(publishers)
        figures = [self._figure(REQUESTS.name, durability, "produce", values)]
        if durability is Durability.NOT_SYNCED:
            fetchers = [self._running.fetcher(name, produced) for _ in range(_REQUEST_CONNECTIONS)]
            _, values = self._requests([each for each in fetchers if each])
            figures.append(self._figure(REQUESTS.name, None, "fetch", values))
        return figures

    def _requests(self, conversations: Sequence[Conversation]) -> tuple[int, dict[str, float]]:
        driven, server_cpu = self._drive(conversations, _REQUEST_WINDOW, self._scale.request_seconds)
        values = {
            "requests_per_s": driven.requests / driven.seconds,
            "client_cores": driven.client_cpu_seconds / driven.seconds,
            "server_cores": server_cpu / driven.seconds,
            "server_us_per_request": server_cpu / driven.requests * 1e6,
        }
        return driven.requests, values

    def _measure_waiting(self, durability: Durability, connections: int) -> list[Figure]:
        name = self._queue(durability)
        publishers = [self._running.publisher(name, durability) for _ in range(connections)]
        driven, server_cpu = self._drive(publishers, 1, self._scale.waiting_seconds)
        values = {
            "requests_per_s": driven.requests / driven.seconds,
            "p50_us": driven.microseconds(0.5),
            "p99_us": driven.microseconds(0.99),
            "server_us_per_request": server_cpu / driven.requests * 1e6,
        }
        return [self._figure(WAITING.name, durability, f"{connections} connection{'s' * (connections > 1)}", values)]

    def _stop(self) -> list[Figure]:
        self.close()
        return []

    # --- Parts of steps --------------------------------------------------------------------------

    @property
    def _running(self) -> Running:
        assert self._server is not None, "the warm-up starts it"
        return self._server

    def _started(self, stack: ExitStack) -> Running:
        directory = stack.enter_context(self._place.directory())
        server = self.system.start(directory)
        stack.callback(server.stop)
        return server

    def _queue(self, durability: Durability) -> str:
        name = next(self._names)
        self._running.process.wait_for(partial(_publish_first, self._running, name, durability, publish=False))
        return name

    def _drive(self, conversations: Sequence[Conversation], window: int, seconds: float) -> tuple[Driven, float]:
        process: ServerProcess = self._running.process
        try:
            began = process.cpu_seconds()
            driven = drive(conversations, window=window, seconds=seconds, requests_max=self._scale.requests_max)
            return driven, process.cpu_seconds() - began
        finally:
            for each in conversations:
                each.socket.close()

    def _figures_of(self, section: str, durability: Durability | None, runs: Sequence[Run]) -> list[Figure]:
        """The median run of each workload."""
        by_workload: defaultdict[str, list[Run]] = defaultdict(list)
        for run in runs:
            by_workload[run.workload].append(run)
        figures = []
        for workload, each in by_workload.items():
            run = sorted(each, key=lambda run: run.messages / run.seconds)[len(each) // 2]
            values = {
                "messages_per_s": run.messages / run.seconds,
                "client_cores": run.client_cpu_seconds / run.seconds,
                "server_cores": run.server_cpu_seconds / run.seconds,
                "server_us_per_message": run.server_cpu_seconds / run.messages * 1e6,
            }
            figures.append(self._figure(section, durability, workload, values))
        return figures

    def _figure(self, section: str, durability: Durability | None, workload: str, values: dict[str, float]) -> Figure:
        ours = self.system.name == MILLPOND
        return Figure(
            section=section,
            system=self.system.name,
            durability=durability,
            workload=workload,
            values=values,
            targets=_TARGETS.get(section, {}) if ours else {},
            setting=self.system.durabilities[durability] if durability else "",
        )


def _publish_first(server: Running, name: str, durability: Durability, *, publish: bool = True) -> None:
    server.make_queue(name, durability)
    if publish:
        conversation = server.publisher(name, durability)
        try:
            drive([conversation], window=1, seconds=0, requests_max=1)
        finally:
            conversation.socket.close()


def _said(durability: Durability) -> str:
    return "synced" if durability is Durability.SYNCED else "not synced"
