"""A broker of its own for each test, and a loop to be a client in."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from millpond.testing.broker import InProcessBroker

SECONDS_MAX = 30.0


@pytest.fixture
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker(configs={"offsets.topic.num.partitions": "1"}) as running:
        yield running


def run(work: Coroutine[Any, Any, None]) -> None:
    """To its end, which comes."""

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await work

    asyncio.run(bounded())
