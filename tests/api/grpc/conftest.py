"""A broker with its gRPC door open, one for each module, and a channel to it."""

from collections.abc import Iterator

import grpc
import pytest

from millpond.testing.broker import InProcessBroker
from tests.api.grpc.asking import Door


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker(grpc=True) as started:
        yield started


@pytest.fixture(scope="module")
def door(broker: InProcessBroker) -> Iterator[Door]:
    with grpc.insecure_channel(broker.grpc_address) as channel:
        yield Door(channel)
