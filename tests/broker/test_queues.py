"""Queue groups of one broker: leases, retries, dead letters, times to live, keys, priorities; over restarts."""

import asyncio
import struct
from collections.abc import Sequence
from unittest.mock import patch

import pytest
from crc32c import crc32c

from millpond.broker.drivers import delays
from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.queue_partition import KIND, QueuePartition, Want
from millpond.broker.drivers.states import States
from millpond.broker.node import Node
from millpond.broker.operations import produce
from millpond.broker.operations.measure import add_queues
from millpond.core.delivery.ledger import Verdict
from millpond.core.delivery.states import Lane, Outcome
from millpond.core.metadata.alterations import AlterConfigs, ConfigItem, OfGroup, alter_configs
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.core.metadata.decisions import Refused
from millpond.model.errors import CoordinatorUnavailable, LeaseLost, NotLeader
from millpond.model.ids import Offset, TimestampMs
from millpond.protocol.compression import Codec
from millpond.protocol.records import (
    HEADER_BYTES,
    Headers,
    NewRecord,
    Record,
    decode_batch,
    encode_batch,
    iter_batches,
)
from millpond.telemetry.exposition import Exposition
from tests.broker.clusters import Machine, SimCluster
from tests.broker.test_cluster import until
from tests.broker.test_movement import with_brokers
from tests.telemetry.scrapes import Scrape

TOPIC, GROUP = "jobs", "workers"
FEW = {"share.coordinator.state.topic.num.partitions": "1"}
LOCK_MS = 5_000


def node_of(machine: Machine) -> Node:
    assert machine.broker is not None
    return machine.broker.node


def partition_of(node: Node, topic: str = TOPIC) -> Partition:
    found = node.partitions.named(topic, 0)
    assert found is not None
    return found


async def make(node: Node, *, group: dict[str, str] | None = None, topic: tuple[tuple[str, str], ...] = ()) -> None:
    wanted = [NewTopic(name=TOPIC, partitions=1, configs=topic)]
    await node.metadata.decide(lambda image: create_topics(image, wanted, static=node.static, rng=node.rng))
    if group:
        await configure(node, **group)


async def configure(node: Node, **settings: str) -> None:
    items = tuple(ConfigItem(name, value) for name, value in settings.items())
    request = AlterConfigs(target=OfGroup(GROUP), items=items)
    decision = await node.metadata.decide(lambda image: alter_configs(image, [request], static=node.static))
    assert not any(isinstance(answer, Refused) for answer in decision.answers)


async def send(node: Node, *records: NewRecord) -> None:
    stamped = [each._replace(timestamp=TimestampMs(node.clock.wall_ms())) for each in records]
    pending = produce.begin(
        partition_of(node), bytearray(encode_batch(stamped)), now_ms=node.clock.wall_ms(), acks_all=True
    )
    (produced,) = await produce.finish([pending])
    assert produced.error is None


async def queue_of(node: Node, group: str = GROUP) -> QueuePartition:
    return await node.queues.at(group, partition_of(node))


async def receive(
    node: Node, count: int = 100, *, holder: str = "anna", group: str = GROUP
) -> list[tuple[Record, int]]:
    queue = await queue_of(node, group)
    taken = queue.take(Want(holder, count, 1 << 20, LOCK_MS))
    await queue.keep()
    return queue.records(taken)


async def say(node: Node, outcome: Outcome, *offsets: int, holder: str = "anna", reason: str = "") -> None:
    queue = await queue_of(node)
    await queue.acknowledge([Verdict(each, each, outcome) for each in offsets], holder=holder, reason=reason)


def letters(node: Node) -> list[Record]:
    partition = node.partitions.named(f"{TOPIC}.dlq", 0)
    if partition is None:
        return []
    data = partition.read(Offset(0), bytes_max=1 << 20).data
    return [record for position, _ in iter_batches(data) for record in decode_batch(data, position)]


def values(got: Sequence[tuple[Record, int]]) -> list[bytes | None]:
    return [record.value for record, _ in got]


def messages(*texts: str, headers: Headers = ()) -> list[NewRecord]:
    return [NewRecord(text.encode(), headers=headers) for text in texts]


