"""What a broker opens before it listens, and closes when it no longer does: metadata, partitions, its place in the
cluster.

Driven by broker.py.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from millpond.app.broker_settings import BrokerSettings, quorum_settings
from millpond.broker.cluster import Cluster
from millpond.broker.drivers.absences import Absences, Known
from millpond.broker.drivers.controller import Controller
from millpond.broker.drivers.discovery import Finder
from millpond.broker.drivers.doorkeeper import Doorkeeper
from millpond.broker.drivers.followers import Followers
from millpond.broker.drivers.life import BrokerLife
from millpond.broker.drivers.links import Identity, Links
from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.partitions import PartitionTable
from millpond.broker.drivers.quorum import Quorum
from millpond.broker.drivers.quorum_store import QuorumStore
from millpond.core.metadata.agreed import agree
from millpond.core.metadata.broker_configs import FENCE_GONE, THROTTLED_RATE, layers, value_of, whole
from millpond.core.metadata.commands import LIFE_BYTES, Endpoint
from millpond.core.metadata.image import EMPTY, Image
from millpond.core.raft.membership import Membership
from millpond.core.raft.messages import Message
from millpond.model.addresses import Address
from millpond.model.errors import ControllerUnavailable, InvalidSetting, StorageError
from millpond.model.ids import TopicPartition
from millpond.model.ports import Clock, Filesystem, Rng
from millpond.model.values import dataclass
from millpond.storage.checkpoints import make_directory, read_document, write_document
from millpond.telemetry.events import BROKER_GONE, ELECTED_UNCLEAN, UNCLEAN_ALLOWED, tell

NODE_DOCUMENT = "node"
LOOK_SECONDS = 0.25
"""Between two looks at whether others refuse a broker that registers."""


@dataclass(slots=True, kw_only=True)
class Parts:
    """What is opened before a broker listens, and closed when it no longer does."""

    metadata: MetadataLog
    partitions: PartitionTable
    life: BrokerLife
    configs: Mapping[str, str]
    """The broker's own settings."""
    followers: Followers | None = None
    cluster: Cluster | None = None

    @classmethod
    async def open(
        cls,
        settings: BrokerSettings,
        directory_id: bytes,
        filesystem: Filesystem,
        clock: Clock,
        rng: Rng,
        on_error: Callable[[BaseException], None],
    ) -> "Parts":
        node_id, configs = settings.node_id, settings.configs
        founders = Membership(tuple(sorted(settings.peers or {node_id: None})))
        store = await QuorumStore.open(node_id, filesystem, settings.data_directory, clock, founders=founders)
        identity = Identity(
            node_id=node_id, cluster_id=settings.cluster_id, directory_id=directory_id, secret=settings.cluster_secret
        )
        links: Links | None = None
        finder: Finder | None = None
        if settings.discovery is not None:
            finder = Finder(settings.discovery, identity, settings.peers, rng, on_error=on_error)
        if settings.peers:
            whereabouts = _Whereabouts(settings.peers, finder, image=lambda: quorum.image)
            links = Links(identity, rng, address_of=whereabouts.address_of, on_unreached=whereabouts.unreached)
            whereabouts.told = links.told
        send = _nobody if links is None else links.send
        quorum = Quorum(node_id, store, quorum_settings(configs), rng, send=send, on_error=on_error)
        await _check_founders(settings, quorum)
        metadata = MetadataLog(quorum, rng)
        if links is not None:
            metadata = MetadataLog(quorum, rng, ask=links.ask, ask_members=links.change_members)
        metadata.on_unclean = _tell_unclean
        metadata.on_unclean_allowed = _tell_unclean_allowed
        life = _life(settings, metadata, links, directory_id, rng, on_error)
        partitions = _partitions(settings, filesystem, clock, life, is_alone=links is None, on_error=on_error)
        controller = _controller(settings, metadata, on_error)
        if links is None:
            return cls(metadata=metadata, partitions=partitions, life=life, configs=configs)
        if value_of(FENCE_GONE, configs) is True:
            links.absences = _absences(quorum, controller, links.address_of, on_error)
        return cls(
            metadata=metadata,
            partitions=partitions,
            life=life,
            configs=configs,
            followers=_followers(settings, metadata, partitions, links, life, rng, on_error),
            cluster=Cluster(
                identity=identity,
                founders=founders.voters,
                quorum=quorum,
                links=links,
                doorkeeper=Doorkeeper(identity, rng, has_forgotten=quorum.has_forgotten),
                controller=controller,
                finder=finder,
            ),
        )

    async def join(self, founders: Collection[int], at: tuple[str, int], *, listens_at: str) -> None:
        """Returns when the image is the cluster's, and what this broker leads by it is open.

        Founders that have to be discovered are waited for before anything else. One that is not among the founders
        tells them where it is until it is sent the log.
        """
        quorum = self.metadata.quorum
        if self.cluster is not None and self.cluster.finder is not None:
            await self.cluster.finder.start(at, interface=listens_at)
            await self.cluster.finder.wait_founders(is_new=lambda: quorum.is_new)
        quorum.start()
        while not quorum.is_caught_up:
            self._require_welcome()
            if self.cluster is not None and quorum.raft.node_id not in founders:
                await self.cluster.links.introduce(founders, at)
            await self.metadata.wait_progress()
        if self.cluster is not None and self.cluster.finder is not None:
            self.cluster.finder.settle()
        image = self.metadata.image
        await self.partitions.open_logs(image)
        self.partitions.follow(EMPTY, image)
        self.partitions.require_all()
        self.partitions.follow(image, self.metadata.image)  # what has changed meanwhile
        self.metadata.listen(self.partitions.follow)

    async def register(self, endpoints: tuple[Endpoint, ...], founders: Collection[int]) -> None:
        """However long it takes: without a majority there is nothing to serve."""
        registering = asyncio.ensure_future(self._register(endpoints, founders))
        try:
            while not registering.done():
                await asyncio.wait([registering], timeout=LOOK_SECONDS)
                self._require_welcome()
        finally:
            registering.cancel()
        await registering

    async def _register(self, endpoints: tuple[Endpoint, ...], founders: Collection[int]) -> None:
        """One that was taken out of the quorum, and was not there to hear it, has to tell where it is once more."""
        while True:
            try:
                await self.life.register(endpoints, doubtful=self.partitions.doubtful())
                if self.cluster is not None:
                    await self.metadata.submit(lambda image: agree(image, self.configs))
                self.partitions.remove_strays(self.metadata.image)
                return
            except ControllerUnavailable:
                if self.cluster is not None:
                    others = [each for each in founders if each != self.metadata.quorum.raft.node_id]
                    await self.cluster.links.introduce(others, (endpoints[0].host, endpoints[0].port))

    def _require_welcome(self) -> None:
        """Gives up where so many brokers refuse this one that it can never be part of a majority."""
        if self.cluster is None:
            return
        if self.cluster.finder is not None:
            self.cluster.finder.look_around(is_new=self.metadata.quorum.is_new)
        refusals, voters = self.cluster.links.refusals, self.metadata.quorum.raft.membership.voters
        if not self.metadata.quorum.raft.membership.is_majority(set(voters) - refusals.keys()):
            raise InvalidSetting("; ".join(dict.fromkeys(map(str, refusals.values()))))
        for refusal in refusals.values():
            if refusal.is_taken:
                raise InvalidSetting(str(refusal))

    async def close(self) -> None:
        if self.cluster is not None:
            if self.cluster.finder is not None:
                await self.cluster.finder.close()
            await self.cluster.controller.close()
        if self.followers is not None:
            await self.followers.close()
        await self.partitions.close()
        await self.metadata.close()
        if self.cluster is not None:
            await self.cluster.links.close()


