"""Every setting of a broker that DescribeConfigs names: the defaults of all topics and groups, and the broker's own.

These defaults may change while the broker runs, for one broker or for all; the rest is read when it starts.
Invariant: the mapping of static settings was checked once (`check_static`), so that reading it never fails.
Pure. app/settings passes the mapping in; broker/drivers/metadata.py hands it on.
"""

from collections.abc import Mapping
from dataclasses import replace

from millpond.core.metadata.commands import ALL_BROKERS
from millpond.core.metadata.config_keys import INT32_MAX, INT64_MAX, ConfigKey, ConfigType, Value, parse
from millpond.core.metadata.group_configs import GROUP_KEYS, check_group_together, effective_group
from millpond.core.metadata.image import Image
from millpond.core.metadata.topic_configs import TOPIC_KEYS, check_together, effective
from millpond.model.errors import InvalidRequest, InvalidSetting
from millpond.model.limits import PARTITIONS_PER_TOPIC_MAX, VISIBILITY_MS_MAX
from millpond.model.values import dataclass

_NOTHING: Mapping[str, str] = {}
THROTTLED_RATE = "follower.replication.throttled.rate"
FENCE_GONE = "millpond.refused.is.gone"


def _own(name: str, kind: ConfigType, default: str, about: str, *, least: int = 0, most: int = INT32_MAX) -> ConfigKey:
    numeric = kind not in (ConfigType.BOOLEAN, ConfigType.STRING)
    return ConfigKey(
        name=name,
        type=kind,
        default=default,
        about=about,
        least=least if numeric else None,
        most=most if numeric else None,
        dynamic=False,
    )


def _count(name: str, default: int, about: str) -> ConfigKey:
    return _own(name, ConfigType.INT, str(default), about, least=1, most=PARTITIONS_PER_TOPIC_MAX)


def _replicas(name: str, default: int, about: str) -> ConfigKey:
    return _own(name, ConfigType.SHORT, str(default), about, least=1, most=32)


_INT, _LONG, _BOOLEAN, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN, ConfigType.STRING

_OWN = (
    _own("node.id", _INT, "1", "This broker's number; no other in the cluster has it."),
    _own("broker.id", _INT, "1", "The same as node.id, by its older name."),
    _own("broker.rack", _STRING, "", "Where the broker stands; replicas are spread over racks."),
    _own("listeners", _STRING, "", "The addresses the broker listens on."),
    _own("advertised.listeners", _STRING, "", "The addresses clients are told."),
    _own("log.dirs", _STRING, "", "The directory of the partitions."),
    _own("auto.create.topics.enable", _BOOLEAN, "true", "Whether a topic is made when a client first names it."),
    _own("delete.topic.enable", _BOOLEAN, "true", "Whether topics can be deleted."),
    _count("num.partitions", 1, "The partitions of a topic that was created without saying how many."),
    _replicas("default.replication.factor", 1, "The replicas of a topic that was created without saying how many."),
    _count("offsets.topic.num.partitions", 50, "The partitions of __consumer_offsets, when it is first made."),
    _count(
        "group.share.max.share.sessions", 2000, "The most members of share groups that read from a broker at a time."
    ),
    _replicas(
        "offsets.topic.replication.factor",
        3,
        "The replicas of __consumer_offsets; fewer where there are fewer brokers when it is first made.",
    ),
    _own(
        "replica.lag.time.max.ms",
        _INT,
        "10000",
        "How long a follower may be behind before it no longer counts as in sync.",
        least=1,
    ),
    _own("offsets.retention.minutes", _INT, "10080", "How long a group without members keeps its offsets.", least=1),
    _count("transaction.state.log.num.partitions", 50, "The partitions of __transaction_state, when it is first made."),
    _replicas(
        "transaction.state.log.replication.factor",
        3,
        "The replicas of __transaction_state; fewer where there are fewer brokers when it is first made.",
    ),
    _count(
        "share.coordinator.state.topic.num.partitions",
        16,
        "The partitions of __share_group_state, when it is first made.",
    ),
    _replicas(
        "share.coordinator.state.topic.replication.factor",
        3,
        "The replicas of __share_group_state; fewer where there are fewer brokers when it is first made.",
    ),
    _own(
        "producer.id.expiration.ms",
        _INT,
        "86400000",
        "How long an idempotent producer that sends nothing is remembered.",
        least=1,
    ),
    _own("group.initial.rebalance.delay.ms", _INT, "100", "How long a new group waits for its other members."),
    _own("group.max.size", _INT, "10000", "The most members of a classic group.", least=1),
    _own("group.consumer.max.size", _INT, "10000", "The most members of a consumer group.", least=1),
    _own(
        "group.consumer.assignors",
        _STRING,
        "uniform,range,roundrobin",
        "What members of consumer groups may ask to share partitions out by; the first is the default.",
    ),
    _own("group.min.session.timeout.ms", _INT, "6000", "The shortest session timeout a member may ask.", least=1),
    _own("group.max.session.timeout.ms", _INT, "1800000", "The longest session timeout a member may ask.", least=1),
    _own(
        "broker.heartbeat.interval.ms",
        _INT,
        "300",
        "How often a broker tells the controller that it is alive.",
        least=1,
        most=3_600_000,
    ),
    _own(
        "broker.session.timeout.ms",
        _INT,
        "2000",
        "How long a broker may be silent before others lead in its place; the same on every broker.",
        least=2,
        most=3_600_000,
    ),
    _own(
        "controller.quorum.heartbeat.interval.ms",
        _INT,
        "100",
        "How often the controller tells the other brokers that it is alive.",
        least=1,
        most=60_000,
    ),
    _own(
        "controller.quorum.election.timeout.ms",
        _INT,
        "500",
        "How long brokers wait for the controller, at least, before they elect another; at most twice that. The same "
        "on every broker.",
        least=2,
        most=600_000,
    ),
    _own(
        FENCE_GONE,
        _BOOLEAN,
        "true",
        "Whether a broker whose connections are lost and whose address then refuses new ones is dead, without waiting "
        "for its session; false where something in between may refuse for a broker that lives.",
    ),
    _own(
        "auto.leader.rebalance.enable",
        _BOOLEAN,
        "true",
        "Whether the controller lets preferred replicas lead again, now and then.",
    ),
    _own(
        "leader.imbalance.check.interval.seconds",
        _LONG,
        "300",
        "How often the controller looks whether preferred replicas lead.",
        least=1,
        most=86_400,
    ),
    _own(
        "leader.imbalance.per.broker.percentage",
        _INT,
        "10",
        "Of what a broker is preferred for: how much others may lead before it leads again.",
        most=100,
    ),
    replace(
        _own(
            THROTTLED_RATE,
            _LONG,
            str(INT64_MAX),
            "Bytes a second that the broker copies of partitions that move to it; others are copied at full speed.",
            least=1,
            most=INT64_MAX,
        ),
        dynamic=True,
    ),
    _own(
        "millpond.delay.max.ms",
        _LONG,
        "31536000000",
        "The longest that a record may ask to be delayed; a year.",
        most=1 << 50,
    ),
    _own(
        "millpond.ttl.max.ms",
        _LONG,
        "31536000000",
        "The longest life of a message of a queue (millpond-ttl-ms): one that asks for more has so much; a year.",
        least=1,
        most=1 << 50,
    ),
    _own(
        "millpond.visibility.max.ms",
        _LONG,
        str(VISIBILITY_MS_MAX),
        "The longest that a message of a queue may be its consumer's at a time, whatever it or its group asks for.",
        least=100,
        most=VISIBILITY_MS_MAX,
    ),
    _own("fetch.max.bytes", _INT, "57671680", "The most bytes one fetch answers.", least=1024),
    _own("socket.request.max.bytes", _INT, "104857600", "The largest request.", least=1),
    _own(
        "connections.max.idle.ms",
        _LONG,
        "600000",
        "How long a connection may say nothing before it is closed.",
        least=-1,
        most=INT64_MAX,
    ),
)

