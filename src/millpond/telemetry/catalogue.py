"""Every metric a broker shows: its name, kind, labels, and what it means in words a newcomer understands.

Invariant: nothing is shown that is not here. docs/operating/metrics.md holds the same table, and a test compares them.
Pure data. Used by collect.py and broker/operations/measure.py; written out by exposition.py.
"""

from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


_metrics: list[Metric] = []


def _metric(kind: Kind, name: str, meaning: str, *labels: str) -> Metric:
    metric = Metric(name, kind, labels, meaning)
    _metrics.append(metric)
    return metric


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Kind.COUNTER, name, meaning, *labels)


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Kind.GAUGE, name, meaning, *labels)


def _histogram(name: str, meaning: str, *labels: str) -> Metric:
    return _metric(Kind.HISTOGRAM, name, meaning, *labels)


BUILD_INFO = _gauge("millpond_build_info", "Always 1; the labels say what is running.", "version", "python")
UPTIME = _gauge("millpond_uptime_seconds", "Time since this broker started.")
READY = _gauge("millpond_ready", "1 while the broker can serve everything it has, else 0; /health says why not.")
LOOP_DELAY = _histogram(
    "millpond_event_loop_delay_seconds",
    "How much later than asked a timer of the event loop rang, tried four times a second: what every request waits.",
)
QUEUE_READY = _gauge(
    "millpond_queue_ready",
    "Messages that a queue group could be handed now, in partitions that this broker leads; those that it has not "
    "looked at yet count as normal.",
    *("group", "topic", "partition", "lane"),
)
QUEUE_IN_FLIGHT = _gauge(
    "millpond_queue_in_flight",
    "Messages that consumers of a queue group have, and have not acknowledged.",
    *("group", "topic", "partition"),
)
QUEUE_UNFINISHED = _gauge(
    "millpond_queue_unfinished",
    "Messages that a queue group has begun with and is not done with: in flight, passed over, or to come again.",
    *("group", "topic", "partition"),
)
QUEUE_OLDEST_SECONDS = _gauge(
    "millpond_queue_oldest_seconds",
    "Age of the oldest message that a queue group is not done with; 0 where it is done with all.",
    *("group", "topic", "partition"),
)
QUEUE_MESSAGES = _counter(
    "millpond_queue_messages_total",
    "What became of a queue group's messages: delivered for the first time, redelivered, accepted, doomed (for the "
    "dead-letter topic), or expired. Begins anew when the partition's leader changes.",
    *("group", "topic", "partition", "what"),
)
DELAYED_PENDING = _gauge(
    "millpond_delayed_pending",
    "Delayed messages that wait to be delivered, and schedules, in partitions that this broker leads.",
    "topic",
    "partition",
)
DELAYED_PARKED = _counter("millpond_delayed_parked_total", "Messages of batches that asked for a delay.")
DELAYED_DELIVERED = _counter(
    "millpond_delayed_delivered_total", "Delayed messages that were delivered; a schedule counts each time."
)
DELAYED_CANCELLED = _counter("millpond_delayed_cancelled_total", "Delayed messages and schedules that were cancelled.")
DELAYED_LATENESS = _histogram(
    "millpond_delayed_lateness_seconds", "How long after they were due delayed messages were delivered."
)
DROPPED_SERIES = _gauge(
    "millpond_metrics_dropped_series", "Series left out of this answer because a metric has too many.", "metric"
)

HTTP_REQUESTS = _counter("millpond_http_requests_total", "Requests answered over HTTP, by status.", "status")
HTTP_CONNECTIONS_OPEN = _gauge("millpond_http_connections_open", "Connections to the HTTP door.")

REQUESTS = _counter("millpond_requests_total", "Requests handled, by Kafka API.", "api")
REQUEST_ERRORS = _counter(
    "millpond_request_errors_total",
    "Errors answered, by Kafka API and Kafka's name of the error. One answer may hold one for each partition; some, "
    "such as REBALANCE_IN_PROGRESS, are ordinary steps of the protocol.",
    "api",
    "error",
)
REQUESTS_REJECTED = _counter(
    "millpond_requests_rejected_total",
    "Requests that could not be handled at all: malformed bytes, or an API or version that is not served.",
    "reason",
)
REQUEST_DURATION = _histogram(
    "millpond_request_duration_seconds",
    "From a request's last byte to its answer, by Kafka API. Waiting counts: a Fetch waits for data, a JoinGroup for "
    "the other members, a Produce for the disk. Requests that want no answer are not in here.",
    "api",
)

