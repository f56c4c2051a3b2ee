"""Brokers whose process has ended are not waited for; those that are only silent are."""

import asyncio
from collections.abc import Awaitable, Callable

from millpond.api.kafka.handlers.metadata import answer
from millpond.broker.drivers.absences import Absences, Known
from millpond.broker.drivers.listed import BACK_SOON_MS
from millpond.core.raft.output import Role
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from millpond.testing import Simulation, simulate
from tests.broker.clusters import Machine, SimCluster
from tests.broker.test_replication import leader_of, send, unique, until, values_on
from tests.broker.unconnected import asked_by_nobody

PATIENT = {
    "broker.session.timeout.ms": "1800000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "60000",
    "controller.quorum.heartbeat.interval.ms": "500",
}
"""Whoever waits for a session, or for an election timeout, waits for longer than these tests do."""
SECONDS = 20.0
Steps = Callable[[SimCluster], Awaitable[None]]


def with_three(steps: Steps, configs: dict[str, str] | None = None) -> Callable[[], None]:
    def test() -> None:
        async def scenario(sim: Simulation) -> None:
            cluster = SimCluster(sim, 3, configs=PATIENT if configs is None else configs)
            await cluster.start_all()
            assert await cluster[1].create_topic("orders", replication=3)
            await send(cluster, b"before")
            await steps(cluster)
            cluster.check()

        simulate(1, scenario, virtual_seconds_max=1200)

    test.__name__ = steps.__name__
    return test


def controller_of(cluster: SimCluster) -> Machine:
    [machine] = [each for each in cluster.up if each.broker and each.broker.node.metadata.quorum.is_controller]
    return machine


def gone_for(machine: Machine) -> set[int]:
    cluster = machine.broker._parts.cluster if machine.broker else None
    assert cluster is not None
    assert cluster.links.absences is not None
    return set(cluster.links.absences.gone)


def live_for(machine: Machine) -> set[int]:
    assert machine.broker is not None
    return {each.broker for each in machine.broker.node.image.live_brokers()}


def others_of(cluster: SimCluster, machine: Machine) -> list[Machine]:
    return [each for each in cluster.up if each is not machine]


@with_three
async def test_a_controller_that_is_killed_is_followed_and_fenced_at_once(cluster: SimCluster) -> None:
    killed = controller_of(cluster)
    killed.kill()
    await until(lambda: all(killed.node_id not in live_for(each) for each in cluster.up), seconds=SECONDS)
    async with asyncio.timeout(SECONDS):
        await send(cluster, b"after")
    assert gone_for(controller_of(cluster)) == {killed.node_id}


@with_three
async def test_a_leader_that_is_killed_is_followed_at_once(cluster: SimCluster) -> None:
    controller = controller_of(cluster)
    killed = others_of(cluster, controller)[0]
    killed.kill()
    await until(lambda: killed.node_id not in live_for(controller), seconds=SECONDS)
    assert controller_of(cluster) is controller
    async with asyncio.timeout(SECONDS):
        await send(cluster, b"after")


@with_three
async def test_silence_proves_nothing(cluster: SimCluster) -> None:
    controller = controller_of(cluster)
    dark, paused = others_of(cluster, controller)
    dark.cut_power()
    paused.host.pause()
    await asyncio.sleep(SECONDS)
    assert gone_for(controller) == set()
    assert live_for(controller) == {1, 2, 3}
    paused.host.resume()
    cluster.sim.network.isolate(paused.name)
    await asyncio.sleep(SECONDS)
    assert gone_for(controller) == gone_for(paused) == set()
    assert live_for(controller) == {1, 2, 3}


@with_three
async def test_who_is_back_is_not_gone(cluster: SimCluster) -> None:
    controller = controller_of(cluster)
    killed = others_of(cluster, controller)[0]
    killed.kill()
    await until(lambda: gone_for(controller) == {killed.node_id}, seconds=SECONDS)
    await killed.start()
    await until(lambda: not gone_for(controller) and live_for(controller) == {1, 2, 3}, seconds=SECONDS)
    await cluster.stop_all()