@with_brokers(1, configs=FEW)
async def test_what_was_acknowledged_stays_so_after_a_power_cut_and_leases_go_on(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def before() -> None:
        node = node_of(machine)
        await make(node)
        await send(node, *messages("a", "b", "c", "d"))
        assert values(await receive(node, 3)) == [b"a", b"b", b"c"]
        await say(node, Outcome.ACCEPT, 0)

    async def after() -> None:
        node = node_of(machine)
        assert values(await receive(node, holder="bert")) == [b"d"], "b and c are still held, and a is done"
        await say(node, Outcome.ACCEPT, 1)  # by whoever held it before the power was cut
        with pytest.raises(LeaseLost):
            await say(node, Outcome.ACCEPT, 1)
        await asyncio.sleep(LOCK_MS / 1000)
        assert [(record.value, attempt) for record, attempt in await receive(node)] == [(b"c", 2), (b"d", 2)]

    await machine.host.run(before())
    machine.cut_power()
    await machine.start()
    await machine.host.run(after())


@with_brokers(1, configs=FEW)
async def test_a_message_that_fails_too_often_is_buried_once_and_says_why(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node, group={"share.delivery.count.limit": "2"})
        forged = (("millpond-dead-attempts", b"99"), ("kind", b"job"))
        await send(node, *messages("bad", headers=forged), *messages("good"))
        for attempt in (1, 2):
            ((record, seen), (good, _)) = sorted(await receive(node))
            assert (record.value, seen) == (b"bad", attempt)
            await say(node, Outcome.RELEASE, 0, reason="cannot parse")
            await say(node, Outcome.RELEASE if attempt == 1 else Outcome.ACCEPT, good.offset)
        await until(lambda: len(letters(node)) > 0)
        (letter,) = letters(node)
        assert letter.value == b"bad"
        assert dict(letter.headers) == {
            "kind": b"job",
            "millpond-dead-origin": f"{TOPIC}/0/0".encode(),
            "millpond-dead-topic": TOPIC.encode(),
            "millpond-dead-partition": b"0",
            "millpond-dead-offset": b"0",
            "millpond-dead-attempts": b"2",
            "millpond-dead-error": b"cannot parse",
            "millpond-dead-group": GROUP.encode(),
        }
        queue = await queue_of(node)
        await until(lambda: queue.ledger.unfinished == 0)
        assert await receive(node) == []

    await machine.host.run(steps())


@with_brokers(1, configs=FEW)
async def test_a_message_that_has_outlived_its_time_is_not_delivered(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node)
        short, nonsense = (("millpond-ttl-ms", b"1000"),), (("millpond-ttl-ms", b"soon"),)
        await send(node, *messages("old", headers=short), *messages("kept"), *messages("odd", headers=nonsense))
        await asyncio.sleep(2)
        await send(node, *messages("young", headers=short))
        assert values(await receive(node)) == [b"kept", b"odd", b"young"]
        assert (await queue_of(node)).ledger.counts["expired"] == 1

    await machine.host.run(steps())


@with_brokers(1, configs=FEW)
async def test_a_letter_that_its_topic_refuses_for_now_comes_when_it_may_and_so_do_those_behind_it(
    cluster: SimCluster,
) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node, group={"share.delivery.count.limit": "1"})
        small = NewTopic(name=f"{TOPIC}.dlq", partitions=1, configs=(("max.message.bytes", "500"),))
        await node.metadata.decide(lambda image: create_topics(image, [small], static=node.static, rng=node.rng))
        await send(node, *messages("large" * 400, "small"))
        assert len(await receive(node)) == 2
        await say(node, Outcome.RELEASE, 0, 1)
        await asyncio.sleep(10)
        assert letters(node) == [], "they have their numbers, and none may be missing"
        items = (ConfigItem("max.message.bytes", "5000"),)
        request = AlterConfigs(target=f"{TOPIC}.dlq", items=items)
        await node.metadata.decide(lambda image: alter_configs(image, [request], static=node.static))
        await until(lambda: len(letters(node)) == 2)
        assert values([(each, 1) for each in letters(node)]) == [b"large" * 400, b"small"]
        assert (await queue_of(node)).ledger.doomed_count == 0
        machine_failures = [str(each) for each in cluster.failures]
        assert all("500" in each for each in machine_failures), machine_failures
        cluster.failures.clear()

    await machine.host.run(steps())