BROKER_KEYS: Mapping[str, ConfigKey] = {
    **{
        key.broker_name: replace(key, name=key.broker_name, broker_name="")
        for key in (*TOPIC_KEYS.values(), *GROUP_KEYS.values())
    },
    **{key.name: key for key in _OWN},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLayers:
    """What is set for one broker, the first that has a name wins."""

    own: Mapping[str, str]
    shared: Mapping[str, str]
    static: Mapping[str, str]

    def merged(self) -> Mapping[str, str]:
        return {**self.static, **self.shared, **self.own}


def layers(image: Image, static: Mapping[str, str], *, broker: int = ALL_BROKERS) -> BrokerLayers:
    """Of one broker; of none in particular where the cluster as a whole decides."""
    own = _NOTHING if broker == ALL_BROKERS else image.configs_of_broker(broker)
    return BrokerLayers(own=own, shared=image.configs_of_broker(ALL_BROKERS), static=static)


def check_static(static: Mapping[str, str]) -> None:
    """At the door, when the broker starts."""
    for name, text in static.items():
        parse(_key(name), text)
    check_together(effective({}, static))
    check_group_together(effective_group({}, static))
    _check_broker_together(static)


def _check_broker_together(static: Mapping[str, str]) -> None:
    least, most = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
    if whole(least, static) > whole(most, static):
        raise InvalidSetting(
            f"{least} is {whole(least, static)} and {most} is {whole(most, static)}; allowed is a least that is not "
            "above the most"
        )
    heartbeat, election = "controller.quorum.heartbeat.interval.ms", "controller.quorum.election.timeout.ms"
    if 2 * whole(heartbeat, static) > whole(election, static):
        raise InvalidSetting(
            f"{heartbeat} is {whole(heartbeat, static)} and {election} is {whole(election, static)}; allowed is an "
            "interval that fits twice into the timeout"
        )


def check_dynamic(values: Mapping[str, str]) -> None:
    for name, text in values.items():
        key = _key(name)
        if not key.dynamic:
            raise InvalidRequest(
                f"{name} is read when the broker starts and cannot change while it runs; set it in the broker's "
                "settings and start it again"
            )
        parse(key, text)


def value_of(name: str, static: Mapping[str, str]) -> Value:
    """Of a setting that is the broker's own."""
    key = BROKER_KEYS[name]
    return parse(key, static.get(name, key.default))


def whole(name: str, static: Mapping[str, str]) -> int:
    """The same, where it is a number."""
    value = value_of(name, static)
    assert isinstance(value, int), (name, value)
    return value


def _key(name: str) -> ConfigKey:
    key = BROKER_KEYS.get(name)
    if key is None:
        raise InvalidSetting(f"{name[:80]!r} is no setting of a broker; allowed are {', '.join(sorted(BROKER_KEYS))}")
    return key
