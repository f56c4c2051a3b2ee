"""Every setting of a topic, by Kafka's name, and what they come to for one topic.

A setting that Millpond has no use for is taken where ignoring it loses nothing and no client could tell; its text says
so. One that would promise something which is not done is refused: tiered storage, throttled replicas, levels of
compression.
Invariant: `effective` of overrides that were accepted never fails.
Pure. broker/drivers/metadata.py turns a `TopicConfig` into settings of the log.
"""

from collections.abc import Mapping
from functools import lru_cache

from millpond.core.metadata.config_keys import INT32_MAX, INT64_MAX, ConfigKey, ConfigType, Value, parse
from millpond.model.errors import InvalidSetting
from millpond.model.limits import BATCH_BYTES_MAX, KIB, SEGMENT_BYTES_MAX
from millpond.model.values import dataclass
from millpond.protocol.compression import Codec

DAY_MS = 86_400_000

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG


def _long(name: str, broker_name: str, default: int, about: str, *, least: int = 0) -> ConfigKey:
    return ConfigKey(
        name=name,
        broker_name=broker_name,
        type=_LONG,
        default=str(default),
        least=least,
        most=INT64_MAX,
        about=about,
    )


def _int(name: str, broker_name: str, default: int, about: str, *, least: int = 0, most: int = INT32_MAX) -> ConfigKey:
    return ConfigKey(
        name=name,
        broker_name=broker_name,
        type=_INT,
        default=str(default),
        least=least,
        most=most,
        about=about,
    )


def _switch(name: str, broker_name: str, default: bool, about: str) -> ConfigKey:
    return ConfigKey(name=name, broker_name=broker_name, type=_BOOLEAN, default=str(default).lower(), about=about)


def _choice(name: str, broker_name: str, choices: tuple[str, ...], about: str, *, advice: str = "") -> ConfigKey:
    return ConfigKey(
        name=name,
        broker_name=broker_name,
        type=_STRING,
        default=choices[0],
        choices=choices,
        about=about,
        advice=advice,
    )