@with_brokers(1, configs=FEW)
async def test_a_topic_that_would_be_its_own_graveyard_has_the_usual_one(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node, group={"share.delivery.count.limit": "1", "millpond.dead.letter.topic": TOPIC})
        await send(node, *messages("poison"))
        await receive(node)
        await say(node, Outcome.RELEASE, 0)
        await until(lambda: len(letters(node)) == 1)

    await machine.host.run(steps())


@with_brokers(1, configs=FEW)
async def test_what_waits_to_be_tried_again_may_outlive_its_time(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        backoff = {"millpond.retry.backoff.ms": "600000", "millpond.retry.backoff.max.ms": "600000"}
        await make(node, group={"millpond.expired": "dead-letter", **backoff})
        await send(node, *messages("late", headers=lasting(1_000)))
        await receive(node)
        await say(node, Outcome.RELEASE, 0)
        await until(lambda: len(letters(node)) == 1, seconds=15)
        assert (await queue_of(node)).ledger.counts["expired"] == 1

    await machine.host.run(steps())


def lasting(ms: int) -> Headers:
    return (("millpond-ttl-ms", b"%d" % ms),)


@with_brokers(1, configs=FEW)
async def test_what_nobody_comes_for_is_a_dead_letter_when_its_time_is_over(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node, group={"millpond.expired": "dead-letter"})
        assert await receive(node) == []
        await send(node, *messages("short", headers=lasting(1_000)), *messages("plain"))
        await send(node, *messages("long", headers=lasting(60_000)))
        await asyncio.sleep(10)
        queue = await queue_of(node)
        assert values([(each, 1) for each in letters(node)]) == [b"short"]
        assert (queue.ledger.counts["expired"], queue.depth(Lane.NORMAL)) == (1, 2)
        await asyncio.sleep(60)
        assert values([(each, 1) for each in letters(node)]) == [b"short", b"long"]
        assert values(await receive(node)) == [b"plain"]

    await machine.host.run(steps())


@pytest.mark.parametrize("how", [{}, {"millpond.order": "key"}, {"millpond.priority": "off"}], ids=str)
def test_what_somebody_has_may_outlive_its_time_and_is_looked_for_again(how: dict[str, str]) -> None:
    @with_brokers(1, configs=FEW)
    async def run(cluster: SimCluster) -> None:
        machine = cluster[1]

        async def steps() -> None:
            node = node_of(machine)
            await make(node, group=how)
            await send(node, *messages("done", "held", "held", headers=lasting(1_000)))
            assert len(await receive(node)) == 3
            await say(node, Outcome.ACCEPT, 0)
            await asyncio.sleep(LOCK_MS / 1000 - 1)
            queue = await queue_of(node)
            assert queue.ledger.counts["expired"] == 0
            await asyncio.sleep(20)
            assert queue.ledger.counts["expired"] == 2
            assert queue.ledger.start == 3

        await machine.host.run(steps())

    run(1)


@with_brokers(1, configs=FEW)
async def test_what_has_outlived_its_time_stays_counted_once_across_a_power_cut(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def before() -> None:
        node = node_of(machine)
        await make(node)
        assert await receive(node) == []
        await send(node, *messages("gone", headers=lasting(1_000)))
        await send(node, *messages("late", headers=lasting(120_000)))
        await asyncio.sleep(10)
        assert (await queue_of(node)).ledger.start == 1

    async def after() -> None:
        queue = await queue_of(node_of(machine))
        assert queue.ledger.start == 1
        await asyncio.sleep(150)
        assert (queue.ledger.start, queue.ledger.counts["expired"]) == (2, 1)

    await machine.host.run(before())
    machine.cut_power()
    await machine.start()
    await machine.host.run(after())


@with_brokers(1, configs=FEW)
async def test_messages_of_one_key_come_one_at_a_time_and_others_go_past(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node, group={"millpond.order": "key", "millpond.retry.backoff.ms": "1000"})
        keyed = [NewRecord(f"{key}{number}".encode(), key=key.encode()) for number in (1, 2) for key in "xyz"]
        await send(node, *keyed)
        assert values(await receive(node)) == [b"x1", b"y1", b"z1"]
        await say(node, Outcome.RELEASE, 0)
        await say(node, Outcome.ACCEPT, 1)
        assert values(await receive(node)) == [b"y2"], "x waits for its first, which has to come again"
        await asyncio.sleep(1)
        assert values(await receive(node)) == [b"x1"]
        await say(node, Outcome.ACCEPT, 0)
        assert values(await receive(node)) == [b"x2"]

    await machine.host.run(steps())


@with_brokers(1, configs=FEW)
async def test_higher_priorities_come_first_and_keep_it_when_they_come_again(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node, group={"millpond.priority": "strict"})
        for text, priority in (("low", b"low"), ("normal", b"5"), ("high", b"high"), ("higher", b"9")):
            await send(node, *messages(text, headers=(("millpond-priority", priority),)))
        assert values(await receive(node, 2)) == [b"high", b"higher"]
        await say(node, Outcome.RELEASE, 2)
        assert values(await receive(node, 1)) == [b"high"]
        assert values(await receive(node, 2)) == [b"normal", b"low"]

    await machine.host.run(steps())


@with_brokers(1, configs=FEW)
async def test_a_point_to_point_topic_forgets_what_all_its_groups_have_acknowledged(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node, topic=(("millpond.retention", "acked"),))
        for text in "abc":
            await send(node, *messages(text))
        other = "auditors"
        await receive(node, 2)
        await receive(node, 1, group=other)
        await say(node, Outcome.ACCEPT, 0, 1)
        assert await node.queues.acknowledged_by_all(partition_of(node)) == 0
        queue = await queue_of(node, other)
        await queue.acknowledge([Verdict(0, 0, Outcome.ACCEPT)], holder="anna")
        await until(lambda: partition_of(node).log.start_offset == 1, seconds=10)
        assert values(await receive(node, group=other)) == [b"b", b"c"]

    await machine.host.run(steps())


@with_brokers(1, configs=FEW)
async def test_a_point_to_point_topic_keeps_what_waits_for_its_time(cluster: SimCluster) -> None:
    """Also where there is more than one round carries on."""
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node, topic=(("millpond.retention", "acked"), ("millpond.delay", "on")))
        for text in "abc":
            await send(node, *messages(text, headers=(("millpond-delay-ms", b"60000"),)))
        await send(node, *messages("now"))
        assert values(await receive(node)) == [b"now"]
        await say(node, Outcome.ACCEPT, 3)
        with patch.multiple(delays, CARRIES_PER_BATCH=1, CARRIED_BYTES_MAX=1):
            await until(lambda: partition_of(node).log.start_offset > 0, seconds=40)
        await asyncio.sleep(60)
        assert values(await receive(node)) == [b"a", b"b", b"c"]

    await machine.host.run(steps())


@with_brokers(1, configs=FEW)
async def test_a_batch_that_nobody_can_read_holds_up_no_letter(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node)
        unreadable = bytearray(encode_batch(messages("x" * 50), codec=Codec.GZIP))
        unreadable[HEADER_BYTES:] = bytes(len(unreadable) - HEADER_BYTES)
        struct.pack_into("!I", unreadable, 17, crc32c(unreadable[21:]))
        partition = partition_of(node)
        await partition.wait_visible(partition.append(unreadable))
        await send(node, *messages("bad"))
        queue = await queue_of(node)
        queue.take(Want("anna", 10, 1 << 20, LOCK_MS))
        await queue.keep()
        await say(node, Outcome.REJECT, 0, 1)
        await until(lambda: len(letters(node)) > 1)
        assert [each.value for each in letters(node)] == [None, b"bad"]

    await machine.host.run(steps())


@with_brokers(1, configs=FEW)
async def test_letters_wait_for_nothing_and_outlive_the_message(cluster: SimCluster) -> None:
    """Of a message that was delayed, or came by a schedule: else its letter would, too, where that topic delays."""
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node, group={"share.delivery.count.limit": "1"}, topic=(("millpond.delay", "on"),))
        asked = (("millpond-delay-ms", b"10"), ("millpond-ttl-ms", b"60000"))
        await send(node, *messages("bad", headers=asked))
        await asyncio.sleep(1)
        ((record, _),) = await receive(node)
        await say(node, Outcome.REJECT, record.offset)
        await until(lambda: len(letters(node)) > 0)
        headers = dict(letters(node)[0].headers)
        assert not headers.keys() & {"millpond-delay-ms", "millpond-ttl-ms"}
        assert headers["millpond-dead-ttl-ms"] == b"60000"

    await machine.host.run(steps())


