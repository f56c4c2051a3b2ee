"""What a broker is told when it is put together, and what its parts make of it.

Frozen. Checked by `check_cluster` and by the tables in core/metadata; made by process.py, by `millpond.testing` and by
tests.
"""

from collections.abc import Callable, Mapping
from dataclasses import field

from millpond.broker.drivers.quorum import QuorumSettings
from millpond.core.cluster.announcement import NAME_BYTES_MAX
from millpond.core.cluster.discovery import DnsName, MulticastGroup
from millpond.core.cluster.handshake import SECRET_BYTES_MIN
from millpond.core.groups.assignors import ASSIGNORS, Assignor, guarded
from millpond.core.groups.settings import GroupSettings
from millpond.core.groups.stores import OffsetStore
from millpond.core.metadata.broker_configs import value_of, whole
from millpond.core.raft.settings import RaftSettings
from millpond.model.errors import InvalidSetting
from millpond.model.limits import MIB
from millpond.model.values import dataclass
from millpond.net.limits import NetworkLimits

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
    grpc: tuple[str, int] | None = None
    """The same of the gRPC door."""
    offset_store: OffsetStore | None = None
    assignors: Mapping[str, Assignor] = field(default_factory=dict)
    """Of other packages, by name; those of Millpond need not be here."""
    """Where committed offsets are kept, if not in `__consumer_offsets`; belongs to the broker from its start on."""
    upkeep_seconds: float = 60
    """Between two rounds of rolling, retention and compaction."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Kafka's broker settings by name, such as `num.partitions`."""
    peers: Mapping[int, tuple[str, int] | None] = field(default_factory=dict)
    """The brokers that found the cluster, by node id: host and port, or None where that is to be discovered. One that
    is not among them joins it. Empty for one alone."""
    discovery: DnsName | MulticastGroup | None = None
    """How the addresses are found that `peers` leaves open."""
    cluster_secret: bytes = field(default=b"", repr=False)
    """What all brokers of a cluster know, and nobody else; needed where there are peers."""


def check_cluster(settings: BrokerSettings) -> None:
    """What has to fit together for a broker that has peers."""
    _check_discovery(settings)
    if not settings.peers:
        return
    if len(settings.cluster_secret) < SECRET_BYTES_MIN:
        raise InvalidSetting(
            f"cluster-secret has {len(settings.cluster_secret)} bytes; a broker with peers needs at least "
            f"{SECRET_BYTES_MIN}, the same on all of them: draw one, for instance with `openssl rand -hex 32`"
        )
    session_ms = whole("broker.session.timeout.ms", settings.configs)
    heartbeat_ms = whole("broker.heartbeat.interval.ms", settings.configs)
    if session_ms < 2 * heartbeat_ms:
        raise InvalidSetting(
            f"broker.session.timeout.ms is {session_ms}, broker.heartbeat.interval.ms {heartbeat_ms}; at least two "
            "heartbeats must fit into a session"
        )


def _check_discovery(settings: BrokerSettings) -> None:
    if settings.discovery is not None and not settings.peers:
        raise InvalidSetting(
            f"discovery is {settings.discovery}, and peers is not given; it has to name the brokers that found the "
            "cluster, the same on all of them, because two halves that find only themselves must not found two: write "
            "for instance --peers 1,2,3"
        )
    unknown = sorted(broker for broker, address in settings.peers.items() if address is None)
    if unknown and settings.discovery is None:
        raise InvalidSetting(
            f"peers names broker {unknown[0]} without an address; write {unknown[0]}@HOST:PORT, or say with discovery "
            "how it is found"
        )
    host = settings.advertised_host or settings.host
    if isinstance(settings.discovery, MulticastGroup) and len(host.encode()) > NAME_BYTES_MAX:
        raise InvalidSetting(
            f"advertise has a host of {len(host.encode())} bytes; at most {NAME_BYTES_MAX} can be announced; name "
            "another"
        )


def assignor_names(configs: Mapping[str, str]) -> list[str]:
    """Those that members of consumer groups may ask for, the default first."""
    names = [each.strip() for each in str(value_of("group.consumer.assignors", configs)).split(",")]
    if "" in names:
        raise InvalidSetting(
            "group.consumer.assignors names nothing, or has a comma too many; say uniform, for instance"
        )
    return names


def group_settings(settings: BrokerSettings, on_error: Callable[[BaseException], None]) -> GroupSettings:
    configs = settings.configs
    offered = {
        **ASSIGNORS,
        **{name: guarded(name, each, on_error=on_error) for name, each in settings.assignors.items()},
    }
    return GroupSettings(
        assignors={name: offered[name] for name in assignor_names(configs)},
        initial_rebalance_delay_ms=whole("group.initial.rebalance.delay.ms", configs),
        members_max=whole("group.max.size", configs),
        consumer_members_max=whole("group.consumer.max.size", configs),
        session_timeout_ms_min=whole("group.min.session.timeout.ms", configs),
        session_timeout_ms_max=whole("group.max.session.timeout.ms", configs),
        offsets_retention_ms=whole("offsets.retention.minutes", configs) * 60_000,
    )


def balance_seconds(configs: Mapping[str, str]) -> float | None:
    """Between two rounds of letting preferred replicas lead; None where that is left to operators."""
    if value_of("auto.leader.rebalance.enable", configs) is not True:
        return None
    return whole("leader.imbalance.check.interval.seconds", configs)


def quorum_settings(configs: Mapping[str, str]) -> QuorumSettings:
    election_s = whole("controller.quorum.election.timeout.ms", configs) / 1000
    return QuorumSettings(
        raft=RaftSettings(
            heartbeat_s=whole("controller.quorum.heartbeat.interval.ms", configs) / 1000,
            election_timeout_s_min=election_s,
            election_timeout_s_max=2 * election_s,
            entry_bytes_max=16 * MIB,
        )
    )


def network_limits(settings: BrokerSettings) -> NetworkLimits:
    idle_ms = whole("connections.max.idle.ms", settings.configs)
    return NetworkLimits(
        frame_bytes_max=whole("socket.request.max.bytes", settings.configs),
        connections_max=settings.connections_max,
        idle_seconds=(idle_ms if idle_ms > 0 else _FOR_EVER_MS) / 1000,
    )
