"""Delayed messages of one broker: parked, delivered, cancelled, put off; over restarts, power cuts and retention."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from millpond.app.broker import Broker
from millpond.app.broker_settings import BrokerSettings
from millpond.broker.drivers import delays as driver
from millpond.broker.drivers.delays import PartitionDelays
from millpond.broker.drivers.partition import Partition
from millpond.broker.operations import produce
from millpond.broker.operations.delete_records import delete_records
from millpond.core.delivery import delay_rows
from millpond.core.delivery.delay_headers import CRON, DELAY, DELIVER_AT, MESSAGE_ID, NEXT_AT, SENT_AT
from millpond.core.metadata.controller import NewTopic, create_topics
from millpond.model.errors import DiskFull, InvalidRecord, LogCorrupted, MessageNotFound
from millpond.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from millpond.model.ids import Sequence as SequenceNumber
from millpond.protocol.compression import Codec
from millpond.protocol.records import Headers, NewRecord, Record, decode_batch, encode_batch, iter_batches, parse_header
from millpond.testing import SimDisk, Simulation, simulate
from millpond.testing.hosts import current_host

TOPIC = "orders"
HOUR_MS = 3_600_000
Steps = Callable[[Simulation, SimDisk], Awaitable[None]]


def on_a_simulated_disk(steps: Steps) -> Callable[[], None]:
    def test() -> None:
        async def scenario(sim: Simulation) -> None:
            await steps(sim, SimDisk(sim.loop.chance("disk")))

        simulate(1, scenario)

    test.__name__ = steps.__name__
    return test


def fail(error: BaseException) -> None:
    raise error


async def start(sim: Simulation, disk: SimDisk, **configs: str) -> Broker:
    settings = BrokerSettings(
        data_directory="data", port=0, upkeep_seconds=1, configs={"offsets.topic.num.partitions": "1", **configs}
    )
    return await Broker.start(settings, filesystem=disk, clock=sim.clock, rng=random.Random(7), on_error=fail)


async def start_with_topic(sim: Simulation, disk: SimDisk, **topic: str) -> Broker:
    broker = await start(sim, disk)
    node = broker.node
    configs = tuple({"millpond.delay": "on", **topic}.items())
    wanted = [NewTopic(name=TOPIC, partitions=1, configs=configs)]
    await node.metadata.decide(lambda image: create_topics(image, wanted, static=node.static, rng=node.rng))
    return broker


def crash(broker: Broker, disk: SimDisk) -> None:
    for task in broker._tasks:
        task.cancel()
    delays_of(broker).close()
    disk.crash()


def partition_of(broker: Broker) -> Partition:
    found = broker.node.partitions.named(TOPIC, 0)
    assert found is not None
    return found


def delays_of(broker: Broker) -> PartitionDelays:
    found = broker.node.delays.of(TOPIC, 0)
    assert found is not None
    return found


def delayed(value: bytes, ms: int) -> NewRecord:
    return NewRecord(value, key=b"k", timestamp=TimestampMs(5), headers=((DELAY, b"%d" % ms),))


async def send(
    broker: Broker, *records: NewRecord, sequence: int | None = None, codec: Codec = Codec.NONE
) -> produce.Produced:
    batch = encode_batch(
        [each._replace(timestamp=TimestampMs(max(0, each.timestamp))) for each in records],
        codec=codec,
        producer_id=ProducerId(-1 if sequence is None else 9),
        producer_epoch=ProducerEpoch(-1 if sequence is None else 0),
        base_sequence=SequenceNumber(-1 if sequence is None else sequence),
    )
    pending = produce.begin(partition_of(broker), batch, now_ms=broker.node.clock.wall_ms(), acks_all=True)
    return (await produce.finish([pending]))[0]


async def sent(broker: Broker, *records: NewRecord, sequence: int | None = None, codec: Codec = Codec.NONE) -> int:
    produced = await send(broker, *records, sequence=sequence, codec=codec)
    if produced.error is not None:
        raise produced.error
    return produced.base_offset


def seen(broker: Broker) -> list[Record]:
    """By a consumer, from the start."""
    partition, records = partition_of(broker), []
    at = partition.log.start_offset
    while at < partition.high_watermark:
        part = partition.read(at, bytes_max=1 << 20)
        for position, header in iter_batches(part.data):
            if not header.is_control:
                records += decode_batch(part.data, position)
        at = part.next_offset
    return records


def values(broker: Broker) -> list[bytes | None]:
    return [record.value for record in seen(broker)]


async def until(fact: Callable[[], bool]) -> None:
    while not fact():  # noqa: ASYNC110 - in virtual time
        await asyncio.sleep(0.001)


@on_a_simulated_disk
async def test_a_delayed_message_is_seen_when_it_is_due_and_not_before(sim: Simulation, disk: SimDisk) -> None:
    broker = await start_with_topic(sim, disk)
    began = sim.clock.wall_ms()
    assert await sent(broker, delayed(b"later", 5_000)) == 0
    assert await sent(broker, NewRecord(b"now")) == 1
    await asyncio.sleep(4.9)
    assert values(broker) == [b"now"]
    await until(lambda: len(seen(broker)) == 2)
    message = seen(broker)[1]
    assert (message.key, message.value) == (b"k", b"later")
    assert began + 5_000 <= message.timestamp <= sim.clock.wall_ms() <= began + 5_050
    assert message.headers == ((DELAY, b"5000"), (MESSAGE_ID, b"orders/0/0"), (SENT_AT, b"5"))
    assert len(delays_of(broker)) == 0
    await broker.stop()


def mixed() -> list[NewRecord]:
    return [NewRecord(b"now", timestamp=TimestampMs(7)), delayed(b"later", 5_000), NewRecord(b"now too", key=b"k")]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_of_a_batch_only_what_asks_for_a_delay_waits_and_all_have_the_offsets_that_were_told(codec: Codec) -> None:
    async def scenario(sim: Simulation) -> None:
        broker = await start_with_topic(sim, SimDisk(sim.loop.chance("disk")))
        base = await sent(broker, *mixed(), sequence=0, codec=codec)
        now, too = seen(broker)
        assert [(each.offset, each.value, each.headers) for each in (now, too)] == [
            (base, b"now", ()),
            (base + 2, b"now too", ()),
        ]
        assert now.timestamp == 7, "as its producer said: it has not waited"
        assert [each.id for each in delays_of(broker).first(5)] == [base + 1]
        assert await sent(broker, *mixed(), sequence=0, codec=codec) == base, "sent again, it is known again"
        assert await sent(broker, NewRecord(b"next"), sequence=3) == base + 3
        await until(lambda: len(seen(broker)) == 4)
        assert dict(seen(broker)[3].headers)[MESSAGE_ID] == b"orders/0/%d" % (base + 1)
        await asyncio.sleep(10)
        assert values(broker) == [b"now", b"now too", b"next", b"later"]
        await broker.stop()

    simulate(1, scenario)


@on_a_simulated_disk
async def test_what_waits_of_a_mixed_batch_is_cancelled_carried_on_and_found_after_a_crash(
    sim: Simulation, disk: SimDisk
) -> None:
    broker = await start_with_topic(sim, disk, **{"segment.bytes": "2000", "retention.ms": "2000"})
    base = await sent(broker, delayed(b"gone", 5_000), NewRecord(b"now"), delayed(b"later", 20_000), sequence=0)
    crash(broker, disk)
    broker = await start(sim, disk)
    await until(lambda: delays_of(broker).is_loaded)
    assert [each.id for each in delays_of(broker).first(5)] == [base, base + 2]
    await delays_of(broker).cancel(base)
    for _ in range(12):
        await sent(broker, NewRecord(b"." * 300, timestamp=TimestampMs(sim.clock.wall_ms())))
        await asyncio.sleep(1)
    assert partition_of(broker).log.start_offset > base + 2, "retention has come by"
    crash(broker, disk)
    broker = await start(sim, disk)
    await until(lambda: any(each.value == b"later" for each in seen(broker)))
    message = next(each for each in seen(broker) if each.value == b"later")
    assert dict(message.headers)[MESSAGE_ID] == b"orders/0/%d" % (base + 2)
    await broker.stop()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_batch_of_which_only_the_note_was_written_does_not_count_before_it_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    def failing(self: Partition, batch: bytes, *rest: object, is_own: bool = False) -> object:
        if is_own and not parse_header(batch).is_control:
            raise DiskFull("no space for the rest")
        return original(self, batch, *rest, is_own=is_own)  # type: ignore[arg-type]

    original = Partition.append

    async def scenario(sim: Simulation) -> None:
        disk = SimDisk(sim.loop.chance("disk"))
        broker = await start_with_topic(sim, disk)
        await until(lambda: delays_of(broker).is_loaded)
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append", failing)
            assert isinstance((await send(broker, *mixed(), sequence=0)).error, DiskFull)
        assert len(delays_of(broker)) == 0
        if restarts:
            await broker.stop()
            broker = await start(sim, disk)
            await until(lambda: delays_of(broker).is_loaded)
        assert len(delays_of(broker)) == 0
        base = await sent(broker, *mixed(), sequence=0)
        if restarts:
            crash(broker, disk)
            broker = await start(sim, disk)
            await until(lambda: delays_of(broker).is_loaded)
        assert [each.id for each in delays_of(broker).first(5)] == [base + 1]
        await asyncio.sleep(10)
        assert values(broker) == [b"now", b"now too", b"later"]
        await broker.stop()

    simulate(1, scenario)


@on_a_simulated_disk
async def test_what_waits_is_delivered_once_after_restarts_and_power_cuts(sim: Simulation, disk: SimDisk) -> None:
    broker = await start_with_topic(sim, disk)
    for number in range(20):
        await sent(broker, delayed(b"%d" % number, 1_000 * number), delayed(b"%d!" % number, 1_000 * number + 700))
    expected = [b"%d%s" % (number, mark) for number in range(20) for mark in (b"", b"!")]
    for life in range(8):
        await asyncio.sleep(3)
        if life % 2:
            await broker.stop()
        else:
            crash(broker, disk)
        broker = await start(sim, disk)
    await until(lambda: len(seen(broker)) >= len(expected))
    await asyncio.sleep(5)
    assert sorted(values(broker), key=str) == sorted(expected, key=str)
    assert len(delays_of(broker)) == 0
    await broker.stop()


@on_a_simulated_disk
async def test_records_without_a_delay_keep_their_order_beside_one_with_it(sim: Simulation, disk: SimDisk) -> None:
    broker = await start_with_topic(sim, disk)
    await until(lambda: delays_of(broker).is_loaded)
    await sent(broker, NewRecord(b"a"), delayed(b"late", 1_000), NewRecord(b"b"))
    await sent(broker, NewRecord(b"c"))
    assert values(broker) == [b"a", b"b", b"c"]
    await until(lambda: len(seen(broker)) == 4)
    await broker.stop()


@on_a_simulated_disk
async def test_a_batch_that_is_sent_again_is_parked_once(sim: Simulation, disk: SimDisk) -> None:
    broker = await start_with_topic(sim, disk)
    first = await sent(broker, delayed(b"a", 500), delayed(b"b", 800), sequence=0)
    assert await sent(broker, delayed(b"a", 500), delayed(b"b", 800), sequence=0) == first
    assert await sent(broker, delayed(b"c", 600), sequence=2) == first + 2
    await until(lambda: len(seen(broker)) == 3)
    crash(broker, disk)
    broker = await start(sim, disk)
    assert await sent(broker, delayed(b"c", 600), sequence=2) == first + 2
    await asyncio.sleep(3)
    assert values(broker) == [b"a", b"c", b"b"]
    await broker.stop()


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_looked_into(codec: Codec) -> None:
    async def scenario(sim: Simulation) -> None:
        broker = await start_with_topic(sim, SimDisk(sim.loop.chance("disk")))
        await sent(broker, delayed(b"x" * 500, 100), NewRecord(b"y" * 500), codec=codec)
        await until(lambda: len(seen(broker)) == 2)
        assert values(broker) == [b"y" * 500, b"x" * 500]
        await broker.stop()

    simulate(1, scenario)


@on_a_simulated_disk
async def test_cancelled_and_put_off_messages_stay_so_after_a_power_cut(sim: Simulation, disk: SimDisk) -> None:
    broker = await start_with_topic(sim, disk)
    ids = [await sent(broker, delayed(b"%d" % number, 10_000)) for number in range(3)]
    await delays_of(broker).cancel(ids[0])
    await delays_of(broker).reschedule(ids[1], sim.clock.wall_ms() + 20_000)
    crash(broker, disk)
    broker = await start(sim, disk)
    await until(lambda: delays_of(broker).is_loaded)
    assert [each.id for each in delays_of(broker).first(10)] == [ids[2], ids[1]]
    with pytest.raises(MessageNotFound, match=f"orders/0/{ids[0]} waits"):
        await delays_of(broker).cancel(ids[0])
    await asyncio.sleep(12)
    assert values(broker) == [b"2"]
    await delays_of(broker).reschedule(ids[1], sim.clock.wall_ms() - 1)
    assert values(broker) == [b"2", b"1"]
    await broker.stop()


@on_a_simulated_disk
async def test_clock_jumps_make_nothing_early_and_nothing_lost(sim: Simulation, disk: SimDisk) -> None:
    broker = await start_with_topic(sim, disk)
    await until(lambda: delays_of(broker).is_loaded)
    at = sim.clock.wall_ms() + HOUR_MS
    await sent(broker, NewRecord(b"at", headers=((DELIVER_AT, b"%d" % at),)))
    jump = partial(sim.clock.jump, current_host())
    jump(ms=-2 * HOUR_MS)
    await sent(broker, delayed(b"after", 1_000))
    await until(lambda: len(seen(broker)) == 1)
    assert values(broker) == [b"after"]
    await asyncio.sleep(HOUR_MS / 1000)
    assert values(broker) == [b"after"]
    jump(ms=2 * HOUR_MS)
    await asyncio.sleep(1.1)
    assert values(broker) == [b"after", b"at"]
    await broker.stop()


@pytest.mark.parametrize(
    ("headers", "what"),
    [
        (((DELAY, b"-1"),), "millpond-delay-ms is '-1'; allowed is a whole number"),
        (((DELAY, b"soon"),), "millpond-delay-ms is 'soon'"),
        (((DELAY, None),), "millpond-delay-ms is ''"),
        (((DELAY, b"31536000001"),), r"allowed are at most 31536000000 ms \(millpond.delay.max.ms\)"),
        (((DELIVER_AT, b"9999999999999"),), "millpond.delay.max.ms"),
        (((DELIVER_AT, b"2026-13-01"),), "ISO 8601 with a zone"),
        (((DELIVER_AT, b"2026-07-01T12:00:00"),), "ISO 8601 with a zone"),
        (((DELIVER_AT, "ÿ".encode()),), "allowed is text in ASCII"),
        (((CRON, b"* * *"),), "five fields"),
        (((CRON, b"61 * * * *"),), "'61' is no minute"),
        (((CRON, b"0 0 30 2 *"),), "never comes true"),
        (((DELAY, b"1"), (CRON, b"* * * * *")), "allowed is one of"),
    ],
)
def test_what_cannot_be_is_refused_with_its_header_named(headers: Headers, what: str) -> None:
    async def scenario(sim: Simulation) -> None:
        broker = await start_with_topic(sim, SimDisk(sim.loop.chance("disk")))
        with pytest.raises(InvalidRecord, match=what):
            await sent(broker, NewRecord(b"fine"), NewRecord(b"bad", headers=headers))
        assert partition_of(broker).log.next_offset == 0
        await broker.stop()

    simulate(1, scenario)


@on_a_simulated_disk
async def test_a_schedule_fires_again_and_again_until_it_is_cancelled(sim: Simulation, disk: SimDisk) -> None:
    broker = await start_with_topic(sim, disk)
    id_ = await sent(broker, NewRecord(b"tick", headers=((CRON, b"*/10 * * * *"),)))
    await asyncio.sleep(1_900)
    crash(broker, disk)
    broker = await start(sim, disk)
    await asyncio.sleep(700)
    times = [record.timestamp // 60_000 % 60 for record in seen(broker)]
    assert times == [10, 20, 30, 40]
    assert all(record.timestamp % 60_000 < 100 for record in seen(broker))
    nexts = [dict(record.headers)[NEXT_AT] for record in seen(broker)]
    assert [int(each or b"") // 60_000 % 60 for each in nexts] == [20, 30, 40, 50]
    crash(broker, disk)
    await asyncio.sleep(3 * 3_600)
    broker = await start(sim, disk)
    await asyncio.sleep(5)
    assert len(seen(broker)) == 5, "what was missed while the broker was down comes once"
    await delays_of(broker).cancel(id_)
    await asyncio.sleep(3_600)
    assert len(seen(broker)) == 5
    await broker.stop()


@on_a_simulated_disk
async def test_retention_carries_on_what_waits(sim: Simulation, disk: SimDisk) -> None:
    broker = await start_with_topic(sim, disk, **{"segment.bytes": "2000", "retention.ms": "60000"})
    ids = [await sent(broker, delayed(b"%d" % number, 400_000)) for number in range(10)]
    for _ in range(30):
        await asyncio.sleep(10)
        stamp = TimestampMs(sim.clock.wall_ms())
        await sent(broker, NewRecord(b"." * 300, timestamp=stamp))
    partition = partition_of(broker)
    assert partition.log.start_offset > ids[-1] + 1
    assert [each.id for each in delays_of(broker).first(20)] == ids
    assert all(each.place >= partition.log.start_offset for each in delays_of(broker).first(20))
    crash(broker, disk)
    broker = await start(sim, disk)
    await until(lambda: delays_of(broker).is_loaded)
    assert [each.id for each in delays_of(broker).first(20)] == ids
    await delays_of(broker).cancel(ids[3])
    await asyncio.sleep(90)  # they are due soon after; to look at the whole log until then takes longer than all else
    await until(lambda: b"9" in values(broker))
    assert [each for each in values(broker) if len(each or b"") == 1] == [b"%d" % n for n in range(10) if n != 3]
    await broker.stop()


@on_a_simulated_disk
async def test_deleting_records_deletes_nothing_that_waits(sim: Simulation, disk: SimDisk) -> None:
    broker = await start_with_topic(sim, disk)
    await sent(broker, delayed(b"later", 60_000))
    await sent(broker, NewRecord(b"gone"))
    await until(lambda: delays_of(broker).is_loaded)
    assert await delete_records(partition_of(broker), Offset(-1)) == 2
    assert values(broker) == []
    await broker.stop()
    broker = await start(sim, disk)
    await asyncio.sleep(61)
    assert values(broker) == [b"later"]
    await broker.stop()


def test_a_checkpoint_says_the_same_as_the_whole_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CHECKPOINT_BYTES", 2_000)

    async def scenario(sim: Simulation) -> None:
        rng, disk = random.Random(3), SimDisk(sim.loop.chance("disk"))
        broker = await start_with_topic(sim, disk, **{"segment.bytes": "3000"})
        await until(lambda: delays_of(broker).is_loaded)
        due: dict[int, int] = {}
        for number in range(300):
            delay = rng.choice((50, 5_000, 10_000_000))
            id_ = await sent(broker, delayed(b"%d" % number, delay))
            due[id_] = sim.clock.wall_ms() + delay
            if number % 50 == 49:
                await asyncio.sleep(1)
        await asyncio.sleep(6)
        waiting = delays_of(broker).first(1_000)
        assert len(waiting) > 50
        for life in range(3):
            crash(broker, disk)
            broker = await start(sim, disk)
            await until(lambda broker=broker: delays_of(broker).is_loaded)  # type: ignore[misc]
            found = await delays_of(broker)._last_checkpoint()
            assert found > partition_of(broker).log.start_offset, life
            assert delays_of(broker).first(1_000) == waiting
        assert sorted(values(broker), key=str) == sorted(set(values(broker)), key=str)
        assert len(seen(broker)) + len(waiting) == 300
        await broker.stop()

    simulate(1, scenario)


def test_what_comes_while_the_log_is_read_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "SCAN_BYTES", 1)
    gate = asyncio.Event()
    original = PartitionDelays._last_checkpoint

    async def wait_at_the_gate(self: PartitionDelays) -> Offset:
        await gate.wait()
        return await original(self)

    async def scenario(sim: Simulation) -> None:
        disk = SimDisk(sim.loop.chance("disk"))
        broker = await start_with_topic(sim, disk)
        for number in range(200):
            await sent(broker, delayed(b"%d" % number, 2_000))
        crash(broker, disk)
        monkeypatch.setattr(PartitionDelays, "_last_checkpoint", wait_at_the_gate)
        broker = await start(sim, disk)
        await sent(broker, delayed(b"new", 500), NewRecord(b"at once"))
        gate.set()
        for _ in range(3):
            await asyncio.sleep(0)
        await sent(broker, delayed(b"newer", 400))
        assert values(broker) == [b"at once"]
        await until(lambda: len(seen(broker)) == 203)
        assert set(values(broker)) == {b"new", b"newer", b"at once", *(b"%d" % number for number in range(200))}
        await broker.stop()

    simulate(1, scenario)


@on_a_simulated_disk
async def test_a_disk_that_is_full_delays_deliveries_and_loses_none(sim: Simulation, disk: SimDisk) -> None:
    broker = await start_with_topic(sim, disk)
    told: list[BaseException] = []
    delays_of(broker)._shared = delays_of(broker)._shared._replace(on_error=told.append)
    await until(lambda: delays_of(broker).is_loaded)
    for number in range(5):
        await sent(broker, delayed(b"%d" % number, 1_000 + number))
    disk.fail("write", error=28, times=3, path_pattern="*/orders-*")
    await until(lambda: len(seen(broker)) == 5)
    assert values(broker) == [b"%d" % number for number in range(5)]
    assert told
    assert all(isinstance(each, DiskFull) for each in told)
    await broker.stop()


@on_a_simulated_disk
async def test_no_client_can_pass_for_the_broker(sim: Simulation, disk: SimDisk) -> None:
    broker = await start_with_topic(sim, disk)
    id_ = await sent(broker, delayed(b"mine", 2_000))
    forged = NewRecord(b"forged", headers=((MESSAGE_ID, b"orders/0/%d" % id_), (SENT_AT, b"0")))
    await sent(broker, forged)
    await sent(broker, forged._replace(value=b"late", headers=(*forged.headers, (DELAY, b"1"))))
    await until(lambda: len(seen(broker)) == 3)
    late = seen(broker)[1]
    assert late.value == b"late"
    assert [value for name, value in late.headers if name == MESSAGE_ID] == [b"orders/0/2"]
    crash(broker, disk)
    broker = await start(sim, disk)
    await asyncio.sleep(3)
    assert values(broker) == [b"forged", b"late", b"mine"]
    await broker.stop()


@on_a_simulated_disk
async def test_a_record_that_has_rotted_since_it_was_found_is_not_delivered(sim: Simulation, disk: SimDisk) -> None:
    broker = await start_with_topic(sim, disk)
    await until(lambda: delays_of(broker).is_loaded)
    told: list[BaseException] = []
    delays_of(broker)._shared = delays_of(broker)._shared._replace(on_error=told.append)
    await sent(broker, delayed(b"a" * 50, 1_000), delayed(b"b" * 50, 1_500))
    await until(lambda: len(seen(broker)) == 1)  # its batch was read, and was whole
    log = partition_of(broker).log
    path, end = log.segments.active.path, log.next_offset
    disk.rot(path, position=disk.open(path).read(0, 500).index(b"b" * 50) + 7, bit=2)
    log.segments.active._map = memoryview(b"")  # a simulated map is a copy: it does not rot with its file
    await asyncio.sleep(3)
    assert log.next_offset == end
    assert len(delays_of(broker)) == 1
    assert told
    assert all(isinstance(each, LogCorrupted) for each in told)
    await broker.stop()


@on_a_simulated_disk
async def test_where_records_lie_is_known_before_they_are_due(sim: Simulation, disk: SimDisk) -> None:
    broker = await start_with_topic(sim, disk)
    for number in range(50):
        await sent(broker, delayed(b"%d" % number, 60_000 + number))
    crash(broker, disk)
    broker = await start(sim, disk)
    await until(lambda: delays_of(broker).is_loaded)
    places = [each.place for each in delays_of(broker).first(50)]
    shelves = delays_of(broker)._shelves
    assert not any(place in shelves for place in places)
    await until(lambda: all(place in shelves for place in places))
    assert not seen(broker)
    await until(lambda: len(seen(broker)) == 50)
    assert values(broker) == [b"%d" % number for number in range(50)]
    await broker.stop()


def test_a_checkpoint_of_many_parts_holds_nobody_up_and_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CHECKPOINT_BYTES", 50_000)
    monkeypatch.setattr(delay_rows, "CHUNK_ROWS", 8)

    async def scenario(sim: Simulation) -> None:
        rng, disk = random.Random(3), SimDisk(sim.loop.chance("disk"))
        broker = await start_with_topic(sim, disk, **{"segment.bytes": "20000"})
        await until(lambda: delays_of(broker).is_loaded)
        for number in range(600):
            await sent(broker, delayed(b"%d" % number, rng.choice((5, 500, 10_000_000))))
        await asyncio.sleep(2)
        waiting = delays_of(broker).first(1_000)
        assert len(waiting) > 100
        crash(broker, disk)
        broker = await start(sim, disk)
        await until(lambda: delays_of(broker).is_loaded)
        assert await delays_of(broker)._last_checkpoint() > partition_of(broker).log.start_offset
        assert delays_of(broker).first(1_000) == waiting
        assert len(seen(broker)) + len(waiting) == 600
        await broker.stop()

    simulate(1, scenario)
