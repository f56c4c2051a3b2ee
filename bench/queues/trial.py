"""One system's queues under measurement: a server that stays up, and a new queue for each run.

Invariant: after `close` the server is gone and its data with it. Driven by suite.py.
"""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

import uvloop

from bench.broker.figures import CORES, MILLPOND, RATES, Figure, Section
from bench.broker.processes import NotReady, own_cpu_seconds
from bench.broker.systems import Running
from bench.measuring import Target
from bench.queues.flowing import Flow, Flowed, Receiver, Sender
from bench.queues.systems import Place, QueueSystem
from bench.workspace import Workspace

AT_ONCE: Final = 500
CONSUMERS: Final = (1, 8)
BATCHED_PER_S_MIN: Final = 50_000
_ABOUT = "100 B messages through one queue: sent and confirmed, received, acknowledged; as many send as receive."
BATCHED = Section("queue, batched", f"{_ABOUT} {AT_ONCE} at a time. {CORES}", RATES, "messages_per_s")
SINGLE = Section("queue, one by one", f"{_ABOUT} Each one waits for its answer. {CORES}", RATES, "messages_per_s")
SECTIONS: Final = {section.name: section for section in (BATCHED, SINGLE)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    name: str
    rounds: int
    seconds: float
    """How long messages are sent in each run."""
    backlog: int
    """Messages behind a slow one."""


FULL = Scale(name="full", rounds=5, seconds=2.0, backlog=10_000_000)
QUICK = Scale(name="quick", rounds=1, seconds=0.3, backlog=1_000_000)


@dataclass(frozen=True, slots=True)
class Stage:
    section: str
    consumers: int

    @property
    def title(self) -> str:
        return f"{self.section}, {'1 consumer' if self.consumers == 1 else f'{self.consumers} consumers'}"


STAGES: Final = [Stage(section, consumers) for section in SECTIONS for consumers in CONSUMERS]


class Trial:
    def __init__(self, measured: QueueSystem, place: Workspace, scale: Scale) -> None:
        self.measured = measured
        self._place = place
        self._scale = scale
        self._stack = ExitStack()
        self._server: Running | None = None
        self._names = (f"queue-{number:03}" for number in count())
        self.failure: str | None = None

    @property
    def name(self) -> str:
        return self.measured.system.name

    def close(self) -> None:
        self._stack.close()

    def run(self, stage: Stage) -> list[Figure]:
        """A peer that fails is left out from there on; Millpond may not fail."""
        if self.failure or self.measured.is_batched is (stage.section != BATCHED.name):
            return []
        try:
            return [self._measure(stage)]
        except (OSError, RuntimeError, EOFError, NotReady) as error:
            if self.name == MILLPOND:
                raise
            self.failure = f"failed at {stage.title}: {error!r}"
            self.close()
            return []

    def _measure(self, stage: Stage) -> Figure:
        measured, server = self.measured, self._running()
        place = Place(server, next(self._names), AT_ONCE if stage.section == BATCHED.name else 1)
        server.process.wait_for(partial(measured.make, server, place.queue, measured.durability))
        flowed, client_cpu, server_cpu = uvloop.run(self._flow(place, stage.consumers))
        how = "1 consumer" if stage.consumers == 1 else f"{stage.consumers} consumers"
        is_ours = self.name == MILLPOND and not measured.client
        return Figure(
            section=stage.section,
            system=self.name,
            durability=measured.durability,
            setting=measured.setting,
            workload=f"{how}, {measured.client}" if measured.client else how,
            values={
                "messages_per_s": flowed.messages / flowed.seconds,
                "client_cores": client_cpu / flowed.seconds,
                "server_cores": server_cpu / flowed.seconds,
                "server_us_per_message": server_cpu / flowed.messages * 1e6,
            },
            targets={"messages_per_s": Target("value", least=BATCHED_PER_S_MIN)}
            if is_ours and stage.section == BATCHED.name
            else {},
        )

    async def _flow(self, place: Place, consumers: int) -> tuple[Flowed, float, float]:
        """With the CPU seconds of client and server."""
        process = place.server.process
        measured = self.measured
        senders: list[Sender] = []
        receivers: list[Receiver] = []
        try:
            receivers += await asyncio.gather(*(measured.receive(place, number) for number in range(consumers)))
            senders += [await measured.send(place, measured.durability) for _ in range(consumers)]
            client, server = own_cpu_seconds(), process.cpu_seconds()
            flowed = await Flow(at_once=place.at_once, seconds=self._scale.seconds).run(senders, receivers)
            return flowed, own_cpu_seconds() - client, process.cpu_seconds() - server
        finally:
            for sender in senders:
                sender.close()
            for receiver in receivers:
                receiver.close()

    def _running(self) -> Running:
        if self._server is None:
            directory = self._stack.enter_context(self._place.directory())
            self._server = self.measured.system.start(directory)
            self._stack.callback(self._server.stop)
        return self._server
