"""Topics, archives and micro-batches through a Spark Connect server; what does not work there says so.

It takes a JVM of its own, so this is not part of every run: `make pipeline-connect`.
"""

import os
from pathlib import Path

import pytest

from millpond.model.errors import InvalidSetting
from millpond.pipeline.generating import Load
from millpond.pipeline.java import find_java
from millpond.testing.broker import InProcessBroker
from tests.pipeline.connect import connect_server, drive
from tests.pipeline.standalone import settings_of
from tests.pipeline.test_metrics import PARTITIONS, START_MS, send


@pytest.mark.slow
@pytest.mark.skipif("MILLPOND_SPARK_CONNECT" not in os.environ, reason="starts a server: make pipeline-connect")
def test_a_client_of_a_connect_server_reads_writes_and_archives(broker: InProcessBroker, tmp_path: Path) -> None:
    pytest.importorskip("grpc_status", reason="pip install 'millpond[connect]'")
    try:
        find_java()
    except InvalidSetting as error:
        pytest.skip(str(error))
    settings = settings_of(broker.bootstrap, tmp_path)
    for name in (settings.topic, settings.dead_letters, settings.rollups, f"{settings.topic}.copy"):
        broker.create_topic(name, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    send(broker, settings.topic, Load(messages=1_000, start_ms=START_MS, per_second=10, clients=5))
    with connect_server() as remote:
        found = drive(remote, broker.bootstrap, tmp_path)
    assert "Spark Connect" in found.pop("refused")
    assert found == {"ingested": 1_000, "copied": 1_000, "archived": 1_000, "states": ["same"]}
