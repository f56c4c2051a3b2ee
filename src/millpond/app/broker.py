"""A broker, put together: opened from its data directory, listening, and closed again.

    broker = await Broker.start(BrokerSettings(data_directory="millpond-data"), ...)
    ...
    await broker.stop()

Everything it asks of the machine is an argument, so that the same code runs in a process, in a user's test and in the
simulator. Driven by the command line, by `millpond.testing`, and by tests.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from millpond.api.kafka.dispatch import Dispatcher
from millpond.app.http_door import HttpDoor
from millpond.broker.drivers.group_shard import Surroundings
from millpond.broker.drivers.groups import GroupCoordinator
from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.partitions import PartitionTable
from millpond.broker.drivers.producer_ids import ProducerIds
from millpond.broker.drivers.quorum import Quorum, QuorumSettings
from millpond.broker.drivers.quorum_store import QuorumStore
from millpond.broker.drivers.upkeep import keep_up
from millpond.broker.node import Node
from millpond.core.groups.settings import GroupSettings
from millpond.core.groups.stores import OffsetStore
from millpond.core.metadata.broker_configs import check_static, value_of
from millpond.core.metadata.commands import Endpoint
from millpond.core.metadata.elections import register_broker
from millpond.core.metadata.image import EMPTY
from millpond.core.raft.membership import Membership
from millpond.core.raft.settings import RaftSettings
from millpond.model.errors import InvalidSetting
from millpond.model.limits import MIB
from millpond.model.ports import Clock, Filesystem, Rng
from millpond.net.limits import NetworkLimits
from millpond.net.server import FrameServer
from millpond.storage.checkpoints import make_directory, read_document, write_document
from millpond.telemetry.groups import GroupFacts

NODE_DOCUMENT = "node"
_FOR_EVER_MS = 10 * 365 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    data_directory: str = "millpond-data"
    node_id: int = 1
    cluster_id: str = "millpond"
    host: str = "127.0.0.1"
    port: int = 9092
    advertised_host: str = ""
    advertised_port: int = 0
    """Where clients are told to connect, if not where it listens."""
    connections_max: int = NetworkLimits().connections_max
    """Of all clients together."""
    http: tuple[str, int] | None = None
    """Host and port of the HTTP door; None leaves it shut."""
    offset_store: OffsetStore | None = None
    """Where committed offsets are kept, if not in `__consumer_offsets`; belongs to the broker from its start on."""
    upkeep_seconds: float = 60
    """Between two rounds of rolling, retention and compaction."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Kafka's broker settings by name, such as `num.partitions`."""


class Broker:
    def __init__(self, node: Node, server: FrameServer, upkeep: asyncio.Task[None], http_door: HttpDoor | None) -> None:
        """Use `Broker.start`."""
        self.node = node
        self._server = server
        self._upkeep = upkeep
        self._http_door = http_door

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def http_port(self) -> int | None:
        """None where the HTTP door is shut."""
        return self._http_door.port if self._http_door is not None else None

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
        door = await HttpDoor.reserve(*settings.http) if settings.http is not None else None
        try:
            broker = await cls._start(settings, filesystem, clock, rng, on_error, door)
        except BaseException:
            if door is not None:
                door.let_go()
            raise
        return broker

    @classmethod
    async def _start(
        cls,
        settings: BrokerSettings,
        filesystem: Filesystem,
        clock: Clock,
        rng: Rng,
        on_error: Callable[[BaseException], None],
        door: HttpDoor | None,
    ) -> "Broker":
        claim_directory(filesystem, settings)
        store = await QuorumStore.open(
            filesystem, settings.data_directory, clock, founders=Membership((settings.node_id,))
        )
        quorum = Quorum(
            settings.node_id,
            store,
            quorum_settings(settings.configs),
            rng,
            send=lambda messages: None,
            on_error=on_error,
        )
        metadata = MetadataLog(quorum, rng)
        partitions = PartitionTable(
            filesystem, settings.data_directory, settings.node_id, settings.configs, on_error=on_error
        )
        try:
            quorum.start()
            await metadata.wait_caught_up()
            metadata.listen(partitions.follow)
            partitions.follow(EMPTY, metadata.image)
            partitions.require_all()
            node = _node(settings, metadata, partitions, clock, rng, on_error)
            dispatcher = Dispatcher(node)
            server = FrameServer(dispatcher.handle, network_limits(settings), on_error=lambda error, _: on_error(error))
            await server.start(settings.host, settings.port)
            host, port = settings.advertised_host or settings.host, settings.advertised_port or server.port
            endpoints = (Endpoint("PLAINTEXT", host, port),)
            await metadata.submit(lambda image: register_broker(image, settings.node_id, endpoints=endpoints))
        except BaseException:
            # What was opened is closed in order, so that the next start finds it so.
            await partitions.close()
            await metadata.close()
            raise
        if door is not None:
            door.open(node, network=server.facts, requests=dispatcher.facts, on_error=on_error)
        upkeep = keep_up(metadata, partitions, clock, pause_seconds=settings.upkeep_seconds, on_error=on_error)
        return cls(node, server, asyncio.get_running_loop().create_task(upkeep), door)

    async def stop(self, *, grace_seconds: float = 10) -> None:
        """Answers what was asked, then closes every log in order. The HTTP door tells of it meanwhile."""
        self.node.is_stopping = True
        await self._server.stop(grace_seconds)
        self._upkeep.cancel()
        await asyncio.wait([self._upkeep])
        await self.node.groups.close()
        shutting = self._http_door.stop() if self._http_door is not None else asyncio.sleep(0)
        await asyncio.gather(shutting, self.node.partitions.close())
        await self.node.metadata.close()


