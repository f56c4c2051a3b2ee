"""An assignor of another package: the one in the documentation, installed as a package would install it."""

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.cli.broker_process import SECONDS_MAX, BrokerProcess, run
from tests.interop.facts import until

DOCUMENT = Path(__file__).parents[2] / "docs" / "operating" / "assignors.md"
PARTITIONS = 4


@pytest.fixture
def packages(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which the plugin is installed."""
    (snippet,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    (entry_point,) = re.findall(r"^standby = \"(.*)\"$", DOCUMENT.read_text(), flags=re.MULTILINE)
    installed = tmp_path / "packages"
    info = installed / "nearest-1.0.dist-info"
    info.mkdir(parents=True)
    (installed / "nearest.py").write_text(snippet)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nearest\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[millpond.assignors]\nstandby = {entry_point}\n")
    return {"PYTHONPATH": str(installed)}


def test_a_plugin_shares_out_what_members_read(tmp_path: Path, packages: dict[str, str]) -> None:
    with BrokerProcess(tmp_path / "data", "--set=group.consumer.assignors=standby,uniform", environ=packages) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result(SECONDS_MAX)
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "group.protocol": "consumer"}
        members = [Consumer(settings) for _ in range(2)]
        for member in members:
            member.subscribe(["orders"])
        for _ in until(lambda: all(_has_heard(each) for each in members), what="both are members"):
            for member in members:
                member.poll(0.1)
        for _ in until(lambda: _shares(members) == [0, PARTITIONS], what="one reads, the other stands by"):
            for member in members:
                member.poll(0.1)
        for member in members:
            member.close()


def _has_heard(member: Consumer) -> bool:
    return bool(member.memberid())


def _shares(members: list[Consumer]) -> list[int]:
    return sorted(len(each.assignment()) for each in members)


def test_one_that_nobody_offers_is_refused_by_name(tmp_path: Path) -> None:
    arguments = ("up", "--data-dir", str(tmp_path / "data"), "--kafka", "127.0.0.1:0")
    code, _, said = run(*arguments, "--set=group.consumer.assignors=uniform,nobodys")
    assert code != 0
    assert "no installed package offers 'nobodys'" in " ".join(said.split())
    assert "there are: uniform, range" in " ".join(said.split())
