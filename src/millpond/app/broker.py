"""A broker, put together: opened from its data directory, listening, and closed again.

    broker = await Broker.start(BrokerSettings(data_directory="millpond-data"), ...)
    ...
    await broker.stop()

Everything it asks of the machine is an argument, so that the same code runs in a process, in a user's test and in the
simulator. Driven by the command line, by `millpond.testing`, and by tests.
"""

import asyncio
from collections.abc import Callable

from millpond.api.cluster.door import ClusterDoor
from millpond.api.kafka.dispatch import Dispatcher
from millpond.app.broker_settings import (
    BrokerSettings,
    balance_seconds,
    check_cluster,
    group_settings,
    network_limits,
)
from millpond.app.doors import Doors
from millpond.app.parts import Parts, claim_directory
from millpond.broker.cluster import Cluster
from millpond.broker.drivers import queue_partition
from millpond.broker.drivers.delays import DelayFacts, DelayKeeper
from millpond.broker.drivers.delays import Surroundings as DelaySurroundings
from millpond.broker.drivers.departures import Departures
from millpond.broker.drivers.group_shard import Surroundings
from millpond.broker.drivers.groups import GroupCoordinator
from millpond.broker.drivers.in_sync import keep_in_sync
from millpond.broker.drivers.life import BrokerLife
from millpond.broker.drivers.listed import ListedBrokers
from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.preferred import keep_preferred
from millpond.broker.drivers.producer_ids import ProducerIds
from millpond.broker.drivers.queue_links import QueueLinks
from millpond.broker.drivers.queues import Queues
from millpond.broker.drivers.states import States, ask_nobody
from millpond.broker.drivers.upkeep import keep_up
from millpond.broker.node import Node
from millpond.broker.operations.dead_letters import DeadLetterTopics
from millpond.core.delivery.sessions import ShareSessions
from millpond.core.metadata.broker_configs import check_static, whole
from millpond.core.metadata.commands import Endpoint
from millpond.model.addresses import Address
from millpond.model.ports import Clock, Filesystem, Rng
from millpond.net.server import FrameServer
from millpond.telemetry.groups import GroupFacts


