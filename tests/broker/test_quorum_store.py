"""What a Raft node keeps: found again after anything, taken over from before there was Raft, refused where damaged."""

import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from millpond.broker.drivers.quorum_store import DIRECTORY, HARD_STATE, SNAPSHOT, QuorumStore
from millpond.core.metadata.changes import decode_image, encode_image
from millpond.core.metadata.commands import AllocateProducerIds, Command, Endpoint, RegisterBroker
from millpond.core.metadata.encoding import encode
from millpond.core.metadata.image import EMPTY, apply_all
from millpond.core.raft.durable import DurableState, Entry, EntryKind, HardState, Snapshot
from millpond.core.raft.membership import Membership
from millpond.core.raft.output import Persist
from millpond.model.errors import UnreadableCommand
from millpond.model.ids import LeaderEpoch, TimestampMs
from millpond.protocol.records import encode_values
from millpond.storage.log import Log
from millpond.testing import HostDown, PowerCut, SimDisk, Simulation, simulate

ALONE = Membership((1,))
THREE = Membership((1, 2, 3))
PATH = f"data/{DIRECTORY}"

Steps = Callable[[Simulation, SimDisk], Awaitable[None]]


def on_a_simulated_disk(steps: Steps) -> Callable[[], None]:
    def test() -> None:
        async def scenario(sim: Simulation) -> None:
            await steps(sim, SimDisk(sim.loop.chance("disk")))

        simulate(1, scenario)

    test.__name__ = steps.__name__
    return test


async def opened(sim: Simulation, disk: SimDisk, founders: Membership = THREE) -> QuorumStore:
    return await QuorumStore.open(1, disk, "data", sim.clock, founders=founders)


async def until_the_power_goes(sim: Simulation, disk: SimDisk, cut_at: int, work: Coroutine[Any, Any, object]) -> None:
    host = sim.host(f"m{cut_at}")
    disk.on_power_cut = host.cut_power
    disk.cut_power_at(cut_at)
    with suppress(HostDown, PowerCut):
        await host.run(work)
    disk.crash()


def data(index: int, term: int, content: bytes = b"content") -> Entry:
    return Entry(index, term, EntryKind.DATA, b"%d of %d: %s" % (index, term, content))


def persist(
    *entries: Entry, hard: HardState | None = None, cut: int | None = None, snapshot: Snapshot | None = None
) -> Persist:
    return Persist(number=1, hard_state=hard, truncate_from=cut, snapshot=snapshot, entries=entries)


def snapshot_at(index: int, term: int) -> Snapshot:
    image = apply_all([AllocateProducerIds(end=index)], EMPTY)
    return Snapshot(index, term, THREE, encode_image(image, data_index=index))


@on_a_simulated_disk
async def test_a_new_directory_begins_with_its_founders_and_promises_nothing(sim: Simulation, disk: SimDisk) -> None:
    for _ in range(3):
        store = await opened(sim, disk)
        assert store.state == DurableState.first(THREE)
        disk.crash()


@on_a_simulated_disk
async def test_what_was_performed_is_found_after_a_power_cut(sim: Simulation, disk: SimDisk) -> None:
    store = await opened(sim, disk)
    await store.perform([persist(hard=HardState(2, 3)), persist(data(2, 2), data(3, 2))])
    await store.perform([persist(data(3, 3), hard=HardState(3, None), cut=3), persist(data(4, 3))])
    disk.crash()
    found = (await opened(sim, disk)).state
    assert found.hard_state == HardState(3, None)
    assert found.entries == (*DurableState.first(THREE).entries, data(2, 2), data(3, 3), data(4, 3))


@on_a_simulated_disk
async def test_an_own_snapshot_takes_the_place_of_entries(sim: Simulation, disk: SimDisk) -> None:
    store = await opened(sim, disk)
    await store.perform([persist(*(data(index, 2) for index in range(2, 10)), hard=HardState(2, 1))])
    await store.keep_snapshot(snapshot_at(6, 2))
    disk.crash()
    store = await opened(sim, disk)
    assert store.state.snapshot == snapshot_at(6, 2)
    assert [entry.index for entry in store.state.entries] == [7, 8, 9]
    await store.close()


