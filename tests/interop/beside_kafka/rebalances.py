"""`python -m tests.interop.beside_kafka.rebalances [ROUNDS]`: how long a member's going and coming takes a group, with
both brokers and the same clients. Both have their own defaults, but for the time that an empty group gathers: where
that is long, members have rested before the first one goes, and librdkafka joins at most once a second.

Kafka is fetched by `make peers`; where it is not here, this says so and ends with 3. Times are printed, never judged.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.table import Table

from bench.broker.peers.kafka import Kafka, RunningKafka
from bench.tables import make_console
from tests.interop.beside_kafka.__main__ import NOT_HERE, SMALL_HEAP, answers
from tests.interop.beside_kafka.sides import wait_for_coordinators
from tests.interop.broker_process import running_broker
from tests.interop.comings_and_goings import PARTITIONS, Leaver, come_and_go
from tests.interop.confluent import new_topic
from tests.interop.facts import new_name
from tests.interop.fetched import go_client
from tests.interop.flowing_group import Member, Story
from tests.interop.foreign_client import ForeignClient, ForeignMember
from tests.interop.test_rebalance import PROTOCOLS

ROUNDS = 3
GATHERING = {"group.initial.rebalance.delay.ms": "100"}
CACHE = Path(".pytest_cache") / "d"


@dataclass(frozen=True, slots=True)
class At:
    address: str


class Cache:
    """What fetched.py needs of pytest's."""

    def mkdir(self, name: str) -> Path:
        place = CACHE.absolute() / name
        place.mkdir(parents=True, exist_ok=True)
        return place


Join = Callable[[str, Story], Leaver]
Group = tuple[str, str, Callable[[str], Join]]
"""Client, protocol, and how its members join for a topic."""


def librdkafka_groups(broker: At) -> Iterator[Group]:
    for protocol, settings in PROTOCOLS.items():

        def joining(topic: str, settings: dict[str, object] = settings) -> Join:
            group = new_name("group")
            return lambda name, story: Member(broker, name, topic, story, group_id=group, **settings)

        yield "confluent-kafka", protocol, joining


def franz_groups(client: ForeignClient) -> Iterator[Group]:
    for protocol in ("classic", "consumer"):

        def joining(topic: str, protocol: str = protocol) -> Join:
            settings: dict[str, object] = {"group": new_name("group"), "protocol": protocol}
            return lambda name, story: ForeignMember(client, name, topic, story, settings)

        yield "franz-go", {"classic": "cooperative-sticky"}.get(protocol, protocol), joining


def measure(broker: At, rounds: int, found: dict[tuple[str, str], list[str]]) -> None:
    with ExitStack() as stack:
        groups = list(librdkafka_groups(broker))
        try:
            program = go_client(Cache())  # type: ignore[arg-type]
            client = stack.enter_context(closing(ForeignClient([str(program), broker.address], os.environ)))
            groups += franz_groups(client)
        except pytest.skip.Exception as skipped:
            make_console().print(f"without franz-go: {skipped}", markup=False)
        for name, protocol, joining in groups:
            left, joined = [], []
            for _ in range(rounds):
                topic = new_topic(broker, partitions=PARTITIONS)
                happened = come_and_go(broker, topic, joining(topic))
                left.append(happened.left.seconds)
                joined.append(happened.joined.seconds)
            found.setdefault((name, protocol), []).extend([spread(left), spread(joined)])


def spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"


def main() -> int:
    console = make_console()
    if why_not := Kafka().why_not_here():
        console.print(f"skipped: {why_not}", markup=False)
        return NOT_HERE
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    found: dict[tuple[str, str], list[str]] = {}
    with tempfile.TemporaryDirectory() as directory:
        with running_broker(Path(directory) / "millpond") as millpond:
            measure(At(millpond.address), rounds, found)
        (Path(directory) / "kafka").mkdir()
        kafka = RunningKafka(Path(directory) / "kafka", GATHERING, SMALL_HEAP)
        try:
            kafka.process.wait_for(lambda: answers(kafka.port))
            wait_for_coordinators(kafka.port)
            measure(At(f"127.0.0.1:{kafka.port}"), rounds, found)
        finally:
            kafka.stop()
    table = Table("client", "protocol", "Millpond: one left", "one joined", "Kafka: one left", "one joined")
    for (client, protocol), cells in found.items():
        table.add_row(client, protocol, *cells)
    console.print(table, markup=False)
    console.print(f"seconds: median of {rounds}, least to most; {Kafka().version()}", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
