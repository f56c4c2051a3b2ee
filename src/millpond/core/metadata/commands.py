"""Everything that can happen to the cluster's metadata, as values.

Invariant: a command is a fact, already checked (controller.py): applying it to the image it was decided on never fails.
What a command means today it means for ever; a new meaning is a new kind or a new version (encoding.py).
Pure data. Made by the rules (controller.py, elections.py, ...), applied by image.py.
"""

from millpond.model.ids import LeaderEpoch
from millpond.model.values import dataclass

Pairs = tuple[tuple[str, str], ...]
"""Names and values, in the order of the names, each name once."""

Replicas = tuple[int, ...]
"""Brokers that keep a partition; the first is its preferred leader. Never empty, each broker once."""

NO_LEADER = -1
ALL_BROKERS = -1
"""In place of a broker's id: a setting for every broker that has none of its own."""

PARTITIONS_PER_COMMAND_MAX = 10_000
"""Keeps every command, and with it every entry of the log, below `encoding.COMMAND_BYTES_MAX`."""

REPLICAS_PER_PARTITION_MAX = 32
DIRECTORY_ID_BYTES = 16
LIFE_BYTES = 16
GROUP_ID_CHARS_MAX = 255
"""Of groups with settings of their own."""

NEXT_EPOCH = -1
"""In place of a partition epoch: one more than before."""

ENDPOINTS_PER_BROKER_MAX = 16


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where clients reach a broker: `listener` is its name, such as PLAINTEXT."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker:
    """A broker has come up, with an epoch above any it had; it is no longer fenced."""

    broker: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    directory_id: bytes = b""
    """Drawn when its data directory was made: another one means that the disk was lost. Empty where nobody said."""
    life: bytes = b""
    """Drawn when its process started. Empty where nobody said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginShutdown:
    """A broker is about to go: it is still there, and becomes neither leader nor in sync until it registers again."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker:
    """A broker is gone for good, and its settings with it. It keeps no partition."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBroker:
    """A broker is taken for dead: it leads nothing and gets no new partitions until it registers again."""

    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """Each partition begins with all its replicas in sync, the first one leading, at epoch 0."""

    name: str
    topic_id: bytes
    partitions: tuple[Replicas, ...]
    configs: Pairs = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    topic_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Partitions after those the topic has; they begin as in `CreateTopic`."""

    topic_id: bytes
    partitions: tuple[Replicas, ...]


@dataclass(frozen=True, slots=True)
class Movement:
    """The replicas from now on: those that stay, those that come, and those that go once these have come."""

    replicas: Replicas
    """All of them, the wanted order first."""

    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePartition:
    """Another leader (or none), another set of replicas in sync or eligible, other replicas, or several of these."""

    topic_id: bytes
    partition: int
    leader: int
    leader_epoch: LeaderEpoch
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    partition_epoch: int = NEXT_EPOCH
    movement: Movement | None = None
    """None: the replicas stay, and so does what is under way with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTopicConfigs:
    topic_id: bytes
    values: Pairs = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBrokerConfigs:
    """For one broker, or for `ALL_BROKERS`."""

    broker: int
    values: Pairs = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGroupConfigs:
    """For one group, whether it exists yet or not."""

    group: str
    values: Pairs = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds:
    """All producer ids below `end` have been given away."""

    end: int


Command = (
    RegisterBroker
    | FenceBroker
    | BeginShutdown
    | UnregisterBroker
    | CreateTopic
    | DeleteTopic
    | AddPartitions
    | ChangePartition
    | SetTopicConfigs
    | SetBrokerConfigs
    | SetGroupConfigs
    | AllocateProducerIds
)
