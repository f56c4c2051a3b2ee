"""A broker, put together: opened from its data directory, listening, and closed again.

    broker = await Broker.start(BrokerSettings(data_directory="millpond-data"), ...)
    ...
    await broker.stop()

Everything it asks of the machine is an argument, so that the same code runs in a process, in a user's test and in the
simulator. Driven by the command line, by `millpond.testing`, and by tests.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millpond.api.cluster.door import ClusterDoor
from millpond.api.kafka.dispatch import Dispatcher
from millpond.broker.cluster import Cluster
from millpond.broker.drivers.controller import Controller
from millpond.broker.drivers.doorkeeper import Doorkeeper
from millpond.broker.drivers.groups import GroupCoordinator
from millpond.broker.drivers.life import BrokerLife
from millpond.broker.drivers.links import Identity, Links
from millpond.broker.drivers.metadata import MetadataLog, ask_nobody
from millpond.broker.drivers.partitions import PartitionTable
from millpond.broker.drivers.producer_ids import ProducerIds
from millpond.broker.drivers.quorum import Quorum, QuorumSettings
from millpond.broker.drivers.quorum_store import QuorumStore
from millpond.broker.drivers.upkeep import keep_up
from millpond.broker.node import Node
from millpond.core.cluster.handshake import SECRET_BYTES_MIN
from millpond.core.groups.settings import GroupSettings
from millpond.core.metadata.broker_configs import check_static, value_of
from millpond.core.metadata.commands import Endpoint
from millpond.core.metadata.image import EMPTY, Image
from millpond.core.raft.membership import Membership
from millpond.core.raft.messages import Message
from millpond.core.raft.settings import RaftSettings
from millpond.model.errors import ControllerUnavailable, InvalidSetting
from millpond.model.limits import MIB
from millpond.model.ports import Clock, Filesystem, Rng
from millpond.net.limits import NetworkLimits
from millpond.net.server import FrameServer
from millpond.storage.checkpoints import make_directory, read_document, write_document

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
    upkeep_seconds: float = 60
    """Between two rounds of rolling, retention and compaction."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Kafka's broker settings by name, such as `num.partitions`."""
    peers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """The brokers that found the cluster, this one among them, by node id: host and port. Empty for one alone."""
    cluster_secret: bytes = field(default=b"", repr=False)
    """What all brokers of a cluster know, and nobody else; needed where there are peers."""