_KEYS = (
    ConfigKey(
        name="cleanup.policy",
        broker_name="log.cleanup.policy",
        type=ConfigType.LIST,
        default="delete",
        choices=("delete", "compact"),
        about="What happens to old records: delete forgets them by age and size, compact keeps the last of each key; "
        "both may be named. Empty keeps everything for ever.",
    ),
    _choice(
        "compression.type",
        "compression.type",
        ("producer", *CODECS),
        "How batches are kept: as their producer compressed them, or compressed anew by the broker, which costs time "
        "for each batch that comes otherwise.",
    ),
    _long(
        "delete.retention.ms",
        "log.cleaner.delete.retention.ms",
        DAY_MS,
        "How long compaction keeps a tombstone, so that a reader still learns of the deletion.",
    ),
    _long(
        "file.delete.delay.ms",
        "log.segment.delete.delay.ms",
        60_000,
        "Taken and not needed: a removed file stays readable for those who are reading it.",
    ),
    _long(
        "flush.messages",
        "log.flush.interval.messages",
        INT64_MAX,
        "Taken and not needed: millpond.flush says when records are synced to disk.",
        least=1,
    ),
    _long(
        "flush.ms",
        "log.flush.interval.ms",
        1_000,
        "With millpond.flush=interval, the time between syncs to disk; less than 1 ms counts as 1 ms, more than a day "
        "as a day.",
    ),
    _int(
        "index.interval.bytes",
        "log.index.interval.bytes",
        4 * KIB,
        "A place in the index for every so many bytes of records.",
        most=SEGMENT_BYTES_MAX,
    ),
    _long(
        "max.compaction.lag.ms",
        "log.cleaner.max.compaction.lag.ms",
        INT64_MAX,
        "How long a replaced record may stay before compaction must look at it.",
        least=1,
    ),
    _int(
        "max.message.bytes",
        "message.max.bytes",
        1024 * KIB + 12,
        "The largest record batch, as sent, that is accepted.",
        least=61,  # the head of a batch
        most=BATCH_BYTES_MAX,
    ),
    _switch(
        "message.downconversion.enable",
        "log.message.downconversion.enable",
        True,
        "Taken and not needed: records have one format, that of Kafka 0.11 and later.",
    ),
    _long(
        "message.timestamp.after.max.ms",
        "log.message.timestamp.after.max.ms",
        3_600_000,
        "How far ahead of the broker's clock a record's own time may be. Not asked with LogAppendTime.",
    ),
    _long(
        "message.timestamp.before.max.ms",
        "log.message.timestamp.before.max.ms",
        INT64_MAX,
        "How far behind the broker's clock a record's own time may be. Not asked with LogAppendTime.",
    ),
    _choice(
        "message.timestamp.type",
        "log.message.timestamp.type",
        ("CreateTime", "LogAppendTime"),
        "Whose time a record carries: its producer's, or that of the broker when it was appended.",
    ),
    ConfigKey(
        name="min.cleanable.dirty.ratio",
        broker_name="log.cleaner.min.cleanable.ratio",
        type=ConfigType.DOUBLE,
        default="0.5",
        least=0,
        most=1,
        about="The part of a compacted log that must be new before it is compacted again.",
    ),
    _long(
        "min.compaction.lag.ms",
        "log.cleaner.min.compaction.lag.ms",
        0,
        "How long a record is safe from compaction.",
    ),
    _int(
        "min.insync.replicas",
        "min.insync.replicas",
        1,
        "With acks=all, a record is refused unless so many replicas are in sync.",
        least=1,
    ),
    _switch("preallocate", "log.preallocate", False, "Taken and not needed: segments grow as they are written."),
    _long(
        "retention.bytes",
        "log.retention.bytes",
        -1,
        "With the policy delete, the oldest segments go when a partition is larger than this; -1 is no bound.",
        least=-1,
    ),
    _long(
        "retention.ms",
        "log.retention.ms",
        7 * DAY_MS,
        "With the policy delete, segments go when their last record is older than this; -1 keeps them for ever.",
        least=-1,
    ),
    _int(
        "segment.bytes",
        "log.segment.bytes",
        1024**3,
        "The size at which a new segment file is begun.",
        least=KIB,
        most=SEGMENT_BYTES_MAX,
    ),
    _int(
        "segment.index.bytes",
        "log.index.size.max.bytes",
        10 * 1024 * KIB,
        "Taken and not needed: an index is as large as its segment asks.",
        least=4,
    ),
    _long(
        "segment.jitter.ms",
        "log.roll.jitter.ms",
        0,
        "Taken and not needed: partitions that begin segments at the same time share their syncs.",
    ),
    _long(
        "segment.ms",
        "log.roll.ms",
        7 * DAY_MS,
        "The age at which a segment that is not full is closed all the same, so that it can be deleted or compacted.",
        least=1,
    ),
    _switch(
        "unclean.leader.election.enable",
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may lead when no other is there; records that only the others had are "
        "lost.",
    ),
    _choice(
        "millpond.flush",
        "millpond.flush",
        ("group", "interval", "none"),
        "When a record counts as kept: group waits for a sync to disk that all waiting records share; interval does "
        "not wait and syncs every flush.ms; none leaves it to the operating system.",
    ),
    _choice(
        "millpond.delay",
        "millpond.delay",
        ("off", "on"),
        "Whether records may ask to be delivered later (headers millpond-delay-ms, millpond-deliver-at, "
        "millpond-cron). Not with the policy compact.",
    ),
    _choice(
        "millpond.retention",
        "millpond.retention",
        ("time", "acked"),
        "With acked, a message is removed once every queue group of the topic has acknowledged it; with time, messages "
        "stay for replay. retention.ms and retention.bytes hold in both.",
    ),
    _switch(
        "millpond.verify.reads",
        "millpond.verify.reads",
        True,
        "Check every batch's checksum each time it is read, so that damage on disk is never served.",
    ),
)