def _life(
    settings: BrokerSettings,
    metadata: MetadataLog,
    links: Links | None,
    directory_id: bytes,
    rng: Rng,
    on_error: Callable[[BaseException], None],
) -> BrokerLife:
    configs = settings.configs
    return BrokerLife(
        settings.node_id,
        metadata,
        links,
        directory_id=directory_id,
        life=rng.getrandbits(8 * LIFE_BYTES).to_bytes(LIFE_BYTES, "big"),
        rack=configs.get("broker.rack") or None,
        heartbeat_seconds=whole("broker.heartbeat.interval.ms", configs) / 1000,
        session_ms=whole("broker.session.timeout.ms", configs),
        on_error=on_error,
    )


def _controller(
    settings: BrokerSettings, metadata: MetadataLog, on_error: Callable[[BaseException], None]
) -> Controller:
    return Controller(
        settings.node_id,
        metadata,
        session_ms=whole("broker.session.timeout.ms", settings.configs),
        grace_ms=whole("broker.heartbeat.interval.ms", settings.configs),
        on_error=on_error,
    )


def _absences(
    quorum: Quorum,
    controller: Controller,
    address_of: Callable[[int], tuple[str, int] | None],
    on_error: Callable[[BaseException], None],
) -> Absences:
    """Whoever learns that the controller's process has ended need not wait for it, and the controller not for others'
    sessions."""

    def known(broker: int) -> Known:
        image, raft = quorum.image, quorum.raft
        return Known(
            address=address_of(broker),
            epoch=image.brokers[broker].epoch if image.is_live(broker) else None,
            led_term=raft.term if raft.leader == broker else None,
        )

    def on_gone(broker: int, was: Known) -> None:
        assert was.address is not None
        tell(BROKER_GONE, broker=broker, address=str(Address(*was.address)))
        if was.epoch is not None:
            controller.gone(broker, was.epoch)
        if was.led_term is not None:
            quorum.leader_gone(broker, was.led_term)

    absences = Absences(known=known, on_gone=on_gone, on_error=on_error)
    controller.known_gone = lambda: {
        broker: was.epoch for broker, was in absences.gone.items() if was.epoch is not None
    }
    return absences


