"""A fuzz run against one broker process: sessions side by side, a neighbour that must not notice, memory watched.

Invariant: where a report has no findings, every answer was as foreseen, the broker told of no bug of its own, and the
neighbour's records are all there. A finding has the session's number and its bytes in its notes.
Driven by test_fuzz.py and __main__.py.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from millpond.protocol.messages.metadata import MetadataRequest
from tests.fuzz.checks import Finding
from tests.fuzz.neighbour import Neighbour, PatientClient
from tests.fuzz.sessions import HEX_MAX, Plan, make_plan, run_session
from tests.fuzz.world import PARTITIONS, TOPICS, World
from tests.interop.broker_process import BrokerProcess

SESSIONS_AT_ONCE = 24
GARDEN_SECONDS = 0.1
"""How often what fuzzing deleted is made again."""
BROKER_CONFIGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "group.max.session.timeout.ms": "10000",
}
METADATA_VERSION = 12
KIND_CHARS = 160
"""How much of its text tells one kind of finding from another, numbers left out."""


@dataclass(slots=True)
class Report:
    frames: int = 0
    """That reached the broker: answered, or the end of their connection."""
    sessions: int = 0
    rounds: int = 0
    """Of the neighbour."""
    neighbour_seconds_max: float = 0.0
    memory: list[tuple[int, int]] = field(default_factory=list)
    """After so many frames, so many bytes; one line for each tenth of the run."""
    findings: dict[str, Finding] = field(default_factory=dict)
    """The first of each kind."""
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, finding: Finding) -> None:
        kind = re.sub(r"[0-9]+", "#", str(finding))[:KIND_CHARS]
        self.findings.setdefault(kind, finding)
        self.counts[kind] += 1


class Gardener:
    """Makes anew what fuzzing deleted, and tells the world its ids."""

    def __init__(self, port: int, world: World) -> None:
        self._client = PatientClient(host="127.0.0.1", port=port, client_id="gardener", rng=random.Random(1))
        self._client._versions[MetadataRequest.api_key] = METADATA_VERSION
        self._world = world

    async def tend(self) -> None:
        for name, configs in TOPICS.items():
            await self._client.create_topic(name, partitions=PARTITIONS, configs=configs)
        answer = await self._client.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        for topic in answer.topics:
            if topic.name in TOPICS:
                self._world.topic_ids[topic.name] = topic.topic_id

    async def live(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.tend()
            await asyncio.sleep(GARDEN_SECONDS)

    def close(self) -> None:
        self._client.close()


def private_bytes(broker: BrokerProcess) -> int:
    """The broker's memory, without files it has mapped."""
    pid = next(told["pid"] for told in reversed(broker.told) if told.get("event") == "broker_started")
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def fuzz(
    broker: BrokerProcess,
    *,
    seed: int,
    frames: int,
    sessions: range | None = None,
    on_progress: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Until so many frames have reached the broker, or through those sessions only."""
    return asyncio.run(_Run(broker, seed, frames, sessions, on_progress).run())


class _Run:
    def __init__(
        self,
        broker: BrokerProcess,
        seed: int,
        frames: int,
        sessions: range | None,
        on_progress: Callable[[Report], None],
    ) -> None:
        self._broker = broker
        self._seed = seed
        self._frames = frames
        self._numbers = iter(sessions if sessions is not None else range(1 << 60))
        self._on_progress = on_progress
        self._world = World()
        self._report = Report()
        self._stop = asyncio.Event()
        self._bugs_seen = 0

    async def run(self) -> Report:
        neighbour = Neighbour(self._broker.port, self._seed)
        gardener = Gardener(self._broker.port, self._world)
        await neighbour.move_in()
        await gardener.tend()
        async with asyncio.TaskGroup() as beside:
            beside.create_task(neighbour.live(self._stop))
            beside.create_task(gardener.live(self._stop))
            async with asyncio.TaskGroup() as fuzzers:
                for _ in range(SESSIONS_AT_ONCE):
                    fuzzers.create_task(self._fuzz())
            self._stop.set()
        assert await neighbour.read_all() == neighbour.values
        neighbour.close()
        gardener.close()
        report = self._report
        report.rounds, report.neighbour_seconds_max = len(neighbour.values), neighbour.seconds_max
        return report

    async def _fuzz(self) -> None:
        report = self._report
        for number in self._numbers:
            if report.frames >= self._frames:
                return
            plan = make_plan(self._seed, number, self._world)
            try:
                reached = await run_session(plan, self._broker.port, self._world)
                report.frames += reached
            except Finding as finding:
                report.add(finding)
            report.sessions += 1
            self._look_at_bugs(plan)
            if report.frames >= self._frames * (len(report.memory) + 1) / 10:
                report.memory.append((report.frames, private_bytes(self._broker)))
            self._on_progress(report)

    def _look_at_bugs(self, plan: Plan) -> None:
        bugs = self._broker.bugs
        for bug in bugs[self._bugs_seen :]:
            finding = Finding(f"the broker tells of a bug: {bug.get('error') or bug}")
            finding.add_note(str(bug))
            finding.add_note(f"near session {plan.number}; sent: {plan.stream[:HEX_MAX].hex()}")
            self._report.add(finding)
        self._bugs_seen = len(bugs)
