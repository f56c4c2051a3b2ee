"""Every setting of a group, by Kafka's name where it has one, and what they come to for one group.

A group need not exist to be configured, and keeps its settings when it is deleted. What is not set for the group comes
from the broker: `share.…` and `consumer.…` by the names `group.share.…` and so on, `millpond.…` by its own.
Invariant: `effective_group` of overrides that were accepted never fails.
Pure. Read by the drivers of groups and of deliveries, through `group_config`.
"""

import re
from collections.abc import Mapping
from enum import Enum

from millpond.core.delivery.settings import Priority
from millpond.core.metadata.config_keys import INT32_MAX, ConfigKey, ConfigType, Value, parse
from millpond.core.metadata.image import Image
from millpond.core.metadata.internal_topics import INTERNAL
from millpond.model.errors import InvalidSetting
from millpond.model.limits import TOPIC_NAME_CHARS_MAX
from millpond.model.topic_names import is_topic_name
from millpond.model.values import dataclass

SECOND_MS = 1_000
HOUR_MS = 3_600 * SECOND_MS
DAY_MS = 24 * HOUR_MS

BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>[0-9]{1,6})D)?"
    r"(?:T(?=.)(?:(?P<hours>[0-9]{1,8})H)?(?:(?P<minutes>[0-9]{1,9})M)?(?:(?P<seconds>[0-9]{1,10}(?:\.[0-9]{1,3})?)S)?)?"
)


