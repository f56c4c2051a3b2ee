"""The brokers of these tests: one for all tests of a module, or one of its own for a test that stops it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.broker_process import BrokerProcess, running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """For tests that stop or kill it; with few logs to open, so that it is soon back."""
    with running_broker(tmp_path / "data", {"offsets.topic.num.partitions": "4"}) as process:
        yield process
