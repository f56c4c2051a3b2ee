"""`python -m tests.interop.beside_kafka [SCENE ...]`: every scene with both brokers, and a table of what differs.

Kafka is fetched by `make peers`; where it is not here, this says so and ends with 3. Ends with 1 where an answer
differs and nobody has said why it should.
"""

import itertools
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.table import Table

from bench.broker.peers.kafka import Kafka, RunningKafka
from bench.broker.processes import NotReady
from bench.tables import make_console
from tests.interop.beside_kafka import classic_groups, consumer_groups, frames, records, settings, topics
from tests.interop.beside_kafka.deliberate import reason_for
from tests.interop.beside_kafka.sides import Scene, Seen, Side, versions_of, wait_for_coordinators
from tests.interop.broker_process import running_broker

SCENES: dict[str, Scene] = {
    **frames.SCENES,
    **records.SCENES,
    **topics.SCENES,
    **settings.SCENES,
    **classic_groups.SCENES,
    **consumer_groups.SCENES,
}
CONFIGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": str(classic_groups.MEMBERS_MAX),
    "group.consumer.max.size": str(classic_groups.MEMBERS_MAX),
    "offsets.topic.num.partitions": "4",
}
NOT_HERE, DIFFERENT = 3, 1
SMALL_HEAP = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
NOT_SAID = "is not there"
BROKE = "the scene broke"
FIELDS_SHOWN = 6
ATTEMPTS_MAX = 3


@contextmanager
def both(directory: Path) -> Iterator[tuple[int, int]]:
    """The ports of Kafka and of Millpond."""
    (directory / "kafka").mkdir()
    kafka = RunningKafka(directory / "kafka", CONFIGS, SMALL_HEAP)
    try:
        with running_broker(directory / "millpond", CONFIGS) as millpond:
            kafka.process.wait_for(lambda: answers(kafka.port))
            for port in (kafka.port, millpond.port):
                wait_for_coordinators(port)
            yield kafka.port, millpond.port
    finally:
        kafka.stop()


def answers(port: int) -> None:
    try:
        versions_of(port)
    except AssertionError as error:
        raise NotReady from error


def play(scene: Scene, port: int, versions: dict[int, int], topic: Callable[[], str]) -> dict[str, Seen]:
    side = Side(port, versions, topic)
    try:
        scene(side)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        side.write(f"{BROKE} on port {port}", f"{error!r} in {where.name}, line {where.lineno}")
    finally:
        side.close()
    return side.seen


def compare(name: str, kafka: int, millpond: int, common: dict[int, int]) -> tuple[int, dict[str, tuple[str, str]]]:
    """How many answers there are, and what differs.

    Kafka says that something is done a moment before all of it knows, so an answer may differ by chance. A scene where
    something differs that should not is played again; what does not differ every time is named, and not counted.
    """
    labels: list[str] = []
    differing: dict[str, tuple[str, str]] = {}
    unexplained: set[str] = set()
    for attempt in range(1, ATTEMPTS_MAX + 1):
        theirs, ours = (play(SCENES[name], port, common, names(f"{name} {attempt}")) for port in (kafka, millpond))
        labels = list(dict.fromkeys([*theirs, *ours]))
        said = {label: difference(theirs.get(label, {}), ours.get(label, {})) for label in labels}
        differing = {label: each for label, each in said.items() if each is not None}
        new = {label for label in differing if reason_for(name, label) is None}
        recurring = new if attempt == 1 else unexplained & new
        for label in sorted(unexplained ^ new) if attempt > 1 else ():
            make_console().print(f"by chance: {name}, {label}", markup=False)
            differing.pop(label, None)
        unexplained = recurring
        if not unexplained:
            break
    return len(labels), differing


def names(scene: str) -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{scene.replace(' ', '-')}-{next(numbers)}"


def main() -> int:
    console = make_console()
    if why_not := Kafka().why_not_here():
        console.print(f"skipped: {why_not}", markup=False)
        return NOT_HERE
    chosen = sys.argv[1:] or list(SCENES)
    if unknown := set(chosen) - set(SCENES):
        raise SystemExit(f"no scene {', '.join(sorted(unknown))}; there are: {', '.join(SCENES)}")
    table = Table("scene", "what", "Kafka", "Millpond", "on purpose, because", title="Where the answers differ")
    compared = unexplained = explained = 0
    with tempfile.TemporaryDirectory() as directory, both(Path(directory)) as (kafka, millpond):
        common = versions_of(kafka)
        for name in chosen:
            found, differing = compare(name, kafka, millpond, common)
            compared += found
            for label, said in differing.items():
                reason = reason_for(name, label)
                explained, unexplained = explained + bool(reason), unexplained + (not reason)
                table.add_row(name, label, *said, reason or "")
    if table.row_count and console.is_terminal:
        console.print(table, markup=False)
    elif table.row_count:
        for row in zip(*(column.cells for column in table.columns), strict=True):
            console.print(" | ".join(map(str, row)), markup=False, soft_wrap=True)
    console.print(f"{compared} answers compared: {unexplained} differ, {explained} more on purpose", markup=False)
    return DIFFERENT if unexplained else 0


def difference(theirs: Seen, ours: Seen) -> tuple[str, str] | None:
    """The fields that differ, on either side; what only one side has, only where nothing else tells them apart."""
    ways = [way for way in {**theirs, **ours} if theirs.get(way, NOT_SAID) != ours.get(way, NOT_SAID)]
    shared = [way for way in ways if way in theirs and way in ours]
    told = (shared or ways)[:FIELDS_SHOWN]
    if not told:
        return None
    first, second = (
        ", ".join(f"{way.rpartition('.')[2]} {said.get(way, NOT_SAID)}".strip() for way in told)
        for said in (theirs, ours)
    )
    return first, second


if __name__ == "__main__":
    sys.exit(main())