@on_a_simulated_disk
async def test_a_leaders_snapshot_begins_the_log_anew(sim: Simulation, disk: SimDisk) -> None:
    store = await opened(sim, disk)
    await store.perform([persist(data(2, 2), data(3, 5), hard=HardState(5, 1))])
    await store.perform([persist(data(101, 3), snapshot=snapshot_at(100, 3), hard=HardState(6, None))])
    disk.crash()
    found = (await opened(sim, disk)).state
    assert found.snapshot == snapshot_at(100, 3)
    assert found.entries == (data(101, 3),)


@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_at_any_step_leaves_a_state_that_was_or_was_to_be(seed: int) -> None:
    """Of each persist either nothing, all, or its first parts in order; what was performed stays."""

    async def scenario(sim: Simulation) -> None:
        rng = random.Random(seed)
        for cut_at in range(1, 400):
            if await _cut_short(sim, SimDisk(rng), cut_at):
                return
        raise AssertionError("the persists take more operations than were cut")

    simulate(seed, scenario)


async def _cut_short(sim: Simulation, disk: SimDisk, cut_at: int) -> bool:
    """Whether everything was performed before the power went."""
    work = [
        persist(data(2, 2), data(3, 2), hard=HardState(2, 1)),
        persist(data(4, 2)),
        persist(data(3, 4), data(4, 4), cut=3, hard=HardState(4, 2)),
        persist(hard=HardState(5, None)),
        persist(data(5, 4), data(6, 5)),
        persist(data(21, 5), snapshot=snapshot_at(20, 5), cut=6),
    ]
    store = await opened(sim, disk)
    done = 0

    async def perform_all() -> None:
        nonlocal done
        for each in work:
            await store.perform([each])
            done += 1
        await store.keep_snapshot(snapshot_at(21, 5))

    await until_the_power_goes(sim, disk, cut_at, perform_all())
    is_whole = done == len(work)
    found = (await opened(sim, disk)).state
    expected = [_after(work[:count]) for count in (done, done + 1)]
    assert found.hard_state in [hard for hard, _, _ in expected], (cut_at, done, found)
    indexes = [entry.index for entry in found.entries if entry.index > found.snapshot.index]
    first = found.snapshot.index + 1
    assert indexes == list(range(first, first + len(indexes)))
    _, kept, snapshot_index = expected[0]
    if found.snapshot.index == snapshot_index and done < len(work):
        missing = [entry for entry in kept if entry not in found.entries and entry.index > snapshot_index]
        to_be_cut = work[done].truncate_from or 1 << 62
        assert all(entry.index >= to_be_cut for entry in missing), (cut_at, done, missing)
    return is_whole and disk.exists(f"{PATH}/{SNAPSHOT}") and found.snapshot.index == 21


def _after(work: list[Persist]) -> tuple[HardState, list[Entry], int]:
    hard, entries, index = HardState(term=1), list(DurableState.first(THREE).entries), 0
    for each in work:
        hard = each.hard_state or hard
        entries = [entry for entry in entries if each.truncate_from is None or entry.index < each.truncate_from]
        if each.snapshot is not None:
            index = each.snapshot.index
            entries = [entry for entry in entries if entry.index > index]
        entries += each.entries
    return hard, entries, index


# From before there was Raft


async def write_as_before(disk: SimDisk, *, endings: int = 3) -> None:
    """The commands of a cluster of one, as records of epoch 0 without a key."""
    log = Log.open(disk, PATH)
    register = RegisterBroker(broker=1, epoch=0, endpoints=(Endpoint("PLAINTEXT", "here", 9092),))
    given: list[Command] = [AllocateProducerIds(end=1000 * (at + 1)) for at in range(endings)]
    for commands in ([register, given[0]], given[1:]):
        batch = encode_values([encode(command) for command in commands], timestamp=TimestampMs(1))
        await log.append_and_wait(batch, leader_epoch=LeaderEpoch(0))
    await log.close()