RECEIVED_BYTES = _counter("millpond_network_received_bytes_total", "Bytes that came from Kafka clients.")
SENT_BYTES = _counter("millpond_network_sent_bytes_total", "Bytes written to Kafka clients.")
CONNECTIONS_OPEN = _gauge("millpond_connections_open", "Kafka connections that are open now.")
CONNECTIONS_ACCEPTED = _counter("millpond_connections_accepted_total", "Kafka connections that were let in.")
CONNECTIONS_REFUSED = _counter(
    "millpond_connections_refused_total", "Kafka connections turned away because there were too many."
)
CONNECTIONS_CLOSED = _counter("millpond_connections_closed_total", "Kafka connections that ended, by reason.", "reason")
DATAGRAMS_IGNORED = _counter(
    "millpond_discovery_datagrams_ignored_total",
    "Datagrams to the multicast group that announced no broker of this cluster: junk, another cluster, or this "
    "cluster's name with another secret. Only with discovery by multicast.",
    "reason",
)

PRODUCED_BYTES = _counter(
    "millpond_topic_produced_bytes_total", "Bytes of record batches appended, as producers compressed them.", "topic"
)
PRODUCED_BATCHES = _counter("millpond_topic_produced_batches_total", "Record batches appended.", "topic")
FETCHED_BYTES = _counter("millpond_topic_fetched_bytes_total", "Bytes of record batches sent to consumers.", "topic")
FETCHED_MESSAGES = _counter(
    "millpond_topic_fetched_messages_total",
    "Messages sent to consumers, counted by offsets; one that is sent twice counts twice.",
    "topic",
)

START_OFFSET = _gauge(
    "millpond_partition_start_offset", "Offset of the oldest message that is kept.", "topic", "partition"
)
END_OFFSET = _gauge(
    "millpond_partition_end_offset",
    "Offset that the next message consumers can see will have (the high watermark); its rate is messages per second.",
    "topic",
    "partition",
)
SIZE_BYTES = _gauge("millpond_partition_size_bytes", "Bytes of the partition's log on disk.", "topic", "partition")

SYNC_DURATION = _histogram(
    "millpond_log_sync_duration_seconds", "How long the disk took to make a log durable; the count is the syncs done."
)
SYNCED_BYTES = _counter("millpond_log_synced_bytes_total", "Bytes that those syncs made durable.")
LOGS_FAILED = _gauge(
    "millpond_logs_failed", "Partitions that are not open, or take no more messages, because their disk failed."
)

GROUP_MEMBERS = _gauge("millpond_group_members", "Members of the consumer group.", "group")
GROUP_STATE = _gauge("millpond_group_state", "1 for the state the consumer group is in.", "group", "type", "state")
GROUP_LAG_MESSAGES = _gauge(
    "millpond_group_lag_messages",
    "Messages behind the offset the group has committed: what it has still to do.",
    "group",
    "topic",
    "partition",
)
GROUP_LAG_SECONDS = _gauge(
    "millpond_group_lag_seconds",
    "Age of the oldest message the group has not committed, by its batch's first timestamp; 0 when there is none.",
    "group",
    "topic",
    "partition",
)
REBALANCES = _counter("millpond_group_rebalances_total", "Rebalances begun, by group and reason.", "group", "reason")
REBALANCE_DURATION = _histogram(
    "millpond_group_rebalance_duration_seconds", "From the begin of a rebalance until all members know their part."
)
MEMBERS_JOINED = _counter("millpond_group_members_joined_total", "Members that joined a group.")
MEMBERS_GONE = _counter("millpond_group_members_gone_total", "Members that left a group or were put out.", "reason")

METRICS: Final = tuple(_metrics)

PROCESS_METRICS: Final = (
    Metric("process_cpu_seconds_total", Kind.COUNTER, (), "Total user and system CPU time spent in seconds."),
    Metric("process_max_fds", Kind.GAUGE, (), "Maximum number of open file descriptors."),
    Metric("process_open_fds", Kind.GAUGE, (), "Number of open file descriptors."),
    Metric("process_resident_memory_bytes", Kind.GAUGE, (), "Resident memory size in bytes."),
    Metric("process_start_time_seconds", Kind.GAUGE, (), "Start time of the process since unix epoch in seconds."),
    Metric("process_virtual_memory_bytes", Kind.GAUGE, (), "Virtual memory size in bytes."),
)
"""Of the whole process, by the names that every Prometheus client library gives them."""
