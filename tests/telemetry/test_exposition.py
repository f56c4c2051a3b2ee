"""The exposition: what a Prometheus server can read, bounded, and told of in the documents."""

import re
from pathlib import Path

import pytest

from millpond.model.latencies import Latencies
from millpond.telemetry import catalogue
from millpond.telemetry.catalogue import METRICS, PROCESS_METRICS, Kind, Metric
from millpond.telemetry.exposition import Exposition
from tests.telemetry.scrapes import Scrape

DOCUMENT = Path(__file__).parents[2] / "docs" / "operating" / "metrics.md"


def rendered(exposition: Exposition) -> Scrape:
    return Scrape(exposition.render().decode())


def test_what_is_too_much_is_left_out_and_told() -> None:
    exposition = Exposition(series_max=3)
    for number in range(10):
        exposition.add(catalogue.END_OFFSET, ("t", str(number)), number)
    exposition.add(catalogue.UPTIME, (), 1)
    found = rendered(exposition)
    assert len(found.all_of("millpond_partition_end_offset")) == 3
    assert found.value("millpond_metrics_dropped_series", metric="millpond_partition_end_offset") == 7
    assert found.find("millpond_metrics_dropped_series", metric="millpond_uptime_seconds") is None


def test_a_name_with_quotes_and_lines_comes_back_as_it_was() -> None:
    name = 'a "group"\\of\nmine é'
    exposition = Exposition()
    exposition.add(catalogue.GROUP_MEMBERS, (name,), 2)
    assert rendered(exposition).value("millpond_group_members", group=name) == 2


def test_a_histogram_has_rising_buckets_a_sum_and_a_count() -> None:
    latencies = Latencies()
    for took_ns in (1_500, 3_000_000, 40_000_000_000):
        latencies.note(took_ns)
    exposition = Exposition()
    exposition.add_latencies(catalogue.REQUEST_DURATION, ("Fetch",), latencies)
    found = rendered(exposition)
    name = "millpond_request_duration_seconds"
    assert found.families[name].type == "histogram"
    assert found.value(f"{name}_bucket", api="Fetch", le="2e-06") == 1
    assert found.value(f"{name}_bucket", api="Fetch", le="0.004096") == 2
    assert found.value(f"{name}_bucket", api="Fetch", le="+Inf") == found.value(f"{name}_count", api="Fetch") == 3
    assert found.value(f"{name}_sum", api="Fetch") == pytest.approx(40.0030015)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions_of_prometheus(metric: Metric) -> None:
    assert re.fullmatch(r"millpond_[a-z][a-z_]*[a-z]", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.kind is not Kind.HISTOGRAM or metric.name.endswith("_seconds")
    assert metric.meaning.endswith(".")


def test_the_document_has_every_metric_as_the_code_has_it() -> None:
    rows = [
        f"| `{name}` | {kind.value} | {', '.join(labels)} | {meaning} |"
        for name, kind, labels, meaning in (*METRICS, *PROCESS_METRICS)
    ]
    written = [line for line in DOCUMENT.read_text().splitlines() if line.startswith(("| `millpond_", "| `process_"))]
    assert written == rows, "write the table anew from millpond.telemetry.catalogue"
