"""Queue: messages to one consumer of each group, until somebody says that they are done."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from millpond.client import Admin, Queue, QueueMessage, blocking
from millpond.client.share_session import runs_of
from millpond.model.errors import ClientClosed, InvalidSetting, LeaseLost, UnknownTopicOrPartition, WrongUse
from millpond.testing.broker import InProcessBroker
from tests.api.http.test_queues import configure_group


def test_the_life_of_messages(broker: InProcessBroker) -> None:
    broker.create_topic("life", partitions=3)

    async def work() -> None:
        async with Queue(broker.bootstrap, "life", group="workers") as queue:
            for number in range(30):
                await queue.send(b"%d" % number, key=b"%d" % number, headers={"h": b"1"})
            got: list[QueueMessage] = []
            while len(got) < 30:
                found = await queue.receive(max=7, wait=10)
                assert len(found) <= 7
                got += found
            assert {each.value for each in got} == {b"%d" % number for number in range(30)}
            assert {each.attempt for each in got} == {1}
            assert got[0].headers == (("h", b"1"),)
            assert got[0].message_id == f"life/{got[0].partition}/{got[0].offset}"
            await queue.ack(*got[:10])
            for each in got[10:20]:
                await each.nack()
            with pytest.raises(WrongUse):
                await got[0].ack()
            again: list[QueueMessage] = []
            while len(again) < 10:
                again += await queue.receive(wait=10)
            assert {(each.value, each.attempt) for each in again} == {(each.value, 2) for each in got[10:20]}
            await queue.ack(*again, *got[20:])
            assert await queue.receive() == []

    asyncio.run(work())


def test_messages_ask_things_of_their_queue(broker: InProcessBroker) -> None:
    broker.create_topic("asking")

    async def work() -> None:
        async with Queue(broker.bootstrap, "asking", group="workers") as queue:
            await queue.send(b"a", priority="high", ttl=60, headers={"own": b"1"})
            await queue.send(b"b", priority=3, ttl=1.5)
            first, second = await queue.receive(wait=10)
            assert dict(first.headers) == {"own": b"1", "millpond-priority": b"high", "millpond-ttl-ms": b"60000"}
            assert dict(second.headers) == {"millpond-priority": b"3", "millpond-ttl-ms": b"1500"}
            wrong: list[dict[str, Any]] = [
                {"priority": "urgent"},
                {"priority": 10},
                {"ttl": 0},
                {"delay": -1},
                {"ttl": "1m"},
            ]
            for options in wrong:
                with pytest.raises(InvalidSetting, match=next(iter(options))):
                    await queue.send(b"c", **options)

    asyncio.run(work())


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        ("strict", [b"2", b"5", b"1", b"3", b"0", b"4"]),
        ("off", [b"0", b"1", b"2", b"3", b"4", b"5"]),
    ],
)
def test_messages_come_in_the_order_in_which_the_broker_gave_them_out(
    broker: InProcessBroker, priority: str, expected: list[bytes]
) -> None:
    topic, group = f"by-priority-{priority}", f"workers-{priority}"
    broker.create_topic(topic)
    configure_group(broker, group, {"millpond.priority": priority})

    async def work() -> None:
        async with Queue(broker.bootstrap, topic, group=group) as queue:
            for number, each in enumerate(("low", "normal", "high", None, 0, 9)):
                await queue.send(b"%d" % number, priority=each)  # type: ignore[arg-type]
            assert [each.value for each in await queue.receive(max=6, wait=10)] == expected

    asyncio.run(work())


def test_a_delay_holds_or_is_refused_and_is_never_forgotten(broker: InProcessBroker) -> None:
    """A topic that was never told delays, as over HTTP; one that was told not to is left as it is."""
    broker.create_topic("never-told")
    broker.create_topic("told-not-to", configs={"millpond.delay": "off"})
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})

    async def work() -> None:
        for topic in ("told-not-to", "compacted"):
            async with Queue(broker.bootstrap, topic) as queue:
                with pytest.raises(WrongUse, match=f"{topic} delays no messages; set its millpond.delay to on"):
                    await queue.send(b"later", key=b"k", delay=60)
        for topic in ("never-told", "made-for-it"):
            async with Queue(broker.bootstrap, topic, group="workers") as queue:
                sent = [
                    await queue.send(b"later", delay=20),
                    await queue.send(b"later", headers={"millpond-delay-ms": b"20000"}),
                ]
                await queue.send(b"now")
                assert [each.value for each in await queue.receive(wait=10)] == [b"now"]
                broker.clock.advance(20_000)
                found: list[QueueMessage] = []
                while len(found) < 2:
                    found += await queue.receive(wait=10)
                assert [each.value for each in found] == [b"later"] * 2
                assert {each.message_id for each in found} == {f"{topic}/0/{each.offset}" for each in sent}

    asyncio.run(work())


def test_a_lost_lease_is_told_of_and_the_rest_is_done(broker: InProcessBroker) -> None:
    broker.create_topic("lost")

    async def work() -> None:
        async with Queue(broker.bootstrap, "lost", group="workers") as queue:
            for value in (b"a", b"b"):
                await queue.send(value)
            first, second = await queue.receive(wait=10)
            broker.clock.advance(20_000)
            await second.extend()
            broker.clock.advance(20_000)  # 40 of 30 seconds
            outcomes = await asyncio.gather(first.ack(), second.ack(), return_exceptions=True)
            assert [type(each) for each in outcomes] == [LeaseLost, type(None)]
            (again,) = await queue.receive(wait=10)
            assert (again.value, again.attempt) == (b"a", 2)

    asyncio.run(work())


def test_a_loop_acknowledges_what_it_got_through_and_gives_back_where_it_failed(broker: InProcessBroker) -> None:
    broker.create_topic("loop")

    async def fails_at(value: bytes) -> None:
        async with Queue(broker.bootstrap, "loop", group="workers") as queue:
            async for message in queue:
                if message.value == value:
                    raise ZeroDivisionError

    async def work() -> None:
        async with Queue(broker.bootstrap, "loop") as sender:
            for value in (b"a", b"b", b"c"):
                await sender.send(value)
        with pytest.raises(ZeroDivisionError):
            await fails_at(b"b")
        async with Queue(broker.bootstrap, "loop", group="workers") as queue:
            left = await queue.receive(wait=10)
            assert [(each.value, each.attempt) for each in left] == [(b"b", 2), (b"c", 1)]

    asyncio.run(work())


def test_a_message_is_a_context_of_its_own(broker: InProcessBroker) -> None:
    broker.create_topic("context")

    async def work() -> None:
        async with Queue(broker.bootstrap, "context", group="workers") as queue:
            await queue.send(b"a")
            (message,) = await queue.receive(wait=10)
            with pytest.raises(ZeroDivisionError):
                async with message:
                    raise ZeroDivisionError
            (message,) = await queue.receive(wait=10)
            assert message.attempt == 2
            async with message:
                pass
            assert await queue.receive() == []

    asyncio.run(work())


def test_what_is_rejected_is_a_dead_letter(broker: InProcessBroker) -> None:
    broker.create_topic("rejected")

    async def work() -> None:
        async with (
            Queue(broker.bootstrap, "rejected", group="workers") as queue,
            Queue(broker.bootstrap, "rejected.dlq", group="undertakers", metadata_seconds_max=20) as letters,
        ):
            await queue.send(b"bad")
            (message,) = await queue.receive(wait=10)
            await message.reject()
            (letter,) = await letters.receive(wait=20)
            assert letter.value == b"bad"
            assert dict(letter.headers)["millpond-dead-offset"] == b"0"

    asyncio.run(work())


def test_two_consumers_share_and_what_one_leaves_is_the_others(broker: InProcessBroker) -> None:
    broker.create_topic("shared", partitions=2)

    async def work() -> None:
        async with Queue(broker.bootstrap, "shared", group="workers") as stays:
            for number in range(20):
                await stays.send(b"%d" % number, key=b"%d" % number)
            async with Queue(broker.bootstrap, "shared", group="workers") as goes:
                theirs = await goes.receive(max=5, wait=10)
                assert theirs
                mine = await stays.receive(max=5, wait=10)
                assert not {each.value for each in mine} & {each.value for each in theirs}
            seen = {each.value for each in mine}
            while len(seen) < 20:
                found = await stays.receive(wait=10)
                seen |= {each.value for each in found}
                await stays.ack(*found)

    asyncio.run(work())


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.receive(),
        lambda queue: queue.send(b"a"),
    ],
)
def test_a_queue_that_is_not_open_says_so(call: Callable[[Queue], Awaitable[object]]) -> None:
    async def work() -> None:
        with pytest.raises(ClientClosed):
            await call(Queue("127.0.0.1:1", "jobs", group="g"))

    asyncio.run(work())


def test_wrong_use_is_told(broker: InProcessBroker) -> None:
    broker.create_topic("wrong")

    async def work() -> None:
        with pytest.raises(InvalidSetting):
            Queue(broker.bootstrap)
        async with Queue(broker.bootstrap, "wrong") as sender:
            with pytest.raises(WrongUse, match="group"):
                await sender.receive()
        async with Queue(broker.bootstrap, "wrong", group="g") as queue:
            await queue.send(b"a")
            (message,) = await queue.receive(wait=10)
            with pytest.raises(WrongUse, match=r"retry\.backoff"):
                await message.nack(delay=1)
            await message.nack()
        async with Queue(broker.bootstrap, "nowhere", group="g", metadata_seconds_max=0.1) as queue:
            with pytest.raises(UnknownTopicOrPartition):
                await queue.receive()

    asyncio.run(work())


def test_the_groups_backoff_holds_for_what_is_given_back(broker: InProcessBroker) -> None:
    broker.create_topic("backoff")
    configure_group(broker, "patient", {"millpond.retry.backoff.ms": "60000", "millpond.retry.jitter": "0"})

    async def work() -> None:
        async with Queue(broker.bootstrap, "backoff", group="patient") as queue:
            await queue.send(b"a")
            (message,) = await queue.receive(wait=10)
            await message.nack(error="no milk")
            assert await queue.receive() == []
            broker.clock.advance(60_000)
            assert [each.attempt for each in await queue.receive(wait=10)] == [2]

    asyncio.run(work())


def test_a_queue_without_a_loop(broker: InProcessBroker) -> None:
    with blocking.Queue(broker.bootstrap, "blocking", group="workers") as queue:
        for value in (b"a", b"b", b"c"):
            queue.send(value)
        first, second = queue.receive(max=2, wait=10)
        assert (first.value, first.attempt, second.value) == (b"a", 1, b"b")
        first.ack()
        with second:
            pass
        third = next(iter(queue))
        assert third.value == b"c"
        third.nack()
        (third,) = queue.receive(wait=10)
        third.extend()
        queue.ack(third)
        assert queue.receive() == []
    with pytest.raises(ZeroDivisionError):
        _fail_at_the_first(broker.bootstrap)
    with blocking.Queue(broker.bootstrap, "blocking", group="others") as queue:
        assert queue.receive(wait=10)[0].attempt == 2


def _fail_at_the_first(bootstrap: str) -> None:
    with blocking.Queue(bootstrap, "blocking", group="others") as queue:
        for _ in queue:
            raise ZeroDivisionError


def test_partitions_that_are_added_are_found(broker: InProcessBroker) -> None:
    broker.create_topic("growing")

    async def work() -> None:
        async with (
            Admin(broker.bootstrap) as admin,
            Queue(broker.bootstrap, "growing", group="g", metadata_age_seconds_max=0.01) as queue,
        ):
            assert await queue.receive() == []
            await admin.add_partitions("growing", total=3)
            async with Queue(broker.bootstrap, "growing") as sender:
                for number in range(30):
                    await sender.send(b"%d" % number, key=b"%d" % number)
            seen: set[int] = set()
            while len(seen) < 3:
                found = await queue.receive(wait=10)
                seen |= {each.partition for each in found}
                await queue.ack(*found)

    asyncio.run(work())


def test_offsets_side_by_side_are_told_as_one() -> None:
    assert runs_of({3: 1, 1: 1, 2: 1, 4: 2, 6: 2}) == [(1, 3, 1), (4, 4, 2), (6, 6, 2)]
