"""A broker with its HTTP door open, one for each module."""

from collections.abc import Iterator

import pytest

from millpond.testing.broker import InProcessBroker
from tests.api.http.asking import Door


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker(http=True) as started:
        yield started


@pytest.fixture(scope="module")
def door(broker: InProcessBroker) -> Door:
    return Door(broker.broker.http_port)
