"""`millpond bench` against a real broker; `millpond doctor` on this machine, and on worse ones."""

import json
import shutil
import socket
from itertools import cycle
from pathlib import Path

import pytest

from millpond.cli import examination
from millpond.cli.examination import Finding
from millpond.model.addresses import Address
from millpond.model.limits import GIB, MIB
from millpond.testing.broker import InProcessBroker
from tests.cli.calling import Command, as_shown, read_table, read_yaml

COLUMNS = ("check", "state", "found", "advice")


def test_a_bench_sends_reads_and_leaves_nothing(millpond: Command) -> None:
    arguments = ("bench", "--messages", "2000", "--size", "50", "--singles", "5", "--partitions", "2")
    found = json.loads(millpond.ok(*arguments, "--output", "json"))
    assert [(each["what"], each["messages"]) for each in found["results"]] == [
        ("send in batches", 2000),
        ("send one by one", 5),
        ("read", 2005),
    ]
    assert all(each["messages_per_second"] > 0 for each in found["results"])
    assert 0 < found["results"][1]["p50_ms"] <= found["results"][1]["max_ms"]
    assert [row["what"] for row in read_table(millpond.ok(*arguments))] == [each["what"] for each in found["results"]]
    assert millpond.document("topics", "list") == {"topics": []}


def test_a_doctor_looks_at_everything_and_shows_it_alike(millpond: Command, tmp_path: Path) -> None:
    arguments = ("doctor", "--data-dir", str(tmp_path / "d"), "--kafka", millpond.bootstrap, "--http", "off")
    code, out, err = millpond(*arguments, "--output", "json")
    found = json.loads(out)
    assert (code, err, found["healthy"]) == (0, "", True)
    states = {each["check"]: each["state"] for each in found["checks"]}
    assert list(states) == [
        *("python", "kafka port", "data directory", "disk space", "filesystem", "disk sync", "open files"),
        *("memory maps", "memory", "clock", "spark"),
    ]
    assert "fail" not in states.values()
    assert all(bool(each["advice"]) == (each["state"] != "ok") for each in found["checks"])
    (port,) = (each for each in found["checks"] if each["check"] == "kafka port")
    assert port["found"] == f"{millpond.bootstrap}: a broker answers there already"
    passing = ("disk sync", "memory", "clock", "disk space")  # these differ from one look to the next

    def steady(rows: list[dict[str, str]]) -> list[dict[str, str]]:
        return [each for each in rows if each["check"] not in passing]

    assert steady(read_yaml(millpond.ok(*arguments, "--output", "yaml"))["checks"]) == steady(found["checks"])
    assert steady(read_table(millpond.ok(*arguments))) == as_shown(steady(found["checks"]), *COLUMNS)
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_a_failure_that_scripts_see(
    millpond: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(examination, "ANSWER_SECONDS_MAX", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (taken, other)]
        arguments = ("--data-dir", str(tmp_path), "--kafka", addresses[0], "--http", addresses[1])
        code, out, _ = millpond("doctor", *arguments, "--output", "json")
    assert code == 1
    failed = {each["check"]: each for each in json.loads(out)["checks"] if each["state"] == "fail"}
    assert set(failed) == {"kafka port", "http port"}
    assert "give another address with --http" in failed["http port"]["advice"]
    assert addresses[0] in failed["kafka port"]["found"]


def test_an_http_port_where_a_broker_answers_is_well(tmp_path: Path) -> None:
    with InProcessBroker(http=True) as broker:
        host, _, port = broker.http_url.removeprefix("http://").partition(":")
        found = examination.look_at_port("http port", Address(host, int(port)), "--http")
    assert (found.state, "a broker answers there already" in found.found) == ("ok", True)


def test_a_data_directory_that_cannot_be_is_told_of(millpond: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    arguments = ("doctor", "--kafka", "127.0.0.1:0", "--http", "off", "--output", "json")
    code, out, _ = millpond(*arguments, "--data-dir", str(tmp_path / "file"))
    (failed,) = (each for each in json.loads(out)["checks"] if each["state"] == "fail")
    assert (code, failed["check"], failed["found"]) == (1, "data directory", f"{tmp_path / 'file'} is no directory")
    code, out, _ = millpond(*arguments, "--data-dir", "/proc/nothing-can-be-made-here")
    assert code == 1
    assert "disk sync" in [each["check"] for each in json.loads(out)["checks"] if each["state"] == "fail"]


def usage(free: int, total: int = 100 * GIB) -> "shutil._ntuple_diskusage":
    return shutil._ntuple_diskusage(total, total - free, free)


HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("finding", "state", "advice"),
    [
        (examination.look_at_space(usage(100 * MIB), HERE), "fail", "make room"),
        (examination.look_at_space(usage(4 * GIB), HERE), "warn", "retention.bytes"),
        (examination.look_at_space(usage(50 * GIB), HERE), "ok", ""),
        (examination.look_at_filesystem("tmpfs", HERE), "warn", "gone after a restart"),
        (examination.look_at_filesystem("nfs4", HERE), "warn", "local disk"),
        (examination.look_at_filesystem("overlay", HERE), "warn", "mount a volume"),
        (examination.look_at_filesystem("xfs", HERE), "ok", ""),
        (examination.look_at_filesystem(None, HERE), "ok", ""),
        (examination.look_at_open_files(256, 256), "fail", "ulimit -n 65536"),
        (examination.look_at_open_files(10_000, 20_000), "warn", "LimitNOFILE=65536"),
        (examination.look_at_open_files(1 << 20, 1 << 20), "ok", ""),
        (examination.look_at_maps(65_530), "warn", "vm.max_map_count=262144"),
        (examination.look_at_maps(None), "ok", ""),
        (examination.look_at_memory(64 * MIB), "fail", "raise the limit"),
        (examination.look_at_memory(300 * MIB), "warn", "some hundred MB"),
        (examination.look_at_memory(4 * GIB), "ok", ""),
        (examination.look_at_clock(0, is_synchronised=True), "fail", "set the clock"),
        (examination.look_at_clock(1_800_000_000_000, is_synchronised=False), "warn", "chrony"),
        (examination.look_at_clock(1_800_000_000_000, is_synchronised=True), "ok", ""),
        (examination.look_at_clock(1_800_000_000_000, is_synchronised=None), "ok", ""),
    ],
)
def test_what_is_wrong_comes_with_what_to_do(finding: Finding, state: str, advice: str) -> None:
    assert finding.state == state
    assert advice in finding.advice
    assert bool(finding.advice) == (state != "ok")


def test_a_slow_disk_is_noticed(tmp_path: Path) -> None:
    turns = cycle([0.0, 0.05])
    found = examination.look_at_syncs(tmp_path, lambda: next(turns))
    assert (found.state, "50.00 ms" in found.found) == ("warn", True)
    assert list(tmp_path.iterdir()) == []
