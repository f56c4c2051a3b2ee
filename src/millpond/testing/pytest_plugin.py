"""The fixture `millpond_broker` for pytest: `pytest_plugins = ["millpond.testing.pytest_plugin"]` in a conftest.py.

def test_an_order_is_shipped(millpond_broker):
    service = Service(bootstrap=millpond_broker.bootstrap)
    ...
"""

from collections.abc import Iterator

import pytest

from millpond.testing.broker import InProcessBroker


@pytest.fixture
def millpond_broker() -> Iterator[InProcessBroker]:
    """A broker of the test's own, empty and listening; gone after it."""
    with InProcessBroker() as broker:
        yield broker