@on_a_simulated_disk
async def test_a_directory_from_before_raft_is_taken_over(sim: Simulation, disk: SimDisk) -> None:
    disk.make_directory("data")
    await write_as_before(disk)
    for _ in range(2):
        store = await opened(sim, disk, ALONE)
        image, data_index = decode_image(store.state.snapshot.data)
        assert (image.producer_ids_end, image.version, data_index) == (3000, 4, 4)
        assert image.brokers[1].endpoints[0].host == "here"
        assert store.state.snapshot.membership == ALONE
        assert store.state.hard_state == HardState(term=1)
        disk.crash()
    store = await opened(sim, disk, ALONE)
    await store.perform([persist(data(5, 2), hard=HardState(2, 1))])
    disk.crash()
    assert (await opened(sim, disk, ALONE)).state.entries == (data(5, 2),)


@pytest.mark.parametrize("cut_at", range(1, 16))
def test_a_power_cut_while_it_is_taken_over_does_no_harm(cut_at: int) -> None:
    async def scenario(sim: Simulation) -> None:
        disk = SimDisk(sim.loop.chance("disk"))
        disk.make_directory("data")
        await write_as_before(disk)
        disk.sync_directory(".")
        await until_the_power_goes(sim, disk, cut_at, opened(sim, disk, ALONE))
        image, _ = decode_image((await opened(sim, disk, ALONE)).state.snapshot.data)
        assert image.producer_ids_end == 3000

    simulate(cut_at, scenario)


@on_a_simulated_disk
async def test_a_cluster_of_one_does_not_become_a_founder_of_another(sim: Simulation, disk: SimDisk) -> None:
    disk.make_directory("data")
    await write_as_before(disk)
    with pytest.raises(UnreadableCommand, match="start it without peers"):
        await opened(sim, disk, THREE)


# Damage


def rot(disk: SimDisk, name: str, *, position: int = -5) -> None:
    file = disk.open(f"{PATH}/{name}")
    at = position if position >= 0 else file.size() + position
    file.write(at, [bytes([file.read(at, 1)[0] ^ 0x40])])
    file.sync()
    file.close()


async def filled(sim: Simulation, disk: SimDisk) -> None:
    store = await opened(sim, disk)
    await store.perform([persist(*(data(index, 2) for index in range(2, 10)), hard=HardState(2, 1))])
    await store.keep_snapshot(snapshot_at(4, 2))
    await store.close()


@pytest.mark.parametrize("name", [HARD_STATE, SNAPSHOT])
def test_a_damaged_document_is_refused_and_says_what_to_do(name: str) -> None:
    async def scenario(sim: Simulation) -> None:
        disk = SimDisk(sim.loop.chance("disk"))
        await filled(sim, disk)
        rot(disk, name)
        with pytest.raises(
            UnreadableCommand, match=f"{name} is not what was written.*from a backup.*`millpond cluster demote 1`"
        ):
            await opened(sim, disk)

    simulate(1, scenario)


@pytest.mark.parametrize("name", [HARD_STATE, SNAPSHOT])
def test_a_document_that_is_gone_is_missed(name: str) -> None:
    async def scenario(sim: Simulation) -> None:
        disk = SimDisk(sim.loop.chance("disk"))
        await filled(sim, disk)
        disk.remove(f"{PATH}/{name}")
        with pytest.raises(UnreadableCommand, match=r"is missing|lacks the entries"):
            await opened(sim, disk)

    simulate(1, scenario)


@on_a_simulated_disk
async def test_a_damaged_log_is_refused_and_says_what_to_do(sim: Simulation, disk: SimDisk) -> None:
    await filled(sim, disk)
    rot(disk, "00000000000000000000.log")
    disk.remove(f"{PATH}/clean-shutdown")
    with pytest.raises(UnreadableCommand, match=r"is damaged at byte.*from a backup"):
        await opened(sim, disk)


@on_a_simulated_disk
async def test_an_older_term_goes_on_after_a_campaign_that_led_to_nothing(sim: Simulation, disk: SimDisk) -> None:
    store = await opened(sim, disk)
    await store.perform([persist(data(2, 2), hard=HardState(2, 3))])
    await store.perform([persist(hard=HardState(3, 1))])  # an epoch begins, and stays without entries
    await store.perform([persist(data(3, 2), data(4, 4), hard=HardState(4, None))])
    disk.crash()
    found = (await opened(sim, disk)).state
    assert found.entries[1:] == (data(2, 2), data(3, 2), data(4, 4))
