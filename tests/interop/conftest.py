"""The brokers of these tests, one for all tests of a module or one of its own for a test that stops it; and the clients
in other languages, one process a module."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.interop.broker_process import BrokerProcess, running_broker
from tests.interop.cluster_processes import ClusterProcesses, running_cluster
from tests.interop.confluent import Reachable
from tests.interop.fetched import NODE, go_client, java_classpath, node_modules
from tests.interop.foreign_client import ForeignClient


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """For tests that stop or kill it; with few logs to open, so that it is soon back."""
    with running_broker(tmp_path / "data", {"offsets.topic.num.partitions": "4"}) as process:
        yield process


@pytest.fixture(scope="module")
def java(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[ForeignClient]:
    with closing(_java_client(broker, request.config)) as client:
        yield client


@pytest.fixture
def own_java(own_broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[ForeignClient]:
    with closing(_java_client(own_broker, request.config)) as client:
        yield client


def _java_client(broker: Reachable, config: pytest.Config) -> ForeignClient:
    assert config.cache is not None
    quick_to_start = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
    command = ["java", *quick_to_start, "-cp", java_classpath(config.cache), "Client", broker.address]
    return ForeignClient(command, os.environ)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as processes:
        yield processes


@pytest.fixture(scope="module")
def cluster_java(cluster: ClusterProcesses, request: pytest.FixtureRequest) -> Iterator[ForeignClient]:
    with closing(_java_client(cluster, request.config)) as client:
        yield client


@pytest.fixture(scope="module")
def kafkajs(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[ForeignClient]:
    with closing(_node_client("kafkajs.cjs", broker, request.config)) as client:
        yield client


@pytest.fixture(scope="module")
def platformatic(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[ForeignClient]:
    with closing(_node_client("platformatic.cjs", broker, request.config)) as client:
        yield client


@pytest.fixture(scope="module")
def franz(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[ForeignClient]:
    assert request.config.cache is not None
    program = go_client(request.config.cache)
    with closing(ForeignClient([str(program), broker.address], os.environ)) as client:
        yield client


def _node_client(program: str, broker: BrokerProcess, config: pytest.Config) -> ForeignClient:
    assert config.cache is not None
    environment = {**os.environ, "NODE_PATH": str(node_modules(config.cache))}
    return ForeignClient(["node", str(NODE / program), broker.address], environment)
