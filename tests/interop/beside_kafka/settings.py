"""Settings: set, deleted, appended to, described with their sources and synonyms."""

import time

from millpond.protocol.messages.alter_configs import AlterableConfig as WholeConfig
from millpond.protocol.messages.alter_configs import AlterConfigsRequest
from millpond.protocol.messages.alter_configs import AlterConfigsResource as WholeResource
from millpond.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millpond.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millpond.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.api.asking import batch, fetch_request, produce_request
from tests.interop.beside_kafka.sides import Side

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
UNTIL_IT_HOLDS_SECONDS = 1.0
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Change = tuple[str, int, str | None]
VALUES = (
    ("compression.type", "gzip"),
    ("compression.type", "brotli"),
    ("compression.gzip.level", "99"),
    ("compression.zstd.level", "3"),
    ("min.insync.replicas", "0"),
    ("min.insync.replicas", "5"),
    ("segment.bytes", "1"),
    ("max.message.bytes", "-1"),
    ("message.timestamp.type", "Never"),
    ("cleanup.policy", ""),
    ("cleanup.policy", "delete,compact"),
    ("cleanup.policy", "delete, compact"),
    ("retention.bytes", "-5"),
    ("unclean.leader.election.enable", "maybe"),
    ("unclean.leader.election.enable", "TRUE"),
    ("min.cleanable.dirty.ratio", "2"),
    ("message.format.version", "3.0"),
    ("flush.messages", "0"),
    ("follower.replication.throttled.replicas", "0:1"),
    ("follower.replication.throttled.replicas", "nonsense"),
    ("retention.ms", " 77 "),
    ("min.compaction.lag.ms", "100"),
    ("max.compaction.lag.ms", "50"),
    ("local.retention.ms", "10"),
    ("remote.storage.enable", "true"),
)