class Broker:
    def __init__(
        self,
        node: Node,
        server: FrameServer,
        parts: "Parts",
        tasks: list[asyncio.Task[None]],
        doors: Doors,
    ) -> None:
        """Use `Broker.start`."""
        self.node = node
        self._server = server
        self._parts = parts
        self._tasks = tasks
        self._doors = doors

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def http_port(self) -> int | None:
        """None where the HTTP door is shut."""
        return self._doors.http.port if self._doors.http is not None else None

    @property
    def grpc_port(self) -> int | None:
        """None where the gRPC door is shut."""
        return self._doors.grpc.port if self._doors.grpc is not None else None

    @property
    def life(self) -> BrokerLife:
        return self._parts.life

    @classmethod
    async def start(
        cls,
        settings: BrokerSettings,
        *,
        filesystem: Filesystem,
        clock: Clock,
        rng: Rng,
        on_error: Callable[[BaseException], None],
    ) -> "Broker":
        check_static(settings.configs)
        check_cluster(settings)
        doors = await Doors.reserve(settings)
        try:
            return await cls._start(settings, filesystem, clock, rng, on_error, doors)
        except BaseException:
            await doors.let_go()
            raise

    @classmethod
    async def _start(
        cls,
        settings: BrokerSettings,
        filesystem: Filesystem,
        clock: Clock,
        rng: Rng,
        on_error: Callable[[BaseException], None],
        doors: Doors,
    ) -> "Broker":
        directory_id = claim_directory(filesystem, settings, rng)
        parts = await Parts.open(settings, directory_id, filesystem, clock, rng, on_error)
        dispatcher = Dispatcher(None if parts.cluster is None else ClusterDoor(parts.cluster))
        server = FrameServer(dispatcher.handle, network_limits(settings), on_error=lambda error, _: on_error(error))
        try:
            await server.start(settings.host, settings.port)
            host, port = settings.advertised_host or settings.host, settings.advertised_port or server.port
            await parts.join(settings.peers.keys(), (host, port), listens_at=settings.host)
            node = _node(settings, parts, clock, rng, on_error)
            if parts.cluster is not None and parts.cluster.finder is not None:
                node.datagrams_ignored = parts.cluster.finder.ignored
            await parts.register((Endpoint("PLAINTEXT", host, port),), settings.peers.keys())
        except BaseException:
            # What was opened is closed in order, so that the next start finds it so.
            if parts.cluster is not None:
                parts.life.retire()
            if server.is_listening:
                await server.stop(grace_seconds=0)
            await parts.close()
            raise
        dispatcher.open(node)
        at = Address(settings.host, server.port)
        kafka = Address("localhost", server.port) if at.is_wildcard else at
        await doors.open(node, kafka=kafka, network=server.facts, requests=dispatcher.facts, on_error=on_error)
        pause = settings.upkeep_seconds
        work = [
            keep_up(
                parts.metadata,
                parts.partitions,
                node.delays,
                node.queues,
                clock,
                pause_seconds=pause,
                on_error=on_error,
            )
        ]
        if parts.cluster is not None:
            work.append(parts.life.run())
            work.append(keep_in_sync(parts.metadata, parts.partitions, clock, on_error=on_error))
            work.append(
                keep_preferred(
                    parts.metadata,
                    pause_seconds=balance_seconds(settings.configs),
                    imbalance_percent_max=whole("leader.imbalance.per.broker.percentage", settings.configs),
                    on_error=on_error,
                )
            )
        return cls(node, server, parts, [asyncio.get_running_loop().create_task(each) for each in work], doors)

    async def stop(self, *, grace_seconds: float = 10) -> None:
        """Lets others take over, answers what was asked, with what there is where that waits for messages, then closes
        every log in order. The HTTP door tells of it meanwhile."""
        self.node.is_stopping = True
        if self._parts.cluster is not None:
            await self._parts.life.hand_over()
        await self._doors.stop_grpc()
        if self._parts.cluster is not None:
            self._parts.life.retire()
        self.node.partitions.let_go()
        self.node.groups.let_go()
        await self._server.stop(grace_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self.node.groups.close()
        await self.node.queues.close()
        await self.node.states.close()
        await self.node.delays.close()
        await self._doors.stop_http()
        await self._parts.close()


def _node(
    settings: BrokerSettings,
    parts: Parts,
    clock: Clock,
    rng: Rng,
    on_error: Callable[[BaseException], None],
) -> Node:
    metadata, partitions, cluster = parts.metadata, parts.partitions, parts.cluster
    surroundings = Surroundings(
        clock, rng, group_settings(settings, on_error), settings.offset_store, GroupFacts(), on_error
    )
    groups = GroupCoordinator(metadata, partitions, static=settings.configs, shared=surroundings)
    metadata.listen(groups.follow)
    listed = ListedBrokers(clock)
    metadata.listen(listed.follow)
    states, queues, producer_ids = _queues(settings, parts, clock, rng, on_error)
    delay_ms_max = whole("millpond.delay.max.ms", settings.configs)
    delays = DelayKeeper(partitions, DelaySurroundings(clock, delay_ms_max, DelayFacts(), on_error))
    node = Node(
        node_id=settings.node_id,
        cluster_id=settings.cluster_id,
        static=settings.configs,
        clock=clock,
        rng=rng,
        metadata=metadata,
        listed=listed,
        partitions=partitions,
        producer_ids=producer_ids,
        groups=groups,
        states=states,
        queues=queues,
        share_sessions=ShareSessions(sessions_max=whole("group.share.max.share.sessions", settings.configs)),
        delays=delays,
        departures=_departures(metadata, cluster),
        fetch_bytes_max=whole("fetch.max.bytes", settings.configs),
        elsewhere=None if cluster is None else QueueLinks(cluster.links),
        links=None if cluster is None else cluster.links,
    )
    if cluster is not None:
        cluster.node = node
    return node


def _departures(metadata: MetadataLog, cluster: Cluster | None) -> Departures | None:
    if cluster is None or cluster.links.absences is None:
        return None
    return Departures(metadata.quorum, is_doubted=cluster.links.absences.is_doubted)


def _queues(
    settings: BrokerSettings, parts: Parts, clock: Clock, rng: Rng, on_error: Callable[[BaseException], None]
) -> tuple[States, Queues, ProducerIds]:
    metadata, partitions, cluster = parts.metadata, parts.partitions, parts.cluster
    states = States(
        metadata,
        partitions,
        static=settings.configs,
        clock=clock,
        rng=rng,
        on_error=on_error,
        ask_leader=ask_nobody if cluster is None else cluster.links.keep_states,
    )
    metadata.listen(states.follow)
    if cluster is not None:
        cluster.states = states
    producer_ids = ProducerIds(metadata)
    letters = DeadLetterTopics(
        metadata,
        partitions,
        producer_ids,
        static=settings.configs,
        clock=clock,
        rng=rng,
        on_error=on_error,
        ask_leader=None if cluster is None else cluster.links.produce,
    )
    around = queue_partition.Surroundings(
        clock, rng, states, letters, on_error, ttl_ms_max=whole("millpond.ttl.max.ms", settings.configs)
    )
    queues = Queues(metadata, static=settings.configs, shared=around)
    metadata.listen(queues.follow)
    return states, queues, producer_ids