TOPIC_KEYS: Mapping[str, ConfigKey] = {key.name: key for key in _KEYS}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What holds for one topic. None is no bound."""

    delete: bool
    compact: bool
    tombstone_grace_ms: int
    flush: str
    flush_interval_ms: int
    index_interval_bytes: int
    compaction_lag_ms_min: int
    compaction_lag_ms_max: int
    compaction_dirty_ratio_min: float
    batch_bytes_max: int
    codec: Codec | None
    """How batches are kept; None is as they come."""
    log_append_time: bool
    timestamp_before_ms_max: int
    timestamp_after_ms_max: int
    retention_bytes: int | None
    retention_ms: int | None
    segment_bytes: int
    segment_ms: int
    unclean_leader_election: bool
    verify_reads: bool
    delay: bool
    retains_unacknowledged: bool
    """And nothing else: what every queue group has acknowledged is removed."""


def check_topic_configs(overrides: Mapping[str, str]) -> None:
    """Refuses names that do not exist, values outside their range, and values that contradict each other."""
    for name, text in overrides.items():
        if name not in TOPIC_KEYS:
            raise InvalidSetting(f"{name[:80]!r} is no setting of a topic; allowed are {', '.join(TOPIC_KEYS)}")
        parse(TOPIC_KEYS[name], text)


def check_together(config: TopicConfig) -> None:
    if config.compaction_lag_ms_min > config.compaction_lag_ms_max:
        raise InvalidSetting(
            f"min.compaction.lag.ms is {config.compaction_lag_ms_min} and max.compaction.lag.ms is "
            f"{config.compaction_lag_ms_max}; allowed is a least that is not above the most"
        )
    if config.delay and config.compact:
        raise InvalidSetting(
            "millpond.delay is on and cleanup.policy has compact; allowed is one of them: what is parked has to stay"
        )


def effective(topic_overrides: Mapping[str, str], broker_defaults: Mapping[str, str]) -> TopicConfig:
    """`broker_defaults` has the broker's names (`log.retention.ms`), and only those that are set.

    An override this version does not know is passed over: a newer one wrote it, and means to come back.
    """
    return _effective(tuple(text_of(key, topic_overrides, broker_defaults) for key in _KEYS))


@lru_cache(maxsize=1024)
def _effective(texts: tuple[str, ...]) -> TopicConfig:
    """Kept: whenever metadata change, it is asked again for each topic, and most have what most have."""
    values = {key.name: parse(key, text) for key, text in zip(_KEYS, texts, strict=True)}
    policy = values["cleanup.policy"]
    assert isinstance(policy, tuple)
    return TopicConfig(
        delete="delete" in policy,
        compact="compact" in policy,
        tombstone_grace_ms=_whole(values, "delete.retention.ms"),
        flush=str(values["millpond.flush"]),
        flush_interval_ms=min(max(_whole(values, "flush.ms"), 1), DAY_MS),
        index_interval_bytes=_whole(values, "index.interval.bytes"),
        compaction_lag_ms_min=_whole(values, "min.compaction.lag.ms"),
        compaction_lag_ms_max=_whole(values, "max.compaction.lag.ms"),
        compaction_dirty_ratio_min=_decimal(values, "min.cleanable.dirty.ratio"),
        batch_bytes_max=_whole(values, "max.message.bytes"),
        codec=CODECS.get(str(values["compression.type"])),
        log_append_time=values["message.timestamp.type"] == "LogAppendTime",
        timestamp_before_ms_max=_whole(values, "message.timestamp.before.max.ms"),
        timestamp_after_ms_max=_whole(values, "message.timestamp.after.max.ms"),
        retention_bytes=_bound(values, "retention.bytes"),
        retention_ms=_bound(values, "retention.ms"),
        segment_bytes=_whole(values, "segment.bytes"),
        segment_ms=_whole(values, "segment.ms"),
        unclean_leader_election=values["unclean.leader.election.enable"] is True,
        verify_reads=values["millpond.verify.reads"] is True,
        delay=values["millpond.delay"] == "on",
        retains_unacknowledged=values["millpond.retention"] == "acked",
    )


def text_of(key: ConfigKey, topic_overrides: Mapping[str, str], broker_defaults: Mapping[str, str]) -> str:
    return topic_overrides.get(key.name, broker_defaults.get(key.broker_name, key.default))


def _whole(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int), (name, value)
    return value


def _decimal(values: Mapping[str, Value], name: str) -> float:
    value = values[name]
    assert isinstance(value, int | float), (name, value)
    return value


def _bound(values: Mapping[str, Value], name: str) -> int | None:
    value = _whole(values, name)
    return None if value == -1 else value