def altering(side: Side) -> None:
    name = side.new_name()
    side.create(name)

    def alter(label: str, *changes: Change, of: str = name, kind: int = TOPIC, only_asked: bool = False) -> None:
        configs = [AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
        resources = [AlterConfigsResource(resource_type=kind, resource_name=of, configs=configs)]
        side.ask(label, IncrementalAlterConfigsRequest(resources=resources, validate_only=only_asked))

    alter("set", ("retention.ms", SET, "1234"))
    alter("set, only asked", ("retention.ms", SET, "5"), only_asked=True)
    alter("null", ("retention.ms", SET, None))
    alter("no number", ("retention.ms", SET, "soon"))
    alter("out of range", ("retention.ms", SET, "-2"))
    alter("unknown", ("no.such.setting", SET, "1"))
    alter("delete unknown", ("no.such.setting", DELETE, None))
    alter("delete what is not set", ("segment.bytes", DELETE, None))
    alter("append to a number", ("retention.ms", APPEND, "1"))
    alter("append", ("cleanup.policy", APPEND, "compact"))
    alter("append again", ("cleanup.policy", APPEND, "compact"))
    alter("subtract", ("cleanup.policy", SUBTRACT, "delete"))
    alter("subtract what is not there", ("cleanup.policy", SUBTRACT, "delete"))
    alter("append nonsense", ("cleanup.policy", APPEND, "burn"))
    alter("delete with a value", ("cleanup.policy", DELETE, "x"))
    alter("an operation nobody knows", ("cleanup.policy", 9, "x"))
    alter("twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    alter("empty name", ("", SET, "1"))
    alter("nothing")
    alter("unknown topic", ("retention.ms", SET, "1"), of="no-such")
    alter("bad topic", ("retention.ms", SET, "1"), of="no topic!")
    alter("empty topic", ("retention.ms", SET, "1"), of="")
    alter("a kind nobody knows", ("retention.ms", SET, "1"), kind=99)
    alter("another broker", ("log.cleaner.threads", SET, "1"), of="99", kind=BROKER)
    alter("no broker", ("log.cleaner.threads", SET, "1"), of="first", kind=BROKER)
    alter("read only", ("broker.id", SET, "7"), of="1", kind=BROKER)
    alter("a group's", ("consumer.session.timeout.ms", SET, "50000"), of="a-group", kind=GROUP)
    alter("a group's, unknown", ("no.such", SET, "50000"), of="a-group", kind=GROUP)
    alter("a group's, too short", ("consumer.session.timeout.ms", SET, "1"), of="a-group", kind=GROUP)
    alter("a group without a name", ("consumer.session.timeout.ms", SET, "50000"), of="", kind=GROUP)
    for key, value in VALUES:
        alter(f"{key}={value}", (key, SET, value))
    one = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[])
    side.ask("a resource twice", IncrementalAlterConfigsRequest(resources=[one, one]))


def replacing(side: Side) -> None:
    name = side.new_name()
    side.create(name, retention_ms="1000", segment_bytes="2000000")

    def replace(
        label: str, of: str = name, kind: int = TOPIC, *, only_asked: bool = False, **configs: str | None
    ) -> None:
        settings = [WholeConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        resources = [WholeResource(resource_type=kind, resource_name=of, configs=settings)]
        side.ask(label, AlterConfigsRequest(resources=resources, validate_only=only_asked))

    replace("one of two", retention_ms="5")
    see(side, "what is left", name, "retention.ms", "segment.bytes")
    replace("only asked", only_asked=True, retention_ms="9")
    replace("null", retention_ms=None)
    replace("unknown", no_such="1")
    replace("bad", retention_ms="soon")
    replace("unknown topic", "no-such", retention_ms="1")
    replace("nothing")
    see(side, "after nothing", name, "retention.ms", "segment.bytes")


def see(side: Side, label: str, name: str, *keys: str, kind: int = TOPIC, synonyms: bool = True) -> None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    answer = side.ask("", DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms))
    (result,) = answer.results
    side.write(f"{label}, error", result.error_code)
    for each in sorted(result.configs, key=lambda config: config.name):
        said = [(one.name, one.value, one.source) for one in each.synonyms]
        flags = (each.read_only, each.is_sensitive)
        side.write(f"{label}, {each.name}", str((each.value, each.config_source, each.config_type, *flags, said)))


def describing(side: Side) -> None:
    name = side.new_name()
    side.create(name, retention_ms="1000", cleanup_policy="compact,delete")
    see(side, "topic", name)
    see(side, "some", name, "retention.ms", "no.such")
    see(side, "without synonyms", name, "retention.ms", synonyms=False)
    see(side, "unknown topic", "no-such")
    see(side, "bad topic", "no topic!")
    see(side, "empty topic", "")
    see(side, "a broker's", "1", "num.partitions", "message.max.bytes", "log.retention.ms", "broker.id", kind=BROKER)
    see(side, "all brokers", "", "num.partitions", kind=BROKER)
    see(side, "another broker", "99", "num.partitions", kind=BROKER)
    see(side, "no broker", "first", "num.partitions", kind=BROKER)
    see(side, "a group's", "no-group", kind=GROUP)
    see(side, "a kind nobody knows", "x", kind=99)
    topic = CreatableTopic(name=side.new_name(), num_partitions=2, replication_factor=1)
    (made,) = side.ask("", CreateTopicsRequest(topics=[topic])).topics
    for each in sorted(made.configs, key=lambda config: config.name):
        said = str((each.value, each.config_source, each.read_only, each.is_sensitive))
        side.write(f"told when it was made, {each.name}", said)


def changing_under_producers(side: Side) -> None:
    name = side.new_name()
    side.create(name)

    def alter(key: str, value: str) -> None:
        configs = [AlterableConfig(name=key, config_operation=SET, value=value)]
        resources = [AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=configs)]
        side.ask(f"{key}={value}", IncrementalAlterConfigsRequest(resources=resources))
        time.sleep(UNTIL_IT_HOLDS_SECONDS)  # Kafka answers before it does, and nothing tells when

    side.ask("before", produce_request(name, batch(bytes(500))), 12)
    alter("compression.type", "gzip")
    side.ask("compressed anew", produce_request(name, batch(bytes(500))), 12)
    side.ask("and read", fetch_request(name, 1), 12)
    alter("compression.type", "uncompressed")
    alter("max.message.bytes", "200")
    side.ask("too large now", produce_request(name, batch(bytes(500))), 12)
    alter("cleanup.policy", "compact")
    side.ask("needs a key now", produce_request(name, batch(b"x")), 12)
    alter("message.timestamp.type", "LogAppendTime")
    alter("cleanup.policy", "delete")
    side.ask("stamped now", produce_request(name, batch(b"x")), 12)


SCENES = {
    "alter configs item by item": altering,
    "alter configs as a whole": replacing,
    "describe configs": describing,
    "settings changed under producers": changing_under_producers,
}
