"""The metrics pipeline on a Spark cluster of a master and two workers, with the package sent to them.

Six JVMs on one machine take their time, so this is not part of every run: `make pipeline-cluster`.
"""

import os
from pathlib import Path

import pytest

from millpond.model.errors import InvalidSetting
from millpond.pipeline.generating import Load
from millpond.pipeline.java import find_java
from millpond.pipeline.shipping import NAME
from millpond.testing.broker import InProcessBroker
from tests.pipeline.standalone import WORKERS, Standalone, settings_of
from tests.pipeline.test_metrics import PARTITIONS, START_MS, send


@pytest.mark.slow
@pytest.mark.skipif("MILLPOND_SPARK_CLUSTER" not in os.environ, reason="starts six JVMs: make pipeline-cluster")
def test_a_cluster_comes_to_the_same_and_runs_the_drivers_code(broker: InProcessBroker, tmp_path: Path) -> None:
    try:
        find_java()
    except InvalidSetting as error:
        pytest.skip(str(error))
    settings = settings_of(broker.bootstrap, tmp_path)
    for name in (settings.topic, settings.dead_letters, settings.rollups):
        broker.create_topic(name, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    send(broker, settings.topic, Load(messages=1_000, start_ms=START_MS, per_second=10, clients=5))
    with Standalone(tmp_path) as cluster:
        found = cluster.drive(broker.bootstrap, str(tmp_path))
    assert found["ingested"] == 1_000
    assert len({folder for folder, _ in found["tasks"]}) == WORKERS
    assert all(code.endswith(f"/{NAME}/millpond/__init__.py") for _, code in found["tasks"])
