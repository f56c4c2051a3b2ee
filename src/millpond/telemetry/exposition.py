"""Metrics as Prometheus reads them: collected on the loop as plain values, written out as text in a thread.

Invariant: no metric has more than `series_max` label sets; what is left out is told by a metric of its own.
prometheus-client is loaded with this module, so whoever wants a quick start loads it late.
Driven by broker/operations/measure.py and the HTTP door, once per scrape.
"""

from collections.abc import Iterable, Iterator
from math import inf

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from millpond.model.latencies import Latencies
from millpond.telemetry.catalogue import DROPPED_SERIES, METRICS, Kind, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SERIES_MAX = 5_000

_NS_PER_SECOND = 1_000_000_000
_COUNTER_SUFFIX = "_total"


class Exposition(Collector):
    """One scrape."""

    def __init__(self, *, series_max: int = SERIES_MAX) -> None:
        self._families = {metric.name: _family(metric) for metric in METRICS}
        self._series_max = series_max
        self._series_counts = dict.fromkeys(self._families, 0)
        self._dropped: dict[str, int] = {}

    def add(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        if self._has_room(metric):
            named = dict(zip(metric.labels, labels, strict=True))
            self._families[metric.name].add_sample(metric.name, named, value)

    def add_each(self, metric: Metric, counts: Iterable[tuple[tuple[str, ...], int]]) -> None:
        for labels, count in counts:
            self.add(metric, labels, count)

    def add_latencies(self, metric: Metric, labels: tuple[str, ...], latencies: Latencies) -> None:
        if not self._has_room(metric):
            return
        named = dict(zip(metric.labels, labels, strict=True))
        family = self._families[metric.name]
        for bound, count in latencies.upper_bounds():
            family.add_sample(f"{metric.name}_bucket", {**named, "le": "+Inf" if bound == inf else repr(bound)}, count)
        family.add_sample(f"{metric.name}_sum", named, latencies.total_ns / _NS_PER_SECOND)
        family.add_sample(f"{metric.name}_count", named, latencies.count)

    def drop(self, metric: Metric, series_count: int = 1) -> None:
        """Notes that some series are not there."""
        self._dropped[metric.name] = self._dropped.get(metric.name, 0) + series_count

    def _has_room(self, metric: Metric) -> bool:
        if self._series_counts[metric.name] >= self._series_max:
            self.drop(metric)
            return False
        self._series_counts[metric.name] += 1
        return True

    def collect(self) -> Iterator[Family]:
        dropped = _family(DROPPED_SERIES)
        for name, count in self._dropped.items():
            dropped.add_sample(DROPPED_SERIES.name, {"metric": name}, count)
        self._families[DROPPED_SERIES.name] = dropped
        return iter(self._families.values())

    def render(self) -> bytes:
        """Blocks; may run in a thread once nothing more is added."""
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(self)
        return generate_latest(registry)


def _family(metric: Metric) -> Family:
    name = metric.name.removesuffix(_COUNTER_SUFFIX) if metric.kind is Kind.COUNTER else metric.name
    return Family(name, metric.meaning, metric.kind.value)
