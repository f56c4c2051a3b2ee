"""One Spark session for all tests that need one, and a broker beside it; without Java they are skipped."""

import logging
import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from bench.pipeline.connector import kept
from millpond.model.errors import InvalidSetting
from millpond.pipeline.java import find_java
from millpond.pipeline.session import session
from millpond.testing.broker import InProcessBroker
from tests.pipeline.simulated_s3 import CREDENTIALS


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        find_java()
    except InvalidSetting as error:
        pytest.skip(str(error))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.update(CREDENTIALS)  # tasks have what Spark was started with
    logging.getLogger("py4j").setLevel(logging.ERROR)
    running = session(
        "local[2]",
        configs={
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts fast, runs slowly
            "spark.sql.codegen.wholeStage": "false",
            **({"spark.jars": ",".join(map(str, kept()))} if kept() else {}),
        },
    )
    running.sparkContext.setLogLevel("OFF")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker(configs={"offsets.topic.num.partitions": "1"}) as started:
        yield started
