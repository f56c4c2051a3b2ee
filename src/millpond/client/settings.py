"""What clients may be told. Frozen, checked at the door; times in seconds unless the name says otherwise.

Pure but for two defaults, the machine's wall clock and its chance, which tests replace.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, Final, Literal

from millpond.client.addresses import parse_addresses
from millpond.client.partitioners import Partitioner, named
from millpond.client.retries import Backoff
from millpond.model.addresses import Address
from millpond.model.errors import InvalidSetting
from millpond.model.limits import KIB, MIB
from millpond.model.ports import Rng
from millpond.model.values import dataclass
from millpond.protocol.compression import Codec

Acks = Literal["all", "leader", "none"]
Reset = Literal["earliest", "latest", "error"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

ACKS_CODES: Final[dict[str, int]] = {"all": -1, "leader": 1, "none": 0}
_NS_PER_MS: Final = 1_000_000


def machine_wall_ms() -> int:
    return time.time_ns() // _NS_PER_MS


def check(condition: bool, text: str) -> None:
    if not condition:
        raise InvalidSetting(text)


_KINDS: Final[dict[Any, tuple[Any, str]]] = {
    int: ((int, float), "a number"),
    float: ((int, float), "a number"),
    str: (str, "a text"),
    str | None: ((str, type(None)), "a text"),
}


def check_options(options: Mapping[str, object], *classes: type[Any]) -> None:
    """What a client is told by name: that there is such an option, and that it is of its kind."""
    known = {each.name: each for cls in classes for each in fields(cls) if each.name != "bootstrap"}
    for name, value in options.items():
        check(name in known, f"there is no option {name!r}; there are {', '.join(sorted(known))}")
        kind, word = _KINDS.get(known[name].type, (object, ""))
        check(isinstance(value, kind), f"{name} is {value!r}; it is {word}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Of every client."""

    bootstrap: tuple[Address, ...]
    client_id: str = "millpond-python"
    connect_seconds_max: float = 5.0
    request_seconds_max: float = 30.0
    retry_seconds_max: float = 60.0
    """For what is asked besides messages: how long to go on trying."""
    metadata_seconds_max: float = 10.0
    """To find out about a topic before it is said not to be there."""
    metadata_age_seconds_max: float = 300.0
    backoff: Backoff = field(default_factory=Backoff)
    wall_ms: Callable[[], int] = machine_wall_ms
    rng: Rng = field(default_factory=random.Random)

    @classmethod
    def of(cls, bootstrap: str | Sequence[str], options: dict[str, Any]) -> "ClientSettings":
        check_options(options, cls)
        settings = cls(bootstrap=tuple(parse_addresses(bootstrap)), **options)
        for name in ("connect_seconds_max", "request_seconds_max", "retry_seconds_max", "metadata_seconds_max"):
            value = getattr(settings, name)
            check(value > 0, f"{name} is {value}; it is more than 0")
        return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    acks: Acks = "all"
    idempotent: bool | None = None
    """None: wherever it can be, which is with acks of all."""
    linger_ms: float = 0.0
    """How long a message may wait for company. At 0 it waits only while a batch before it is on its way."""
    batch_bytes: int = 512 * KIB
    buffer_bytes: int = 32 * MIB
    """Messages that are not acknowledged yet; where there are more, sending waits."""
    compression: Compression = "none"
    partitioner: Partitioner | str = "murmur2"
    in_flight_max: int = 5
    """Batches of one partition on their way at a time."""
    delivery_seconds_max: float = 120.0
    """From `send` to the acknowledgement, all tries together."""
    create_topics: bool = True
    """A topic that is not there is made, where the cluster allows that."""
    interceptors: Sequence[object] = ()
    """What sees messages on their way: objects, or names of entry points."""

    def __post_init__(self) -> None:
        check(self.acks in ACKS_CODES, f"acks is {self.acks!r}; it is all, leader or none")
        check(self.linger_ms >= 0, f"linger_ms is {self.linger_ms}; it is at least 0")
        check(1 <= self.batch_bytes <= 32 * MIB, f"batch_bytes is {self.batch_bytes}; it is 1 to {32 * MIB}")
        check(self.buffer_bytes >= 1, f"buffer_bytes is {self.buffer_bytes}; it is at least 1")
        check(
            self.compression.upper() in Codec.__members__,
            f"compression is {self.compression!r}; it is none, gzip, snappy, lz4 or zstd",
        )
        check(self.delivery_seconds_max > 0, f"delivery_seconds_max is {self.delivery_seconds_max}; it is more than 0")
        check(
            not (self.idempotent and self.acks != "all"),
            f"idempotent with acks {self.acks!r}; only with acks 'all' does a broker promise what that needs",
        )
        most = 5 if self.is_idempotent else 1_000
        check(
            1 <= self.in_flight_max <= most,
            f"in_flight_max is {self.in_flight_max}; it is 1 to {most}: brokers remember 5 batches of a producer",
        )

    @property
    def is_idempotent(self) -> bool:
        return self.acks == "all" if self.idempotent is None else self.idempotent

    @property
    def acks_code(self) -> int:
        return ACKS_CODES[self.acks]

    @property
    def codec(self) -> Codec:
        return Codec[self.compression.upper()]

    def make_partitioner(self) -> Partitioner:
        return named(self.partitioner) if isinstance(self.partitioner, str) else self.partitioner


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    group: str | None = None
    instance_id: str | None = None
    """A name that outlives the process: whoever comes back under it finds its partitions kept for it."""
    reset: Reset = "earliest"
    """Where to begin in a partition that has no committed offset, or whose offset is gone."""
    auto_commit: bool = True
    auto_commit_seconds: float = 5.0
    fetch_bytes_min: int = 1
    fetch_wait_ms: int = 500
    fetch_bytes_max: int = 16 * MIB
    """From one broker, in one answer."""
    partition_bytes_max: int = 2 * MIB
    buffer_bytes: int = 32 * MIB
    """Fetched and not polled yet; where there is more, fetching waits."""
    rebalance_seconds_max: float = 300.0
    """How long the application may take over a poll's messages before others are given its partitions."""
    assignor: str | None = None
    """Of the broker: uniform or range; None for its default."""
    interceptors: Sequence[object] = ()
    """What sees messages before the application: objects, or names of entry points."""

    def __post_init__(self) -> None:
        check(self.group != "", "group is empty; leave it out, or name one")
        check(
            self.reset in ("earliest", "latest", "error"), f"reset is {self.reset!r}; it is earliest, latest or error"
        )
        for name in ("auto_commit_seconds", "fetch_bytes_max", "partition_bytes_max", "buffer_bytes"):
            value = getattr(self, name)
            check(value > 0, f"{name} is {value}; it is more than 0")
        for name in ("fetch_bytes_min", "fetch_wait_ms"):
            value = getattr(self, name)
            check(value >= 0, f"{name} is {value}; it is at least 0")
        check(
            self.rebalance_seconds_max >= 0.001,
            f"rebalance_seconds_max is {self.rebalance_seconds_max}; it is at least 0.001",
        )
