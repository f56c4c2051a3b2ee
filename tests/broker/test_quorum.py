"""The driver of Raft: a disk that is full or fails, snapshots and what they replace, a directory from before Raft."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from millpond.app import parts as app_parts
from millpond.broker.drivers.quorum import QuorumSettings
from millpond.broker.drivers.quorum_store import DIRECTORY, SNAPSHOT
from millpond.core.metadata.changes import Change, decode_change, decode_image, encode_change, encode_image
from millpond.core.metadata.commands import AllocateProducerIds, Command, CreateTopic, Endpoint, RegisterBroker
from millpond.core.metadata.encoding import encode
from millpond.core.metadata.image import EMPTY, Image, apply_all
from millpond.core.raft.settings import RaftSettings
from millpond.model.errors import DiskFailed, DiskFull, PromisesForgotten, StorageError, UnreadableCommand
from millpond.model.ids import LeaderEpoch, TimestampMs
from millpond.protocol.records import encode_values
from millpond.storage.log import Log
from millpond.testing import Simulation, simulate
from tests.broker.clusters import Machine, SimCluster
from tests.broker.test_cluster import all_have, until

METADATA = f"*/{DIRECTORY}/*"
Steps = Callable[[Machine], Awaitable[None]]


def with_one(steps: Steps) -> Callable[[], None]:
    """A machine for a broker that is alone."""

    def test() -> None:
        async def scenario(sim: Simulation) -> None:
            cluster = SimCluster(sim, 1)
            cluster.peers = {}
            await steps(cluster[1])

        simulate(1, scenario)

    test.__name__ = steps.__name__
    return test


async def take_ids(machine: Machine, count: int = 1) -> int:
    """So many changes, one after another; returns how many ids are given away then."""

    def rule(image: Image) -> list[Command]:
        return [AllocateProducerIds(end=image.producer_ids_end + 1)]

    assert machine.broker is not None
    for _ in range(count):
        await machine.host.run(machine.broker.node.metadata.submit(rule))
    return machine.broker.node.image.producer_ids_end


@with_one
async def test_a_change_that_finds_the_disk_full_waits_for_room(machine: Machine) -> None:
    await machine.start()
    machine.disk.fail("write", error=errno.ENOSPC, times=2, path_pattern=METADATA)
    asked = asyncio.create_task(take_ids(machine))
    await until(lambda: machine.cluster.failures != [])
    with pytest.raises(DiskFull):  # who comes now need not wait
        await take_ids(machine)
    assert await asked == 1
    assert await take_ids(machine) == 2
    assert [type(each) for each in machine.cluster.failures] == [DiskFull]
    await machine.stop()


@with_one
async def test_a_disk_that_fails_ends_changes_and_the_next_start_finds_what_was_kept(machine: Machine) -> None:
    await machine.start()
    assert await take_ids(machine, 3) == 3
    machine.disk.fail("sync", path_pattern=METADATA)
    for _ in range(2):
        with pytest.raises(StorageError):
            await take_ids(machine)
    assert isinstance(machine.cluster.failures[0], DiskFailed)
    machine.kill()
    machine.disk.heal()
    await machine.start()
    assert await take_ids(machine) in (4, 5)
    await machine.stop()


def test_the_others_go_on_without_a_broker_whose_disk_fails() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = SimCluster(sim, 3)
        await cluster.start_all()
        broken = cluster.controller()
        assert broken is not None
        broken.disk.fail("sync", path_pattern=METADATA)
        others = [machine for machine in cluster.up if machine is not broken]
        assert await others[0].create_topic("first")
        assert await others[1].create_topic("second")
        broken.kill()
        broken.disk.heal()
        await broken.start()
        await until(lambda: all_have(cluster, "first", "second"))
        for machine in cluster.up:
            await machine.stop()

    simulate(1, scenario)


def test_a_voter_that_lost_what_it_acknowledged_is_told_what_to_do_and_does_not_wait_for_ever() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = SimCluster(sim, 3)
        await cluster.start_all()
        controller = cluster.controller()
        assert controller is not None
        [voter, _] = [machine for machine in cluster.up if machine is not controller]
        voter.disk.lie_about_sync = True
        assert await controller.create_topic("lost-by-one")
        await until(lambda: all_have(cluster, "lost-by-one"))
        voter.broker = None
        voter.host.cut_power()
        voter.disk.crash("lose")
        voter.disk.lie_about_sync = False
        with pytest.raises(PromisesForgotten, match=rf"ends at entry \d+.*`millpond cluster demote {voter.node_id}`"):
            await voter.start()
        assert await controller.create_topic("by-the-others")
        cluster.failures.clear()
        await cluster.stop_all()

    simulate(1, scenario)


def test_a_snapshot_takes_the_place_of_old_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = QuorumSettings(raft=RaftSettings(), snapshot_entries=20, entries_kept=5)
    monkeypatch.setattr(app_parts, "quorum_settings", lambda configs: settings)

    @with_one
    async def test(machine: Machine) -> None:
        await machine.start()
        assert await take_ids(machine, 50) == 50
        assert machine.broker is not None
        quorum = machine.broker.node.metadata.quorum
        await until(lambda: quorum.raft.log.snapshot.index >= 40)
        assert quorum.raft.log.base_index >= 35
        assert machine.disk.exists(f"data/{DIRECTORY}/{SNAPSHOT}")
        version = quorum.image.version
        machine.cut_power()
        broker = await machine.start()
        assert broker.node.image.version == version + 1  # it registered again
        assert await take_ids(machine) == 51
        await machine.stop()

    test()


@with_one
async def test_a_broker_from_before_raft_finds_its_topics(machine: Machine) -> None:
    disk = machine.disk
    disk.make_directory("data")
    log = Log.open(disk, f"data/{DIRECTORY}")
    commands: list[Command] = [
        RegisterBroker(broker=1, epoch=0, endpoints=(Endpoint("PLAINTEXT", "m1", 9092),)),
        CreateTopic(name="orders", topic_id=bytes(range(16)), partitions=((1,), (1,))),
        RegisterBroker(broker=1, epoch=1, endpoints=(Endpoint("PLAINTEXT", "m1", 9092),)),
    ]
    for command in commands:
        batch = encode_values([encode(command)], timestamp=TimestampMs(1))
        await log.append_and_wait(batch, leader_epoch=LeaderEpoch(0))
    await log.close()
    epochs = [1]
    for _ in range(2):
        broker = await machine.start()
        assert broker.node.partitions.named("orders", 1) is not None
        epochs.append(broker.node.image.brokers[1].epoch)
        machine.cut_power()
    assert epochs == sorted(set(epochs))


def test_changes_and_images_are_read_back_as_they_were_written() -> None:
    commands: tuple[Command, ...] = (
        AllocateProducerIds(end=5),
        CreateTopic(name="a", topic_id=bytes(16), partitions=((1, 2),)),
    )
    change = Change(base=7, by=3, change_id=bytes(range(16)), commands=commands)
    assert decode_change(encode_change(change)) == change
    image = apply_all(commands, EMPTY)
    assert decode_image(encode_image(image, data_index=9)) == (image, 9)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[1]", b'{"base":1,"by":1}', b'{"base":-1,"by":1,"id":"00112233445566778899aabbccddeeff"}',
     b'{"base":1,"by":1,"id":"0011"}', b'{"base":1,"by":1,"id":"00112233445566778899aabbccddeeff"}\n{}'],
)  # fmt: skip
def test_a_change_that_is_none_is_refused(content: bytes) -> None:
    with pytest.raises(UnreadableCommand):
        decode_change(content)


@pytest.mark.parametrize("content", [b"", b'{"data_index":1,"image_version":1,"version":2}', b'{"version":1}'])
def test_an_image_that_is_none_is_refused(content: bytes) -> None:
    with pytest.raises(UnreadableCommand):
        decode_image(content)
