"""All that is measured of a cluster of three brokers, in order, and how it is shown. Driven by bench/__main__.py."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from bench.broker.processes import OthersLoad
from bench.cluster import catching_up, gaps, producing
from bench.cluster.cluster import RunningCluster
from bench.cluster.producing import Way
from bench.measuring import Measurement, Row
from bench.tables import print_tables, progress
from bench.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    name: str
    kills: int
    messages: int
    rate_rounds: int
    rate_seconds: float
    """In each round."""
    missed_megabytes: int


FULL = Scale(name="full", kills=30, messages=500_000, rate_rounds=5, rate_seconds=2.0, missed_megabytes=500)
QUICK = Scale(name="quick", kills=1, messages=10_000, rate_rounds=1, rate_seconds=0.3, missed_megabytes=2)
RATE = 10_000
WAYS_AT_A_RATE = (Way(1, 1), Way(1, 5), Way(3, 1), Way(3, 5))
"""5 ms is librdkafka's own linger."""


def measure(console: Console, place: Workspace, *, quick: bool) -> dict[str, Any]:
    scale = QUICK if quick else FULL
    load = OthersLoad()
    rows: list[Row] = []
    measurements = [
        Measurement("throughput and latency", lambda: _speed(place, scale)),
        Measurement(f"catching up on {scale.missed_megabytes} MB", lambda: _catching_up(place, scale)),
        Measurement(f"{scale.kills} kills, then a restart in order", lambda: _gaps(place, scale)),
    ]
    with progress(console, measurements) as each:
        for measurement in each:
            rows += measurement.run()
    print_tables(console, rows)
    others_cores = load.cores()
    console.print(f"Others used {others_cores:.1f} cores of this machine meanwhile.")
    return {"scale": scale.name, "others_cores": others_cores, "rows": [row.document() for row in rows]}


@contextmanager
def _running(place: Workspace) -> Iterator[RunningCluster]:
    with place.directory() as directory:
        cluster = RunningCluster(directory, {})
        try:
            yield cluster
        finally:
            cluster.stop()


def _speed(place: Workspace, scale: Scale) -> list[Row]:
    with _running(place) as cluster, place.directory() as directory:
        return [
            *producing.at_a_rate(
                cluster,
                directory,
                messages_per_s=RATE,
                rounds=scale.rate_rounds,
                seconds=scale.rate_seconds,
                ways=WAYS_AT_A_RATE,
            ),
            *producing.batched(cluster, directory, messages=scale.messages),
        ]


def _catching_up(place: Workspace, scale: Scale) -> list[Row]:
    with _running(place) as cluster, place.directory() as directory:
        return catching_up.catching_up(cluster, directory, megabytes=scale.missed_megabytes)


def _gaps(place: Workspace, scale: Scale) -> list[Row]:
    with _running(place) as cluster:
        rows = gaps.rows(gaps.failovers(cluster, "kills", kills=scale.kills))
        gap_s = gaps.restart_gap(cluster, "restarts")
    return [*rows, Row(section="failover", name="each broker restarted in order, longest gap", value=gap_s, unit="s")]
