"""Committed offsets in a plugin: the one in the documentation, installed as a package would install it."""

import re
import sqlite3
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cli.broker_process import SECONDS_MAX, BrokerProcess, run

DOCUMENT = Path(__file__).parents[2] / "docs" / "operating" / "offset-stores.md"


@pytest.fixture
def packages(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which the plugin is installed."""
    (snippet,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    (entry_point,) = re.findall(r"^sqlite = .*$", DOCUMENT.read_text(), flags=re.MULTILINE)
    installed = tmp_path / "packages"
    info = installed / "sqlite_offsets-1.0.dist-info"
    info.mkdir(parents=True)
    (installed / "sqlite_offsets.py").write_text(snippet)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sqlite-offsets\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[millpond.offset_stores]\n{entry_point.replace(chr(34), '')}\n")
    return {"PYTHONPATH": str(installed)}


def consumer_of(broker: BrokerProcess) -> Consumer:
    return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})


def test_a_plugin_keeps_committed_offsets_across_a_restart(tmp_path: Path, packages: dict[str, str]) -> None:
    database = tmp_path / "offsets.db"
    store = f"--offset-store=sqlite://{database}"
    with BrokerProcess(tmp_path / "data", store, environ=packages) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"value")
        assert producer.flush(SECONDS_MAX) == 0
        consumer = consumer_of(broker)
        consumer.commit(offsets=[TopicPartition("orders", 0, 17)], asynchronous=False)
        consumer.close()
    with sqlite3.connect(database) as found:
        assert found.execute("SELECT grp, topic, part, next FROM offsets").fetchall() == [("readers", "orders", 0, 17)]
    found.close()
    with BrokerProcess(tmp_path / "data", store, environ=packages) as broker:
        consumer = consumer_of(broker)
        (committed,) = consumer.committed([TopicPartition("orders", 0)], timeout=SECONDS_MAX)
        assert committed.offset == 17
        consumer.close()


def test_a_store_that_nobody_offers_is_refused_with_those_there_are(tmp_path: Path, packages: dict[str, str]) -> None:
    arguments = ("up", "--data-dir", str(tmp_path / "data"), "--kafka", "127.0.0.1:0")
    code, _, said = run(*arguments, "--offset-store", "redis://localhost", environ=packages)
    assert code != 0
    assert "no installed package offers 'redis'" in said
    assert "there are: sqlite" in " ".join(said.split())
