"""A broker for all commands of a module, and `millpond` called in this process."""

from collections.abc import Iterator

import pytest

from millpond.testing.broker import InProcessBroker
from tests.cli.calling import Command


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker(configs={"offsets.topic.num.partitions": "1"}) as running:
        yield running


@pytest.fixture
def millpond(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, broker: InProcessBroker) -> Command:
    return Command(capsys, monkeypatch, broker.bootstrap)