class StartAt(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"


class Order(Enum):
    OFFSET = "offset"
    KEY = "key"


class Expired(Enum):
    DROP = "drop"
    DEAD_LETTER = "dead-letter"


def _broker_name(name: str) -> str:
    return name if name.startswith("millpond.") else f"group.{name}"


def _int(name: str, default: int, about: str, *, least: int = 0, most: int = INT32_MAX) -> ConfigKey:
    return ConfigKey(
        name=name,
        broker_name=_broker_name(name),
        type=ConfigType.INT,
        default=str(default),
        least=least,
        most=most,
        about=about,
    )


def _text(name: str, choices: tuple[str, ...], about: str) -> ConfigKey:
    """One of `choices`, the first by default; any text where there are none."""
    return ConfigKey(
        name=name,
        broker_name=_broker_name(name),
        type=ConfigType.STRING,
        default=choices[0] if choices else "",
        choices=choices,
        about=about,
    )


_KEYS = (
    # Kafka's default is `latest`. A queue that forgets what was sent before its first consumer came surprises
    # everybody: whoever sends a job and starts a worker afterwards expects the worker to get it.
    ConfigKey(
        name="share.auto.offset.reset",
        broker_name=_broker_name("share.auto.offset.reset"),
        type=ConfigType.STRING,
        default="earliest",
        choices=("earliest", "latest"),
        form=re.compile(re.escape(BY_DURATION) + _DURATION.pattern),
        form_shown=f"{BY_DURATION}PnDTnHnMn.nS, such as {BY_DURATION}P7D or {BY_DURATION}PT90M",
        about="Where a share group begins in a partition it has not read: with the oldest message, with the next one, "
        "or with those of so long ago.",
    ),
    _int(
        "share.record.lock.duration.ms",
        30 * SECOND_MS,
        "How long a delivered message is its consumer's alone; then it is delivered again.",
        least=100,
        most=12 * HOUR_MS,
    ),
    _int(
        "share.heartbeat.interval.ms",
        SECOND_MS,
        "How often members of a share group show themselves, and hear of partitions that are theirs.",
        least=100,
        most=60 * SECOND_MS,
    ),
    _int(
        "share.session.timeout.ms",
        45 * SECOND_MS,
        "How long a member of a share group may be silent before its partitions go to others.",
        least=SECOND_MS,
        most=1_800 * SECOND_MS,
    ),
    _int(
        "consumer.heartbeat.interval.ms",
        700,
        "How often members of a consumer group (KIP-848) show themselves, and hear of what changes for them.",
        least=100,
        most=60 * SECOND_MS,
    ),
    _int(
        "consumer.session.timeout.ms",
        45 * SECOND_MS,
        "How long a member of a consumer group (KIP-848) may be silent before its partitions go to others.",
        least=SECOND_MS,
        most=1_800 * SECOND_MS,
    ),
    _text(
        "share.isolation.level",
        ("read_uncommitted", "read_committed"),
        "Whether messages of transactions are delivered before these are committed.",
    ),
    _int(
        "share.delivery.count.limit",
        5,
        "How often a message is delivered before it goes to the dead-letter topic, or is given up.",
        least=1,
        most=1_000,
    ),
    _int(
        "share.partition.max.record.locks",
        100_000,
        "How many messages of one partition may be with consumers at a time, unacknowledged.",
        least=1,
        most=10_000_000,
    ),
    _int(
        "millpond.max.unacked.per.consumer",
        10_000,
        "How many messages of one partition one consumer may have at a time, unacknowledged.",
        least=1,
        most=10_000_000,
    ),
    _int(
        "millpond.retry.backoff.ms",
        0,
        "How long a message that was given back waits before its second delivery; twice as long before each further "
        "one. 0 delivers it again at once.",
        most=7 * DAY_MS,
    ),
    _int(
        "millpond.retry.backoff.max.ms",
        300 * SECOND_MS,
        "The longest wait between two deliveries of a message that was given back.",
        most=7 * DAY_MS,
    ),
    ConfigKey(
        name="millpond.retry.jitter",
        broker_name="millpond.retry.jitter",
        type=ConfigType.DOUBLE,
        default="0.2",
        least=0,
        most=1,
        about="The part of each wait that is left to chance, so that messages that failed together do not come back "
        "together.",
    ),
    _text(
        "millpond.dead.letter",
        ("on", "off"),
        "Whether a message that was rejected, or delivered too often, is kept in the dead-letter topic.",
    ),
    _text(
        "millpond.dead.letter.topic",
        (),
        "The dead-letter topic; empty for that of the message's own topic, which has .dlq after its name.",
    ),
    _text(
        "millpond.expired",
        ("drop", "dead-letter"),
        "What becomes of a message whose millpond-ttl-ms is over before it was acknowledged.",
    ),
    _text(
        "millpond.order",
        ("offset", "key"),
        "With key, messages of one key are delivered one at a time, in order; one that is given back holds up its key "
        "and nothing else.",
    ),
    _text(
        "millpond.priority",
        ("strict", "weighted", "off"),
        "How millpond-priority counts: strict delivers higher ones first, weighted more often; or not at all.",
    ),
    _int(
        "millpond.priority.max.age.ms",
        60 * SECOND_MS,
        "A message that has waited so long is delivered next, whatever its priority.",
        most=7 * DAY_MS,
    ),
)

GROUP_KEYS: Mapping[str, ConfigKey] = {key.name: key for key in _KEYS}

GRAVEYARD = ".dlq"
REDRIVES = "millpond.redrive."
"""Begins the names of groups with which dead letters are sent back: Millpond's own, and not listed."""
_OF_REDRIVES = {
    # In the order of their offsets, so that all before one of them were sent back; and as often as it takes.
    "millpond.priority": "off",
    "share.delivery.count.limit": "1000",
    "millpond.dead.letter": "off",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What holds for one group."""

    start: StartAt
    start_age_ms: int
    """With BY_DURATION, how old the first message may be; otherwise 0."""
    lock_ms: int
    share_heartbeat_ms: int
    share_session_timeout_ms: int
    consumer_heartbeat_ms: int
    consumer_session_timeout_ms: int
    read_committed: bool
    deliveries_max: int
    locks_per_partition_max: int
    unacked_per_consumer_max: int
    retry_backoff_ms: int
    retry_backoff_ms_max: int
    retry_jitter: float
    dead_letter: bool
    dead_letter_topic: str | None
    """None: the topic of the message, and `.dlq`."""
    expired: Expired
    order: Order
    priority: Priority
    priority_age_ms_max: int


def group_config(image: Image, broker_defaults: Mapping[str, str], group: str) -> GroupConfig:
    """`broker_defaults` are those of all brokers, or of one: `layers(image, static).merged()`. What sends dead letters
    back does so whatever anybody has set."""
    if group.startswith(REDRIVES):
        return effective_group(_OF_REDRIVES, {})
    return effective_group(image.configs_of_group(group), broker_defaults)


def graveyard_of(topic: str, config: GroupConfig | None = None) -> str:
    """Where dead letters go. A topic that would be its own has the one that it has where no group names any; a name
    that would be too long loses its end, and letters say whose they are."""
    if config is not None and config.dead_letter_topic not in (None, topic):
        return str(config.dead_letter_topic)
    return topic[: TOPIC_NAME_CHARS_MAX - len(GRAVEYARD)] + GRAVEYARD


def has_graveyard(topic: str, config: GroupConfig) -> bool:
    """A topic of dead letters has none of its own, unless it is named: what nobody can use there stays where it is."""
    is_named = config.dead_letter_topic not in (None, topic)
    return config.dead_letter and (is_named or not topic.endswith(GRAVEYARD))


def check_group_configs(overrides: Mapping[str, str]) -> None:
    """Refuses names that do not exist and values outside their range."""
    for name, text in overrides.items():
        if name not in GROUP_KEYS:
            raise InvalidSetting(f"{name[:80]!r} is no setting of a group; allowed are {', '.join(GROUP_KEYS)}")
        parse(GROUP_KEYS[name], text)


def check_group_together(config: GroupConfig) -> None:
    topic = config.dead_letter_topic
    if topic is not None and (not is_topic_name(topic) or topic in INTERNAL):
        why = "is one of Millpond's own" if topic in INTERNAL else "is no topic name"
        raise InvalidSetting(
            f"millpond.dead.letter.topic is {topic[:80]!r}, which {why}; allowed is the name of a topic, or nothing "
            "for that of the message's own topic"
        )
    for kind, heartbeat_ms, session_timeout_ms in (
        ("share", config.share_heartbeat_ms, config.share_session_timeout_ms),
        ("consumer", config.consumer_heartbeat_ms, config.consumer_session_timeout_ms),
    ):
        if heartbeat_ms >= session_timeout_ms:
            raise InvalidSetting(
                f"{kind}.heartbeat.interval.ms is {heartbeat_ms} and {kind}.session.timeout.ms is "
                f"{session_timeout_ms}; allowed is an interval below the timeout: a third of it leaves room for a lost "
                "heartbeat"
            )
    if config.retry_backoff_ms > config.retry_backoff_ms_max:
        raise InvalidSetting(
            f"millpond.retry.backoff.ms is {config.retry_backoff_ms} and millpond.retry.backoff.max.ms is "
            f"{config.retry_backoff_ms_max}; allowed is a first wait that is not above the longest: raise that too"
        )


def effective_group(overrides: Mapping[str, str], broker_defaults: Mapping[str, str]) -> GroupConfig:
    """`broker_defaults` has the broker's names, and only those that are set."""
    values = {key.name: parse(key, text_of_group(key, overrides, broker_defaults)) for key in _KEYS}
    start, start_age_ms = _start(str(values["share.auto.offset.reset"]))
    return GroupConfig(
        start=start,
        start_age_ms=start_age_ms,
        lock_ms=_whole(values, "share.record.lock.duration.ms"),
        share_heartbeat_ms=_whole(values, "share.heartbeat.interval.ms"),
        share_session_timeout_ms=_whole(values, "share.session.timeout.ms"),
        consumer_heartbeat_ms=_whole(values, "consumer.heartbeat.interval.ms"),
        consumer_session_timeout_ms=_whole(values, "consumer.session.timeout.ms"),
        read_committed=values["share.isolation.level"] == "read_committed",
        deliveries_max=_whole(values, "share.delivery.count.limit"),
        locks_per_partition_max=_whole(values, "share.partition.max.record.locks"),
        unacked_per_consumer_max=_whole(values, "millpond.max.unacked.per.consumer"),
        retry_backoff_ms=_whole(values, "millpond.retry.backoff.ms"),
        retry_backoff_ms_max=_whole(values, "millpond.retry.backoff.max.ms"),
        retry_jitter=float(str(values["millpond.retry.jitter"])),
        dead_letter=values["millpond.dead.letter"] == "on",
        dead_letter_topic=str(values["millpond.dead.letter.topic"]) or None,
        expired=Expired(values["millpond.expired"]),
        order=Order(values["millpond.order"]),
        priority=Priority(values["millpond.priority"]),
        priority_age_ms_max=_whole(values, "millpond.priority.max.age.ms"),
    )


def text_of_group(key: ConfigKey, overrides: Mapping[str, str], broker_defaults: Mapping[str, str]) -> str:
    return overrides.get(key.name, broker_defaults.get(key.broker_name, key.default))


def _start(text: str) -> tuple[StartAt, int]:
    if not text.startswith(BY_DURATION):
        return StartAt(text), 0
    found = _DURATION.fullmatch(text.removeprefix(BY_DURATION))
    assert found is not None, text
    days, hours, minutes, seconds = (found[name] or "0" for name in ("days", "hours", "minutes", "seconds"))
    return StartAt.BY_DURATION, (
        int(days) * DAY_MS + int(hours) * HOUR_MS + int(minutes) * 60 * SECOND_MS + round(float(seconds) * SECOND_MS)
    )


def _whole(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int), (name, value)
    return value