async def _check_founders(settings: BrokerSettings, quorum: Quorum) -> None:
    if settings.peers and quorum.raft.membership.nodes == (settings.node_id,) and len(settings.peers) > 1:
        await quorum.close()
        raise InvalidSetting(
            f"peers names {len(settings.peers)} brokers, and the data directory {settings.data_directory} holds a "
            "cluster of one; start it without peers, or begin a new cluster with empty data directories"
        )


def _partitions(
    settings: BrokerSettings,
    filesystem: Filesystem,
    clock: Clock,
    life: BrokerLife,
    *,
    is_alone: bool,
    on_error: Callable[[BaseException], None],
) -> PartitionTable:
    partitions = PartitionTable(
        filesystem,
        settings.data_directory,
        settings.node_id,
        settings.configs,
        clock=clock,
        holds_lease=None if is_alone else life.holds_lease,
        lag_ms_max=whole("replica.lag.time.max.ms", settings.configs),
        on_error=on_error,
    )
    partitions.is_present = life.is_present
    return partitions


def _followers(
    settings: BrokerSettings,
    metadata: MetadataLog,
    partitions: PartitionTable,
    links: Links,
    life: BrokerLife,
    rng: Rng,
    on_error: Callable[[BaseException], None],
) -> Followers:
    return Followers(
        settings.node_id,
        partitions,
        links.fetch,
        rng,
        image=lambda: metadata.image,
        broker_epoch=lambda: life.epoch,
        throttled_bytes_per_second=lambda: _throttled_rate(settings.node_id, settings.configs, metadata.image),
        on_error=on_error,
    )


def _throttled_rate(node_id: int, configs: Mapping[str, str], image: Image) -> int:
    return whole(THROTTLED_RATE, layers(image, configs, broker=node_id).merged())


def _tell_unclean(lost: list[TopicPartition]) -> None:
    for at in lost:
        tell(ELECTED_UNCLEAN, partition=str(at))


def _tell_unclean_allowed(names: list[str]) -> None:
    for name in names:
        tell(UNCLEAN_ALLOWED, topic=name)


def _nobody(messages: Sequence[Message]) -> None:
    assert not messages, "a broker that is alone has nobody to talk to"


class _Whereabouts:
    """Of the other brokers, as all who may know it say."""

    def __init__(
        self, peers: Mapping[int, tuple[str, int] | None], finder: Finder | None, *, image: Callable[[], Image]
    ) -> None:
        self._peers = peers
        self._finder = finder
        self._image = image
        self.told: Mapping[int, tuple[str, int]] = {}

    def address_of(self, broker: int) -> tuple[str, int] | None:
        """As the settings say, else as it was found, else as the broker itself said when it joined, or registered."""
        if (said := self._peers.get(broker)) is not None:
            return said
        if self._finder is not None and (found := self._finder.address_of(broker)) is not None:
            return found
        if broker in self.told:
            return self.told[broker]
        known = self._image().brokers.get(broker)
        return (known.endpoints[0].host, known.endpoints[0].port) if known is not None else None

    def unreached(self, broker: int, address: tuple[str, int] | None) -> bool:
        if self._finder is None or self._peers.get(broker) is not None:
            return False
        self._finder.unreached(broker, address)
        return True


def claim_directory(filesystem: Filesystem, settings: BrokerSettings, rng: Rng) -> bytes:
    """A data directory belongs to one node of one cluster, from its first start on. Returns the id it got then."""
    make_directory(filesystem, settings.data_directory)
    mine: dict[str, Any] = {"node_id": settings.node_id, "cluster_id": settings.cluster_id}
    found = read_document(filesystem, settings.data_directory, NODE_DOCUMENT)
    path = f"{settings.data_directory}/{NODE_DOCUMENT}"
    if found is None and filesystem.exists(path):
        raise StorageError(
            f"{path} is not what was written, so it is not known whose data this is; put that file back from a backup. "
            f"Where you are sure that the data is of node {settings.node_id} of {settings.cluster_id!r}, and that this "
            "broker is alone, remove the file"
        )
    found = found or mine
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