@with_brokers(1, configs=FEW)
async def test_a_group_with_new_settings_goes_on_where_it_was(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node)
        await send(node, *messages("a", "b"))
        await receive(node, 1)
        before = await queue_of(node)
        await configure(node, **{"share.delivery.count.limit": "1"})
        assert before.failure is not None
        assert not isinstance(before.failure, NotLeader)
        assert values(await receive(node)) == [b"b"]
        await say(node, Outcome.ACCEPT, 0)

    await machine.host.run(steps())


@with_brokers(1, configs=FEW)
async def test_a_queue_is_as_deep_after_a_power_cut_as_before(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def before() -> None:
        node = node_of(machine)
        await make(node)
        await send(node, *messages(*"abcdefg"))
        await receive(node, 5)
        await say(node, Outcome.ACCEPT, 0, 2)
        await say(node, Outcome.RELEASE, 3)
        assert await depths(node) == (3, 2)

    async def depths(node: Node) -> tuple[int, int]:
        queue = await queue_of(node)
        return sum(map(queue.depth, Lane)), queue.ledger.leased

    async def after() -> None:
        node = node_of(machine)
        assert await depths(node) == (3, 2), "d, f and g are ready, b and e are held"
        assert values(await receive(node, 1)) == [b"d"]
        assert await depths(node) == (2, 3)

    await machine.host.run(before())
    machine.cut_power()
    await machine.start()
    await machine.host.run(after())


@with_brokers(1, configs=FEW)
async def test_a_queue_that_nobody_asks_for_any_more_goes_on_after_a_power_cut(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def before() -> None:
        node = node_of(machine)
        await make(node, group={"share.delivery.count.limit": "1"})
        await send(node, *messages("a", "b"))
        assert values(await receive(node, 1)) == [b"a"]

    async def after() -> None:
        node = node_of(machine)
        await until(lambda: [each.value for each in letters(node)] == [b"a"])  # its lease ran out
        assert [queue.group for queue in node.queues] == [GROUP], "a scrape tells of it"
        await configure(node, **{"millpond.order": "key"})
        assert list(node.queues) == []
        await until(lambda: [queue.settings.is_ordered_by_key for queue in node.queues] == [True])

    await machine.host.run(before())
    machine.cut_power()
    await machine.start()
    await machine.host.run(after())


@with_brokers(1, configs=FEW)
async def test_whoever_waits_for_a_queue_may_be_gone_before_it_cannot_be_opened(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node)
        asked, refused = asyncio.Event(), asyncio.Event()

        async def load(*_: object) -> list[bytes]:
            asked.set()
            await refused.wait()
            raise CoordinatorUnavailable("nobody keeps it at the moment")

        with patch.object(States, "load", load):
            waiting = asyncio.ensure_future(queue_of(node))
            await asked.wait()
            waiting.cancel()
            await asyncio.wait([waiting])
            refused.set()
            await asyncio.sleep(1)  # the loop would tell of an error that nobody was told

    await machine.host.run(steps())


@with_brokers(1, configs=FEW)
async def test_a_group_that_was_deleted_is_not_begun_again(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node)
        await send(node, *messages("a"))
        assert values(await receive(node)) == [b"a"]
        await node.states.forget_group(KIND, GROUP)
        node.queues.reload(GROUP, partition_of(node).topic_id, 0)
        await node.queues.open_kept(node.partitions)
        assert list(node.queues) == []
        assert await node.states.find(KIND) == {}

    await machine.host.run(steps())


@with_brokers(1, configs=FEW)
async def test_a_scrape_tells_how_deep_a_queue_is_and_how_old(cluster: SimCluster) -> None:
    machine = cluster[1]

    async def steps() -> None:
        node = node_of(machine)
        await make(node)
        await send(node, *messages("a", "b", "c"))
        await asyncio.sleep(3)
        await receive(node, 2)
        await say(node, Outcome.RELEASE, 1)
        to = Exposition()
        await add_queues(to, node)
        found = Scrape(to.render().decode())
        labels = {"group": GROUP, "topic": TOPIC, "partition": "0"}
        assert found.value("millpond_queue_ready", **labels, lane="normal") == 2
        assert found.value("millpond_queue_in_flight", **labels) == 1
        assert found.value("millpond_queue_unfinished", **labels) == 2
        assert found.value("millpond_queue_oldest_seconds", **labels) >= 3
        assert found.value("millpond_queue_messages_total", **labels, what="delivered") == 2

    await machine.host.run(steps())
