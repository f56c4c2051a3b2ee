"""Brokers that find each other by a name, and by announcements: founding, changed addresses, and who is refused."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millpond.broker.drivers.doorkeeper import PRESENT_SECONDS
from millpond.core.cluster.announcement import ANNOUNCEMENT_BYTES_MAX, Announcement, Ignored
from millpond.core.cluster.discovery import DnsName, MulticastGroup
from millpond.core.raft.membership import PromoteLearner, RemoveNode
from millpond.model.errors import InvalidSetting
from millpond.testing import Simulation, simulate
from millpond.testing.hosts import HostDown
from millpond.testing.links import Conditions
from tests.broker.clusters import PORT, SECRET, Machine, SimCluster
from tests.broker.test_cluster import all_have, until

NAME, GROUP = "millpond.example", MulticastGroup()
WAYS = {"dns": DnsName(NAME, PORT), "multicast": GROUP}
A_WHILE = 30.0

Steps = Callable[["Discovering"], Awaitable[None]]


class Discovering(SimCluster):
    """Machines that are told node ids, and no addresses."""

    def __init__(self, sim: Simulation, way: str, size: int = 3) -> None:
        super().__init__(sim, size)
        self.way = way
        self.hosts = [machine.name for machine in self.machines.values()]
        self.founders = tuple(self.machines)
        sim.network.name(NAME, self.hosts)

    def told(self, **changes: object) -> dict[str, object]:
        return {"peers": dict.fromkeys(self.founders), "discovery": WAYS[self.way], **changes}

    async def begin(self, machine: Machine, **changes: object) -> None:
        await machine.start(**self.told(**changes))

    def begin_soon(self, *nodes: int) -> list[asyncio.Task[None]]:
        return [self.sim.loop.create_task(self.begin(self[node])) for node in nodes]

    async def begin_all(self) -> None:
        for task in self.begin_soon(*self.founders):
            await task

    def twin(self, node_id: int) -> Machine:
        """Another machine with that node id."""
        machine = self.add()
        self.show(machine)
        machine.node_id = node_id
        return machine

    def show(self, machine: Machine) -> None:
        self.hosts.append(machine.name)
        self.sim.network.name(NAME, self.hosts)

    def voters(self, node_id: int) -> tuple[int, ...]:
        broker = self[node_id].broker
        assert broker is not None
        return broker.node.metadata.quorum.raft.membership.voters


def both_ways(steps: Steps) -> Callable[[str], None]:
    @pytest.mark.parametrize("way", WAYS)
    def test(way: str) -> None:
        async def scenario(sim: Simulation) -> None:
            cluster = Discovering(sim, way)
            await steps(cluster)
            cluster.check()

        simulate(1, scenario, virtual_seconds_max=900)

    test.__name__ = steps.__name__
    return test


# Founding


@both_ways
async def test_three_that_know_no_address_found_a_cluster_and_start_again(cluster: Discovering) -> None:
    await cluster.begin_all()
    assert [cluster.voters(node) for node in (1, 2, 3)] == [(1, 2, 3)] * 3
    assert await cluster[1].create_topic("orders", replication=3)
    await until(lambda: all_have(cluster, "orders"))
    await cluster.stop_all()
    await cluster.begin_all()
    assert all_have(cluster, "orders")
    await cluster.stop_all()


@both_ways
async def test_nothing_is_founded_before_the_last_founder_is_seen(cluster: Discovering) -> None:
    starting = cluster.begin_soon(1, 2)
    _, pending = await asyncio.wait(starting, timeout=A_WHILE)
    assert len(pending) == 2  # a majority, and all the same
    await cluster.begin(cluster[3])
    await asyncio.wait_for(asyncio.gather(*starting), A_WHILE)
    await cluster.stop_all()


@both_ways
async def test_founders_that_are_apart_wait_for_each_other(cluster: Discovering) -> None:
    cluster.sim.network.partition("m1", ["m2", "m3"])
    starting = cluster.begin_soon(1, 2, 3)
    _, pending = await asyncio.wait(starting, timeout=A_WHILE)
    assert len(pending) == 3
    cluster.sim.network.heal()
    await asyncio.wait_for(asyncio.gather(*starting), 2 * A_WHILE)
    await cluster.stop_all()


@both_ways
async def test_those_that_were_there_before_start_with_a_majority(
    cluster: Discovering,
) -> None:
    await cluster.begin_all()
    assert await cluster[1].create_topic("kept")
    await until(lambda: all_have(cluster, "kept"))
    await cluster.stop_all()
    for task in cluster.begin_soon(1, 2):  # the third is still down
        await asyncio.wait_for(task, A_WHILE)
    assert all_have(cluster, "kept")
    await cluster.stop_all()


@both_ways
async def test_a_voter_that_lost_its_disk_does_not_vote_before_it_was_demoted_and_promoted(
    cluster: Discovering,
) -> None:
    async def change(members: RemoveNode | PromoteLearner) -> None:
        assert cluster[1].broker is not None
        await cluster[1].host.run(cluster[1].broker.node.metadata.change_members(members))

    await cluster.begin_all()
    assert await cluster[1].create_topic("kept")
    await cluster[3].stop()
    cluster[3].disk = SimCluster(cluster.sim, 3)[3].disk
    await asyncio.sleep(PRESENT_SECONDS)
    assert "comes with another data directory than it had" in await refusal_of(cluster, cluster[3])
    await change(RemoveNode(3))
    cluster[3].disk = SimCluster(cluster.sim, 3)[3].disk
    await asyncio.sleep(PRESENT_SECONDS)
    await cluster.begin(cluster[3], peers=dict.fromkeys((1, 2)))
    await change(PromoteLearner(3))
    assert all_have(cluster, "kept")
    await cluster.stop_all()


@both_ways
async def test_a_fourth_that_peers_does_not_name_joins(cluster: Discovering) -> None:
    fourth = cluster.add()
    cluster.show(fourth)
    starting = [*cluster.begin_soon(1, 2, 3), asyncio.create_task(cluster.begin(fourth))]
    await asyncio.wait_for(asyncio.gather(*starting), 2 * A_WHILE)
    assert cluster.voters(4) == (1, 2, 3)
    await cluster.stop_all()


@both_ways
async def test_some_addresses_may_be_known(cluster: Discovering) -> None:
    cluster.hosts.remove("m1")
    cluster.sim.network.name(NAME, cluster.hosts)
    peers = {1: ("m1", PORT), 2: None, 3: None}
    starting = [asyncio.create_task(cluster.begin(cluster[node], peers=peers)) for node in (1, 2, 3)]
    await asyncio.wait_for(asyncio.gather(*starting), A_WHILE)
    await cluster.stop_all()


def test_datagrams_that_are_lost_and_doubled_are_only_slower() -> None:
    async def scenario(sim: Simulation) -> None:
        sim.network.set_conditions(Conditions(loss_chance=0.3, duplicate_chance=0.3))
        cluster = Discovering(sim, "multicast")
        await asyncio.wait_for(cluster.begin_all(), 300)
        await cluster.stop_all()

    simulate(1, scenario, virtual_seconds_max=900)


# While it runs


@both_ways
async def test_a_broker_that_comes_back_elsewhere_is_found_there(cluster: Discovering) -> None:
    await cluster.begin_all()
    moved = next(machine for machine in cluster.up if machine is not cluster.controller())
    await moved.stop()
    elsewhere = cluster.add()
    elsewhere.node_id, elsewhere.disk = moved.node_id, moved.disk
    elsewhere.disk.on_power_cut = elsewhere.host.cut_power
    cluster.hosts.remove(moved.name)
    cluster.show(elsewhere)
    await asyncio.wait_for(cluster.begin(elsewhere), A_WHILE)
    assert await elsewhere.create_topic("from-there")
    await until(lambda: all_have(cluster, "from-there"))
    await cluster.stop_all()


def test_two_that_swap_their_addresses_are_told_apart() -> None:
    """As pods that start again do: whoever is asked for broker 2 is broker 3 by now."""

    async def scenario(sim: Simulation) -> None:
        cluster = Discovering(sim, "dns")
        await cluster.begin_all()
        second, third = cluster[2], cluster[3]
        for machine in (second, third):
            machine.kill()
        second.node_id, third.node_id = 3, 2
        second.disk, third.disk = third.disk, second.disk
        for task in cluster.begin_soon(2, 3):
            await asyncio.wait_for(task, 2 * A_WHILE)
        assert await third.create_topic("swapped")
        await until(lambda: all_have(cluster, "swapped"))
        await cluster.stop_all()

    simulate(1, scenario, virtual_seconds_max=900)


# Who is refused


async def refusal_of(cluster: Discovering, machine: Machine, **changes: object) -> str:
    with pytest.raises(InvalidSetting) as raised:
        await asyncio.wait_for(cluster.begin(machine, **changes), A_WHILE)
    machine.kill()
    return str(raised.value)


def test_another_secret_is_refused_and_the_others_go_on_when_it_is_corrected() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Discovering(sim, "dns")
        starting = cluster.begin_soon(1, 2)
        told = await refusal_of(cluster, cluster[3], cluster_secret=b"something quite different")
        assert "cluster secret is another one" in told
        assert "m1:9092" in told
        await cluster.begin(cluster[3])
        await asyncio.gather(*starting)
        await cluster.stop_all()

    simulate(1, scenario)


def test_one_that_joins_or_comes_back_with_another_secret_is_refused_too() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Discovering(sim, "dns")
        await cluster.begin_all()
        fourth = cluster.add()
        cluster.show(fourth)
        assert "secret" in await refusal_of(cluster, fourth, cluster_secret=b"something quite different")
        await cluster[3].stop()
        assert "secret" in await refusal_of(cluster, cluster[3], cluster_secret=b"something quite different")
        await asyncio.wait_for(cluster.begin(cluster[3]), A_WHILE)
        await cluster.stop_all()

    simulate(1, scenario)


def test_addresses_of_others_behind_the_name_do_no_harm() -> None:
    """Old records, say: there are more of them than brokers."""

    async def scenario(sim: Simulation) -> None:
        cluster = Discovering(sim, "dns")
        others = SimCluster(sim, 0)
        machines = {number: others.add() for number in range(1, 8)}
        strangers = [machines[number] for number in (4, 5, 6, 7)]
        for each in strangers:
            await each.start(peers={each.node_id: (each.name, PORT)}, cluster_id="other")
            cluster.show(each)
        sim.network.name(NAME, cluster.hosts[::-1])
        await asyncio.wait_for(cluster.begin_all(), 2 * A_WHILE)
        await cluster[2].stop()
        await asyncio.wait_for(cluster.begin(cluster[2]), A_WHILE)
        await cluster.stop_all()

    simulate(1, scenario)


def test_announcements_by_another_secret_are_counted_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Discovering(sim, "multicast")
        starting = cluster.begin_soon(1, 2)
        wrong = asyncio.create_task(cluster.begin(cluster[3], cluster_secret=b"something quite different"))
        _, pending = await asyncio.wait([*starting, wrong], timeout=A_WHILE)
        assert len(pending) == 3
        cluster[3].kill()
        with pytest.raises(HostDown):
            await wrong
        await cluster.begin(cluster[3])
        await asyncio.gather(*starting)
        await cluster.stop_all()

    simulate(1, scenario)
    told = [record.fields for record in caplog.records if record.msg == "founders_missing"]  # type: ignore[attr-defined]
    assert any("m3 announces a broker of cluster 'millpond' with another secret" in each["why"] for each in told)


def test_another_clusters_name_is_refused() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Discovering(sim, "dns")
        starting = cluster.begin_soon(1, 2)
        told = await refusal_of(cluster, cluster[3], cluster_id="another")
        assert (
            "belongs to cluster 'millpond', and broker 3 to 'another'; look at peers, discovery and cluster-id" in told
        )
        cluster[3].disk = SimCluster(sim, 3)[3].disk  # the old one belongs to the other cluster
        await cluster.begin(cluster[3])
        await asyncio.gather(*starting)
        await cluster.stop_all()

    simulate(1, scenario)


def test_two_clusters_share_a_network() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster, other = Discovering(sim, "multicast"), Discovering(sim, "multicast", 0)
        for _ in range(6):
            other.add()
        names = {number: other.machines.pop(number + 3) for number in (1, 2, 3)}
        for number, machine in names.items():
            machine.node_id = number
        other.machines = names
        starting = [
            sim.loop.create_task(other.begin(each, cluster_id="other", peers=dict.fromkeys((1, 2, 3))))
            for each in names.values()
        ]
        await cluster.begin_all()
        await asyncio.gather(*starting)
        assert await cluster[1].create_topic("here")
        assert await other[1].create_topic("there")
        await until(lambda: all_have(cluster, "here") and all_have(other, "there"))
        assert cluster[1].broker is not None
        assert "there" not in cluster[1].broker.node.image.topics
        await cluster.stop_all()
        await other.stop_all()

    simulate(1, scenario)


@both_ways
async def test_a_second_broker_with_a_node_id_is_refused(cluster: Discovering) -> None:
    await cluster.begin_all()
    told = await refusal_of(cluster, cluster.twin(2))
    assert "node id 2 is taken" in told
    assert await cluster[2].create_topic("still-mine")
    await cluster.stop_all()


@both_ways
async def test_nothing_is_founded_while_two_have_the_same_node_id(cluster: Discovering) -> None:
    twin = cluster.twin(2)
    good = cluster.begin_soon(1, 3)
    twins = [*cluster.begin_soon(2), asyncio.create_task(cluster.begin(twin))]
    done, _ = await asyncio.wait(twins, timeout=A_WHILE, return_when=asyncio.FIRST_EXCEPTION)
    assert all("node id 2 is taken" in str(each.exception()) for each in done)
    assert done
    assert not any(each.done() for each in good)
    for machine in (cluster[2], twin):
        machine.kill()
    await asyncio.gather(*twins, return_exceptions=True)
    await asyncio.sleep(A_WHILE)  # until the others no longer remember the one that spoke last
    await asyncio.wait_for(cluster.begin(cluster[2]), A_WHILE)
    await asyncio.wait_for(asyncio.gather(*good), A_WHILE)
    await cluster.stop_all()


@both_ways
async def test_founders_that_are_not_of_one_mind_are_told_so(cluster: Discovering) -> None:
    starting = cluster.begin_soon(1, 2)
    told = await refusal_of(cluster, cluster[3], peers=dict.fromkeys((1, 2, 3, 4)))
    assert "names 1,2,3, and here 1,2,3,4; give all brokers of a cluster the same" in told
    await cluster.begin(cluster[3])  # nothing was promised yet: with the same list it is one of them
    await asyncio.gather(*starting)
    await cluster.stop_all()


@both_ways
async def test_a_cluster_that_is_there_is_not_founded_again_by_others(cluster: Discovering) -> None:
    await cluster.begin_all()
    others = [cluster.add() for _ in range(3)]
    for machine in others:
        cluster.show(machine)
    for machine in others:
        told = await refusal_of(cluster, machine, peers=dict.fromkeys((4, 5, 6)))
        assert "consists of 1,2,3; to join it, name those in peers, and not" in told
    await cluster.stop_all()


def test_junk_is_counted_and_does_nothing() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Discovering(sim, "multicast")
        stranger = sim.host("stranger")
        forged = Announcement(cluster_id="millpond", node_id=7, host="m1", port=1).to_bytes(b"not the secret of these")
        junk = [b"", b"mpnd", bytes(60_000), b"mpnd\x01" + bytes(ANNOUNCEMENT_BYTES_MAX), forged[:-1]]
        other = Announcement(cluster_id="other", node_id=7, host="m1", port=1).to_bytes(SECRET)

        async def shout() -> None:
            endpoint, _ = await sim.loop.create_datagram_endpoint(asyncio.DatagramProtocol)
            for _ in range(300):
                for each in (*junk, forged, other):
                    endpoint.sendto(each, (GROUP.host, GROUP.port))
                await asyncio.sleep(0.01)

        starting = cluster.begin_soon(*cluster.founders)
        await stranger.run(shout())
        await asyncio.gather(*starting)
        broker = cluster[1].broker
        assert broker is not None
        ignored = broker.node.datagrams_ignored
        assert ignored[Ignored.JUNK] > ignored[Ignored.OTHER_SECRET] > 200
        assert ignored[Ignored.OTHER_CLUSTER] > 200
        await cluster.stop_all()

    simulate(1, scenario)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"peers": {}}, "peers is not given; .* write for instance --peers 1,2,3"),
        ({"discovery": None}, "peers names broker 1 without an address; write 1@HOST:PORT, or say with discovery"),
        ({"discovery": GROUP, "advertised_host": "h" * 300}, "a host of 300 bytes; at most 255"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(changes: dict[str, object], told: str) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Discovering(sim, "dns")
        with pytest.raises(InvalidSetting, match=told):
            await cluster.begin(cluster[1], **changes)

    simulate(1, scenario)