def claim_directory(filesystem: Filesystem, settings: BrokerSettings) -> None:
    """A data directory belongs to one node of one cluster, from its first start on."""
    make_directory(filesystem, settings.data_directory)
    mine = {"node_id": settings.node_id, "cluster_id": settings.cluster_id}
    found = read_document(filesystem, settings.data_directory, NODE_DOCUMENT)
    if found is None:
        write_document(filesystem, settings.data_directory, NODE_DOCUMENT, mine)
    elif found != mine:
        raise InvalidSetting(
            f"node-id is {settings.node_id} of cluster {settings.cluster_id!r}; the data directory "
            f"{settings.data_directory} belongs to node {found['node_id']} of {found['cluster_id']!r}. "
            "Start it as that node, or with another data directory"
        )


def _node(
    settings: BrokerSettings,
    metadata: MetadataLog,
    partitions: PartitionTable,
    clock: Clock,
    rng: Rng,
    on_error: Callable[[BaseException], None],
) -> Node:
    surroundings = Surroundings(
        clock, rng, group_settings(settings.configs), settings.offset_store, GroupFacts(), on_error
    )
    groups = GroupCoordinator(metadata, partitions, static=settings.configs, shared=surroundings)
    metadata.listen(groups.follow)
    return Node(
        node_id=settings.node_id,
        cluster_id=settings.cluster_id,
        static=settings.configs,
        clock=clock,
        rng=rng,
        metadata=metadata,
        partitions=partitions,
        producer_ids=ProducerIds(metadata),
        groups=groups,
        fetch_bytes_max=_whole("fetch.max.bytes", settings.configs),
    )


def group_settings(configs: Mapping[str, str]) -> GroupSettings:
    return GroupSettings(
        initial_rebalance_delay_ms=_whole("group.initial.rebalance.delay.ms", configs),
        session_timeout_ms_min=_whole("group.min.session.timeout.ms", configs),
        session_timeout_ms_max=_whole("group.max.session.timeout.ms", configs),
        offsets_retention_ms=_whole("offsets.retention.minutes", configs) * 60_000,
    )


def quorum_settings(configs: Mapping[str, str]) -> QuorumSettings:
    election_s = _whole("controller.quorum.election.timeout.ms", configs) / 1000
    return QuorumSettings(
        raft=RaftSettings(
            heartbeat_s=_whole("controller.quorum.heartbeat.interval.ms", configs) / 1000,
            election_timeout_s_min=election_s,
            election_timeout_s_max=2 * election_s,
            entry_bytes_max=16 * MIB,
        )
    )


def network_limits(settings: BrokerSettings) -> NetworkLimits:
    idle_ms = _whole("connections.max.idle.ms", settings.configs)
    return NetworkLimits(
        frame_bytes_max=_whole("socket.request.max.bytes", settings.configs),
        connections_max=settings.connections_max,
        idle_seconds=(idle_ms if idle_ms > 0 else _FOR_EVER_MS) / 1000,
    )


def _whole(name: str, configs: Mapping[str, str]) -> int:
    value = value_of(name, configs)
    assert isinstance(value, int), (name, value)
    return value
