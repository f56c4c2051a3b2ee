"""Many at once, in order where it matters, committed only when done."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.client import Consumer, Message, Producer, TopicPartition
from millpond.client.processing import Order
from millpond.client.progress import Progress
from millpond.model.errors import WrongUse
from millpond.testing.broker import InProcessBroker
from tests.client.conftest import run
from tests.client.test_consumer import ORDERS, committed, take, values


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_done_is_up_to_the_first_that_is_not(gaps: list[int], chance: random.Random) -> None:
    offsets = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    progress = Progress(offsets[0])
    for offset in offsets:
        progress.begin(offset)
    left = set(offsets)
    for offset in chance.sample(offsets, len(offsets)):
        assert progress.done_to == min(left)
        progress.finish(offset)
        left.remove(offset)
        assert len(progress) == len(left)
    assert progress.done_to == offsets[-1] + 1


async def fill(broker: InProcessBroker, count: int, *, keys: int) -> None:
    async with Producer(broker.bootstrap) as producer:
        await producer.send_many(
            "orders",
            [b"%d" % number for number in range(count)],
            keys=[b"%d" % (number % keys) for number in range(count)],
        )


class Enough(Exception):
    """Ends a scenario."""


@pytest.mark.parametrize("order", ["key", "partition", "none"])
def test_messages_are_handled_side_by_side_and_in_the_order_that_was_asked_for(
    broker: InProcessBroker, order: Order
) -> None:
    broker.create_topic("orders", partitions=2)
    handled: list[Message] = []
    running: list[Message] = []
    most = 0

    async def handle(message: Message) -> None:
        nonlocal most
        beside = [each for each in running if each.at == message.at]
        assert order != "partition" or not beside
        assert order != "key" or message.key not in [each.key for each in beside]
        running.append(message)
        most = max(most, len(running))
        for _ in range(message.offset % 5):
            await asyncio.sleep(0)
        running.remove(message)
        handled.append(message)
        if len(handled) == 300:
            raise Enough

    async def scenario() -> None:
        await fill(broker, 300, keys=10)
        async with Consumer(broker.bootstrap, topics=["orders"], group="kitchen") as consumer:
            with pytest.raises(Enough):
                await consumer.process(handle, concurrency=8, order=order)

    run(scenario())
    assert len({(each.at, each.offset) for each in handled}) == 300
    assert most > 1
    assert most <= 8
    if order != "none":
        for key in {each.key for each in handled}:
            numbers = values([each for each in handled if each.key == key])
            assert numbers == sorted(numbers)


def test_what_was_not_handled_is_neither_committed_nor_lost(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    async def handle(message: Message) -> None:
        if message.offset == 5:
            raise Enough
        handled.append(message.offset)

    handled: list[int] = []

    async def scenario() -> None:
        await fill(broker, 50, keys=50)
        async with Consumer(broker.bootstrap, topics=["orders"], group="kitchen") as consumer:
            with pytest.raises(Enough):
                await consumer.process(handle, concurrency=4)
            await consumer.commit_done()
            await committed(consumer, 5)
            assert values(await take(consumer, 45)) == list(range(5, 50))

    run(scenario())
    assert set(range(5)) <= set(handled)


def test_reading_waits_for_handling(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    async def scenario() -> None:
        await fill(broker, 500, keys=500)
        gate, all_begun = asyncio.Event(), asyncio.Event()
        begun = 0

        async def handle(message: Message) -> None:
            nonlocal begun
            begun += 1
            if begun == 3:
                all_begun.set()
            await gate.wait()

        async with Consumer(broker.bootstrap, topics=["orders"], group="kitchen") as consumer:
            processing = asyncio.create_task(consumer.process(handle, concurrency=3))
            await all_begun.wait()
            position = consumer.position(ORDERS)
            assert position is not None
            assert position <= 12
            with pytest.raises(WrongUse, match="processes already"):
                await consumer.process(handle)
            processing.cancel()
            await asyncio.gather(processing, return_exceptions=True)
            assert consumer.position(ORDERS) == 0

    run(scenario())


def test_a_partition_goes_to_another_when_what_is_in_hand_of_it_is_done(broker: InProcessBroker) -> None:
    broker.create_topic("orders", partitions=2)
    seen: list[tuple[TopicPartition, int]] = []

    async def scenario() -> None:
        await fill(broker, 400, keys=40)
        gate, first_begun = asyncio.Event(), asyncio.Event()

        async def handle(message: Message) -> None:
            first_begun.set()
            await gate.wait()
            seen.append((message.at, message.offset))
            if len(seen) >= 400:
                raise Enough

        options = {"topics": ["orders"], "group": "kitchen"}
        async with (
            Consumer(broker.bootstrap, **options) as first,  # type: ignore[arg-type]
            Consumer(broker.bootstrap, **options) as second,  # type: ignore[arg-type]
        ):
            tasks = [asyncio.create_task(each.process(handle, concurrency=5)) for each in (first, second)]
            await first_begun.wait()
            gate.set()
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(scenario())
    assert len(set(seen)) == len(seen) >= 400
