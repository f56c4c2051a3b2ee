"""Every event a broker tells of: its name, how grave it is, its fields, and a sentence made of them.

    tell(BROKER_STOPPED, seconds=0.2)

Invariant: an event is told with exactly its fields, so that whoever searches logs by field finds all of them.
The standard library's logging carries them; log_lines.py renders them. Driven by app.
"""

import logging
from logging import ERROR, INFO, WARNING

from millpond.model.values import dataclass

LOGGER = logging.getLogger("millpond")


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    level: int
    sentence: str
    """Names fields in braces."""
    fields: tuple[str, ...] = ()


BROKER_STARTED = Event(
    "broker_started",
    INFO,
    "Millpond {version} listens on {address}, HTTP {http}, gRPC {grpc}; {partitions} partitions in {data_dir}; "
    "{recovery}",
    (
        "version",
        "address",
        "host",
        "port",
        "http",
        "grpc",
        "node_id",
        "pid",
        "data_dir",
        "partitions",
        "recovery",
        "logs_unclean",
        "bytes_scanned",
        "bytes_cut",
    ),
)
LOG_RECOVERED = Event(
    "log_recovered",
    WARNING,
    "{partition} was not closed in order: {bytes_scanned} bytes checked, {bytes_cut} of an unfinished write cut off",
    ("partition", "bytes_scanned", "bytes_cut", "cut_reason", "next_offset"),
)
LOG_DAMAGED = Event(
    "log_damaged",
    ERROR,
    "{file} is damaged at byte {position}: {reason}; the records there are not served",
    ("partition", "file", "position", "offset", "reason"),
)
ELECTED_UNCLEAN = Event(
    "elected_unclean",
    ERROR,
    "{partition} is led by a replica that was not in sync: records that were acknowledged may be lost for good",
    ("partition",),
)
UNCLEAN_ALLOWED = Event(
    "unclean_allowed",
    WARNING,
    "unclean.leader.election.enable is true for {topic} now: where nobody in sync is left, a replica that lacks "
    "records may lead, and what was acknowledged is lost; set it to false as soon as you can",
    ("topic",),
)
BROKER_GONE = Event(
    "broker_gone",
    INFO,
    "the process of broker {broker} has ended: {address} refuses connections",
    ("broker", "address"),
)
FOUNDERS_MISSING = Event(
    "founders_missing",
    WARNING,
    "waits for the others that found the cluster; not found by {source} yet: {missing}; {why}",
    ("missing", "source", "why"),
)
BROKER_FOUND = Event(
    "broker_found",
    INFO,
    "broker {node_id} is at {address}, found by {source}",
    ("node_id", "address", "source"),
)
OPEN_TO_EVERYBODY = Event(
    "open_to_everybody",
    WARNING,
    "{address} asks for no authentication: whoever reaches it may read, write and delete everything",
    ("address",),
)
HTTP_OPEN_TO_EVERYBODY = Event(
    "http_open_to_everybody",
    WARNING,
    "{address} asks for no authentication: whoever reaches it can read, write and delete everything",
    ("address",),
)
DISK_TROUBLE = Event("disk_trouble", ERROR, "{trouble}", ("trouble",))
UNEXPECTED_ERROR = Event("unexpected_error", ERROR, "something failed that should not: {error}", ("error",))
BROKER_STOPPING = Event(
    "broker_stopping", INFO, "{signal}: finishing what was asked; once more stops at once", ("signal",)
)
BROKER_STOPPED = Event("broker_stopped", INFO, "stopped, every log closed in order, after {took_ms} ms", ("took_ms",))

CLUSTER_STARTED = Event(
    "cluster_started",
    INFO,
    "a cluster of {brokers} brokers is ready: bootstrap.servers={bootstrap}; data in {data_dir}; Ctrl-C stops all",
    ("brokers", "bootstrap", "pids", "data_dir", "took_ms"),
)
CLUSTER_BROKER_ENDED = Event(
    "cluster_broker_ended",
    ERROR,
    "BROKER {node_id} HAS ENDED ({how}); {left} of {brokers} go on, {outlook}",
    ("node_id", "how", "left", "brokers", "outlook"),
)
CLUSTER_STOPPING = Event(
    "cluster_stopping", INFO, "{signal}: stopping all brokers; once more ends them at once", ("signal",)
)
CLUSTER_STOPPED = Event(
    "cluster_stopped", INFO, "all brokers have stopped, after {took_ms} ms{how}", ("took_ms", "how")
)


def tell(event: Event, *, error: BaseException | None = None, **fields: object) -> None:
    """`error` is told with its traceback, as the field `error`: most likely it is a bug of ours."""
    if error is not None:
        fields["error"] = f"{type(error).__name__}: {error}"
    assert fields.keys() == set(event.fields), f"{event.name} has the fields {event.fields}, told {tuple(fields)}"
    if LOGGER.isEnabledFor(event.level):
        LOGGER.log(event.level, event.name, extra={"event": event, "fields": fields}, exc_info=error)