class Broker:
    def __init__(self, node: Node, server: FrameServer, parts: "_Parts", tasks: list[asyncio.Task[None]]) -> None:
        """Use `Broker.start`."""
        self.node = node
        self._server = server
        self._parts = parts
        self._tasks = tasks

    @property
    def port(self) -> int:
        return self._server.port

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
        directory_id = claim_directory(filesystem, settings, rng)
        parts = await _Parts.open(settings, directory_id, filesystem, clock, rng, on_error)
        dispatcher = Dispatcher(None if parts.cluster is None else ClusterDoor(parts.cluster))
        server = FrameServer(dispatcher.handle, network_limits(settings), on_error=lambda error, _: on_error(error))
        try:
            await server.start(settings.host, settings.port)
            await parts.join()
            node = _node(settings, parts.metadata, parts.partitions, clock, rng)
            host, port = settings.advertised_host or settings.host, settings.advertised_port or server.port
            await parts.register((Endpoint("PLAINTEXT", host, port),))
        except BaseException:
            # What was opened is closed in order, so that the next start finds it so.
            if server.is_listening:
                await server.stop(grace_seconds=0)
            await parts.close()
            raise
        dispatcher.open(node)
        pause = settings.upkeep_seconds
        work = [keep_up(parts.metadata, parts.partitions, clock, pause_seconds=pause, on_error=on_error)]
        if parts.cluster is not None:
            work.append(parts.life.run())
        return cls(node, server, parts, [asyncio.get_running_loop().create_task(each) for each in work])

    async def stop(self, *, grace_seconds: float = 10) -> None:
        """Answers what was asked, then closes every log in order."""
        self.node.metadata.quorum.hand_over()
        await self._server.stop(grace_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self.node.groups.close()
        await self._parts.close()


@dataclass(slots=True, kw_only=True)
class _Parts:
    """What is opened before a broker listens, and closed when it no longer does."""

    metadata: MetadataLog
    partitions: PartitionTable
    life: BrokerLife
    cluster: Cluster | None

    @classmethod
    async def open(
        cls,
        settings: BrokerSettings,
        directory_id: bytes,
        filesystem: Filesystem,
        clock: Clock,
        rng: Rng,
        on_error: Callable[[BaseException], None],
    ) -> "_Parts":
        node_id, configs = settings.node_id, settings.configs
        founders = Membership(tuple(sorted(settings.peers or {node_id: ("", 0)})))
        store = await QuorumStore.open(node_id, filesystem, settings.data_directory, clock, founders=founders)
        links: Links | None = None
        identity = Identity(
            node_id=node_id,
            cluster_id=settings.cluster_id,
            directory_id=directory_id,
            secret=settings.cluster_secret,
        )
        if settings.peers:
            links = Links(identity, rng, address_of=lambda broker: _address(broker, settings, quorum.image))
        quorum = Quorum(
            node_id,
            store,
            quorum_settings(configs),
            rng,
            send=_nobody if links is None else links.send,
            on_error=on_error,
        )
        if settings.peers and quorum.raft.membership.nodes == (node_id,) and len(settings.peers) > 1:
            await quorum.close()
            raise InvalidSetting(
                f"peers names {len(settings.peers)} brokers, and the data directory {settings.data_directory} holds a "
                "cluster of one; start it without peers, or begin a new cluster with empty data directories"
            )
        metadata = MetadataLog(quorum, rng, ask=ask_nobody if links is None else links.ask)
        session_s = _whole("broker.session.timeout.ms", configs) / 1000
        cluster = None
        if links is not None:
            cluster = Cluster(
                quorum=quorum,
                links=links,
                doorkeeper=Doorkeeper(identity, rng),
                controller=Controller(node_id, metadata, session_seconds=session_s, on_error=on_error),
            )
        life = BrokerLife(
            node_id,
            metadata,
            links,
            heartbeat_seconds=_whole("broker.heartbeat.interval.ms", configs) / 1000,
            session_seconds=session_s,
            clock_drift_max=quorum.raft.settings.clock_drift_max,
            on_error=on_error,
        )
        partitions = PartitionTable(filesystem, settings.data_directory, node_id, configs, on_error=on_error)
        return cls(metadata=metadata, partitions=partitions, life=life, cluster=cluster)

    async def join(self) -> None:
        """Returns when the image is the cluster's, and what this broker leads by it is open."""
        quorum = self.metadata.quorum
        quorum.start()
        while not quorum.is_caught_up:
            self._require_welcome()
            await self.metadata.wait_progress()
        self.metadata.listen(self.partitions.follow)
        self.partitions.follow(EMPTY, self.metadata.image)
        self.partitions.require_all()

    async def register(self, endpoints: tuple[Endpoint, ...]) -> None:
        """However long it takes: without a majority there is nothing to serve."""
        while True:
            try:
                await self.life.register(endpoints)
                return
            except ControllerUnavailable:
                self._require_welcome()

    def _require_welcome(self) -> None:
        """Gives up where so many brokers refuse this one that it can never be part of a majority."""
        if self.cluster is None:
            return
        refusals, voters = self.cluster.links.refusals, self.metadata.quorum.raft.membership.voters
        if not self.metadata.quorum.raft.membership.is_majority(set(voters) - refusals.keys()):
            raise InvalidSetting("; ".join(dict.fromkeys(map(str, refusals.values()))))
        for refusal in refusals.values():
            if refusal.is_taken:
                raise InvalidSetting(str(refusal))

    async def close(self) -> None:
        if self.cluster is not None:
            await self.cluster.controller.close()
        await self.partitions.close()
        await self.metadata.close()
        if self.cluster is not None:
            await self.cluster.links.close()


def _nobody(messages: Sequence[Message]) -> None:
    assert not messages, "a broker that is alone has nobody to talk to"


def _address(broker: int, settings: BrokerSettings, image: Image) -> tuple[str, int] | None:
    """As the settings say, else as the broker itself said when it registered."""
    if broker in settings.peers:
        return settings.peers[broker]
    known = image.brokers.get(broker)
    return (known.endpoints[0].host, known.endpoints[0].port) if known is not None else None


def check_cluster(settings: BrokerSettings) -> None:
    """What has to fit together for a broker that has peers."""
    if not settings.peers:
        return
    if settings.node_id not in settings.peers:
        raise InvalidSetting(
            f"peers names brokers {sorted(settings.peers)}, and node-id is {settings.node_id}; add this broker to "
            "peers with the address the others reach it at, or correct its node-id"
        )
    if len(settings.cluster_secret) < SECRET_BYTES_MIN:
        raise InvalidSetting(
            f"cluster-secret has {len(settings.cluster_secret)} bytes; a broker with peers needs at least "
            f"{SECRET_BYTES_MIN}, the same on all of them: draw one, for instance with `openssl rand -hex 32`"
        )
    session_ms = _whole("broker.session.timeout.ms", settings.configs)
    heartbeat_ms = _whole("broker.heartbeat.interval.ms", settings.configs)
    if session_ms < 2 * heartbeat_ms:
        raise InvalidSetting(
            f"broker.session.timeout.ms is {session_ms}, broker.heartbeat.interval.ms {heartbeat_ms}; at least two "
            "heartbeats must fit into a session"
        )


def claim_directory(filesystem: Filesystem, settings: BrokerSettings, rng: Rng) -> bytes:
    """A data directory belongs to one node of one cluster, from its first start on. Returns the id it got then."""
    make_directory(filesystem, settings.data_directory)
    mine: dict[str, Any] = {"node_id": settings.node_id, "cluster_id": settings.cluster_id}
    found = read_document(filesystem, settings.data_directory, NODE_DOCUMENT) or mine
    drawn: str | None = found.get("directory_id")
    if drawn is None:  # new, or of a Millpond before directories had ids
        drawn = f"{rng.getrandbits(128):032x}"
        write_document(filesystem, settings.data_directory, NODE_DOCUMENT, {**found, "directory_id": drawn})
    if {**mine, "directory_id": drawn} != {**found, "directory_id": drawn}:
        raise InvalidSetting(
            f"node-id is {settings.node_id} of cluster {settings.cluster_id!r}; the data directory "
            f"{settings.data_directory} belongs to node {found['node_id']} of {found['cluster_id']!r}. "
            "Start it as that node, or with another data directory"
        )
    return bytes.fromhex(drawn)


def _node(settings: BrokerSettings, metadata: MetadataLog, partitions: PartitionTable, clock: Clock, rng: Rng) -> Node:
    groups = GroupCoordinator(
        metadata, partitions, static=settings.configs, clock=clock, rng=rng, settings=group_settings(settings.configs)
    )
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
