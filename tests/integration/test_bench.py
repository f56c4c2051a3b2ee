"""The benchmark runs, measures everything it should, and leaves nothing behind. How fast is no question for a test."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bench.broker.peers.cache import kcat
from bench.grpc.names import WORKS

ROOT = Path(__file__).parents[2]
SIZES = ("1 MB", "16 KB", "200 B")


def expected_rows() -> set[tuple[str, str]]:
    modes = ("none", "interval", "group, 1 appender", "group, 32 appenders")
    kinds = ("verified", "unverified, copied")
    latencies = ("p50", "p99", "max")
    openings = (
        "after a crash, 5 % since the last checkpoint",
        "after a crash, without a checkpoint",
        "after a crash, without a checkpoint, CPU",
        "clean reopen",
    )
    contents = ("", " with keys and times")
    return {
        *(("append", f"{size}, {mode}") for size, mode in product(SIZES, modes)),
        *(("read", f"{size}, {kind}") for size, kind in product(SIZES, kinds)),
        *(("read", f"{size}, tail, verified") for size in SIZES[1:]),
        *(("look-up", f"{by}, {size}, {each}") for by, size, each in product(("offset", "time"), SIZES, latencies)),
        *(("recovery", f"{size}, {opening}") for size, opening in product(SIZES, openings)),
        ("records", "encode values only"),
        *(("records", f"{verb}{content}") for verb, content in product(("encode", "decode"), contents)),
        *(("records", f"check_batch {size}") for size in SIZES),
    }


def quick(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """The figures of one part, once it has run and left nothing behind."""
    work, out = tmp_path / "work", tmp_path / "results"
    work.mkdir()
    command = [sys.executable, "-W", "error", "-m", "bench", *arguments, "--quick", "--dir", str(work)]
    environment = os.environ | {"TERM": "dumb"}
    done = subprocess.run(
        [*command, "--out", str(out)], check=False, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout, "no colours and no cursor movements where there is no terminal"
    assert not list(work.iterdir())
    document: dict[str, Any] = json.loads((out / f"{arguments[0]}.json").read_text())
    assert document["machine"]["cpus"] > 0
    return document


@pytest.mark.slow
def test_a_quick_benchmark_of_the_storage_engine_measures_every_row_and_cleans_up(tmp_path: Path) -> None:
    document = quick(tmp_path, "storage")
    assert {(row["section"], row["name"]) for row in document["rows"]} == expected_rows()
    assert all(row["value"] > 0 for row in document["rows"])
    assert all(row["ratio"] > 0 for row in document["rows"] if row["section"] in ("append", "read"))


@pytest.mark.slow
def test_a_quick_benchmark_of_the_broker_measures_every_figure_and_cleans_up(tmp_path: Path) -> None:
    document = quick(tmp_path, "broker", "--peers", "none")
    clients = ("kcat", "confluent-kafka") if kcat() else ("confluent-kafka",)
    waiting = ("1 connection", "8 connections", "64 connections")
    assert {(each["section"], each["synced_before_answer"], each["workload"]) for each in document["figures"]} == {
        ("start and memory", None, ""),
        *(("produce, batched", synced, client) for synced, client in product(("yes", "no"), clients)),
        *(("consume", None, client) for client in clients),
        *(("CPU per request", synced, "produce") for synced in ("yes", "no")),
        ("CPU per request", None, "fetch"),
        *(("produce, each waits", synced, how) for synced, how in product(("yes", "no"), waiting)),
    }
    assert {each["system"] for each in document["figures"]} == {"Millpond"}
    for each in document["figures"]:
        assert each["values"].get("requests_per_s", 1) > 0
        assert each["values"].get("messages_per_s", 1) > 0
        assert each["values"].get("p50_us", 1) <= each["values"].get("p99_us", 1)


@pytest.mark.slow
def test_a_quick_benchmark_of_a_cluster_measures_every_row_and_cleans_up(tmp_path: Path) -> None:
    document = quick(tmp_path, "cluster")
    clients = ("kcat", "confluent-kafka") if kcat() else ("confluent-kafka",)
    assert {(row["section"], row["name"]) for row in document["rows"]} == {
        *(
            ("produce, 10,000 messages/s", f"{ways}, linger {linger_ms} ms, {share}")
            for ways, linger_ms in product(("1 partition", "3 partitions"), (1, 5))
            for share in ("p50", "p99", "p99.9", "quietest p99")
        ),
        *(("produce, batched", client + more) for client, more in product(clients, ("", ", CPU of all brokers"))),
        *(("failover", f"1 kills, {share}") for share in ("p50", "p99")),
        ("failover", "each broker restarted in order, longest gap"),
        ("catching up", "2 MB that a broker missed"),
    }
    assert all(row["value"] > 0 for row in document["rows"] if "CPU" not in row["name"])


@pytest.mark.slow
def test_a_quick_benchmark_of_the_client_stands_beside_three_others_and_cleans_up(tmp_path: Path) -> None:
    document = quick(tmp_path, "client")
    works = ("send many", "send one by one", "read one by one", "read in batches")
    units = ("messages/s", "messages per CPU second")
    peers = ("confluent-kafka", "aiokafka", "kafka-python")
    assert {(row["section"], row["name"]) for row in document["rows"]} == {
        (work, f"{unit}, beside {peer}") for work, unit, peer in product(works, units, peers)
    }
    assert all(row["value"] > 0 and row["raw"] > 0 for row in document["rows"])


@pytest.mark.slow
def test_a_quick_benchmark_of_http_stands_beside_bare_endpoints_and_cleans_up(tmp_path: Path) -> None:
    document = quick(tmp_path, "http")
    units, bare = ("requests/s", "requests per CPU second"), ("Starlette on uvicorn, bare", "uvicorn alone, bare")
    of_messages = ("messages/s", "messages per CPU second")
    assert {row["name"] for row in document["rows"]} == {
        *(f"{unit}, beside {peer}" for unit, peer in product(units, bare)),
        *(f"{verb}, {unit}" for verb, unit in product(("produce", "consume"), of_messages)),
    }
    assert all(row["value"] > 0 for row in document["rows"])


@pytest.mark.slow
def test_a_quick_benchmark_of_grpc_cleans_up(tmp_path: Path) -> None:
    document = quick(tmp_path, "grpc")
    assert {row["section"] for row in document["rows"]} == set(WORKS)
    assert all(row["value"] > 0 for row in document["rows"])


def test_a_peer_nobody_knows_is_refused_by_name() -> None:
    command = [sys.executable, "-m", "bench", "broker", "--peers", "kafka,pulsar"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "pulsar" in done.stderr
    assert "redis" in done.stderr
