"""One broker for all tests of a module, and names that no other test uses."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.api.brokers import Peer, RunningBroker, running

_numbers = count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture
def peer(broker: RunningBroker) -> Iterator[Peer]:
    with Peer(broker) as connected:
        yield connected


@pytest.fixture
def name() -> str:
    """Of a topic that is not there yet."""
    return f"topic-{next(_numbers)}"