@with_three
async def test_what_was_acknowledged_stays_where_a_broker_that_lives_is_taken_for_gone(cluster: SimCluster) -> None:
    """As where something between the brokers refuses in its place: leases do not hold then, epochs do."""
    sent = [b"before"]
    for round_ in range(4):
        leader = leader_of(cluster)
        assert leader is not None
        for machine in others_of(cluster, leader):
            parts = machine.broker._parts.cluster if machine.broker else None
            assert parts is not None
            assert parts.links.absences is not None
            known = parts.links.absences._known(leader.node_id)
            parts.links.absences._on_gone(leader.node_id, known)
        for number in range(5):
            sent.append(b"%d.%d" % (round_, number))
            await send(cluster, sent[-1])
        await until(lambda: all(live_for(each) == {1, 2, 3} for each in cluster.up))
    await until(lambda: len({tuple(values_on(machine)) for machine in cluster.up}) == 1)
    assert set(unique(values_on(cluster[1]))) >= set(sent)
    await cluster.stop_all()


@with_three
async def test_who_asks_for_a_leader_that_is_gone_is_told_of_the_next(cluster: SimCluster) -> None:
    """A client asks at once, and then not for a second: the first answer has to be the right one."""
    killed = leader_of(cluster)
    assert killed is not None
    killed.kill()
    asked = others_of(cluster, killed)[0]
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    response = await asked.host.run(_ask(asked, request))
    [topic] = response.topics
    assert topic.partitions[0].leader_id in {each.node_id for each in cluster.up}


async def _ask(machine: Machine, request: MetadataRequest) -> MetadataResponse:
    assert machine.broker is not None
    found = answer(machine.broker.node, request, asked_by_nobody(12))
    return found if isinstance(found, MetadataResponse) else await found


@with_three
async def test_clients_are_told_of_a_broker_for_another_minute_in_which_it_may_be_back(cluster: SimCluster) -> None:
    async def told_of(machine: Machine) -> set[int]:
        return {each.node_id for each in (await _ask(machine, MetadataRequest(topics=[]))).brokers}

    controller = controller_of(cluster)
    killed = others_of(cluster, controller)[0]
    for _ in range(2):
        killed.kill()
        await until(lambda: all(killed.node_id not in live_for(each) for each in cluster.up), seconds=SECONDS)
        await asyncio.sleep(BACK_SOON_MS / 1000 - 1)
        assert {1, 2, 3} == await told_of(controller)
        await killed.start()
        await until(lambda: live_for(controller) == {1, 2, 3}, seconds=SECONDS)
        assert {1, 2, 3} == await told_of(controller)
    killed.kill()
    await until(lambda: all(killed.node_id not in live_for(each) for each in cluster.up), seconds=SECONDS)
    await asyncio.sleep(BACK_SOON_MS / 1000)
    assert {1, 2, 3} - {killed.node_id} == await told_of(controller)


async def _is_waited_for(cluster: SimCluster) -> None:
    controller = controller_of(cluster)
    killed = others_of(cluster, controller)[0]
    killed.kill()
    await asyncio.sleep(SECONDS)
    assert killed.node_id in live_for(controller)


test_where_refusals_prove_nothing_a_session_is_waited_for = with_three(
    _is_waited_for, {**PATIENT, "millpond.refused.is.gone": "false"}
)


def test_only_the_place_where_a_broker_is_now_can_say_that_it_is_gone() -> None:
    async def scenario(sim: Simulation) -> None:
        told: list[tuple[int, Known]] = []
        failures: list[BaseException] = []
        known = Known(address=("elsewhere", 1), epoch=5, led_term=None)
        absences = Absences(
            known=lambda _: known, on_gone=lambda broker, was: told.append((broker, was)), on_error=failures.append
        )
        sim.host("m1")
        absences.lost(7)  # was never reached: nobody says where it listened
        absences.connected(1, ("m1", 1), ("m1", 1))
        absences.lost(1)
        await asyncio.sleep(5)
        assert told == []
        absences.connected(1, ("elsewhere", 1), ("m1", 1))
        absences.lost(1)
        absences.connected(1, ("elsewhere", 1), ("m1", 1))
        await asyncio.sleep(5)
        assert told == [], "it has proved itself meanwhile"
        for _ in range(3):
            absences.lost(1)
            await asyncio.sleep(5)
        assert told == [(1, known)], "once"
        assert failures == []
        await absences.close()

    simulate(1, scenario)


def test_a_broker_that_no_longer_listens_trusts_no_lease() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = SimCluster(sim, 3)
        await cluster.start_all()
        controller = controller_of(cluster)
        assert controller.broker is not None
        quorum = controller.broker.node.metadata.quorum
        await until(controller.holds_lease)
        controller.broker.life.retire()
        assert not controller.holds_lease()
        assert quorum.raft.role is Role.LEADER
        assert quorum.lease_until() is None
        await cluster.stop_all()

    simulate(1, scenario)
