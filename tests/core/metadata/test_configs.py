"""Settings: their texts and values, what holds for a topic, how they are described and changed."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.core.metadata.alterations import AlterConfigs, Altered, ConfigItem, ConfigOperation, alter_configs
from millpond.core.metadata.broker_configs import BROKER_KEYS, BrokerLayers, check_static, layers
from millpond.core.metadata.commands import ALL_BROKERS
from millpond.core.metadata.config_keys import ConfigKey, ConfigType, Value, parse
from millpond.core.metadata.configs import ConfigSource, describe_broker, describe_shared, describe_topic
from millpond.core.metadata.controller import NewTopic, auto_create, create_topics
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.image import Image
from millpond.core.metadata.topic_configs import TOPIC_KEYS, check_topic_configs, effective
from millpond.model.errors import InvalidSetting
from tests.core.metadata.clusters import STATIC, after, chance, cluster

NOWHERE = BrokerLayers(own={}, shared={}, static={})


@pytest.mark.parametrize("keys", [TOPIC_KEYS, BROKER_KEYS], ids=["topic", "broker"])
def test_every_default_is_a_value_that_is_allowed_and_every_key_is_explained(keys: Mapping[str, ConfigKey]) -> None:
    for key in keys.values():
        parse(key, key.default)
        assert key.about.endswith(".")


def test_the_defaults_are_those_a_kafka_user_expects() -> None:
    config = effective({}, {})
    assert (config.delete, config.compact) == (True, False)
    assert (config.retention_ms, config.retention_bytes) == (604_800_000, None)
    assert (config.segment_bytes, config.segment_ms) == (1_073_741_824, 604_800_000)
    assert config.batch_bytes_max == 1_048_588
    assert config.unclean_leader_election is False
    assert (config.flush, config.flush_interval_ms, config.verify_reads) == ("group", 1000, True)
    assert not config.log_append_time
    assert config.timestamp_after_ms_max == 3_600_000


def test_a_topics_value_comes_before_the_brokers_and_that_before_the_default() -> None:
    assert effective({}, {"log.retention.ms": "5"}).retention_ms == 5
    assert effective({"retention.ms": "-1"}, {"log.retention.ms": "5"}).retention_ms is None
    assert effective({"cleanup.policy": " compact , delete "}, {}).compact
    assert not effective({"cleanup.policy": ""}, {"log.cleanup.policy": "compact"}).compact


def test_an_override_that_only_a_newer_version_knows_is_passed_over() -> None:
    assert effective({"from.the.future": "1"}, {}) == effective({}, {})


def test_a_flush_interval_is_kept_within_what_a_log_can_do() -> None:
    assert effective({"flush.ms": "9223372036854775807"}, {}).flush_interval_ms == 86_400_000
    assert effective({"flush.ms": "0"}, {}).flush_interval_ms == 1


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("preallocate", " TRUE ", True),
        ("retention.ms", " -1 ", -1),
        ("retention.ms", "9223372036854775807", 2**63 - 1),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("min.cleanable.dirty.ratio", "5e-1", 0.5),
        ("cleanup.policy", "compact,delete", ("compact", "delete")),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
    ],
)
def test_a_text_becomes_its_value(name: str, text: str, value: Value) -> None:
    assert parse(TOPIC_KEYS[name], text) == value


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("preallocate", "yes", "true or false"),
        ("retention.ms", "-2", "from -1"),
        ("retention.ms", "1_000", "whole number"),
        ("retention.ms", "1.5", "whole number"),
        ("retention.ms", "\u0661", "whole number"),
        ("retention.ms", "9223372036854775808", "to 9223372036854775807"),
        ("retention.ms", "9" * 5000, "whole number"),
        ("retention.ms", "", "whole number"),
        ("min.cleanable.dirty.ratio", "nan", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "1.01", "a number from 0 to 1"),
        ("cleanup.policy", "shred", "of delete, compact"),
        ("cleanup.policy", "delete,delete", "at most once"),
        ("cleanup.policy", "delete,", "at most once"),
        ("compression.type", "brotli", "producer or uncompressed or gzip or snappy or lz4 or zstd"),
        ("message.timestamp.type", "createtime", "CreateTime or LogAppendTime"),
        ("max.message.bytes", "67108865", "from 61 to 67108864"),
        ("segment.bytes", "14", "from 1024"),
        ("millpond.flush", "sometimes", "group or interval or none"),
    ],
)
def test_a_text_that_is_not_allowed_is_refused_with_name_value_and_range(name: str, text: str, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says) as refused:
        check_topic_configs({name: text})
    assert name in str(refused.value)
    assert repr(text)[:60] in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("name", ["remote.storage.enable", "local.retention.ms", "retention_ms", "", "x" * 5000])
def test_a_name_that_is_no_setting_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting, match=r"no setting of a topic; allowed are cleanup\.policy"):
        check_topic_configs({name: "1"})


@given(st.sampled_from(sorted(TOPIC_KEYS)), st.text(max_size=30) | st.integers().map(str) | st.floats().map(str))
def test_any_text_is_a_value_that_holds_or_refused(name: str, text: str) -> None:
    try:
        check_topic_configs({name: text})
    except InvalidSetting:
        return
    effective({name: text}, {})


def test_a_setting_is_described_with_every_layer_that_has_it() -> None:
    broker = BrokerLayers(
        own={"log.retention.ms": "2"}, shared={"log.retention.ms": "3"}, static={"log.retention.ms": "4"}
    )
    [entry] = describe_topic({"retention.ms": "1"}, broker, ["retention.ms", "unknown"])
    assert (entry.value, entry.source, entry.type) == ("1", ConfigSource.TOPIC, ConfigType.LONG)
    assert (entry.read_only, entry.is_sensitive, entry.is_default) == (False, False, False)
    assert [(each.name, each.value, int(each.source)) for each in entry.synonyms] == [
        ("retention.ms", "1", 1),
        ("log.retention.ms", "2", 2),
        ("log.retention.ms", "3", 3),
        ("log.retention.ms", "4", 4),
        ("log.retention.ms", "604800000", 5),
    ]


def test_a_topic_with_nothing_set_is_described_by_defaults() -> None:
    entries = describe_topic({}, NOWHERE)
    assert [entry.name for entry in entries] == sorted(TOPIC_KEYS)
    assert all(entry.is_default and entry.documentation for entry in entries)


def test_a_broker_is_described_by_its_settings_and_what_cannot_change_is_read_only() -> None:
    entries = {entry.name: entry for entry in describe_broker(layers(cluster(), {"num.partitions": "8"}, broker=1))}
    assert set(entries) == set(BROKER_KEYS)
    partitions = entries["num.partitions"]
    assert (partitions.value, partitions.source, partitions.read_only) == ("8", ConfigSource.STATIC, True)
    assert not entries["log.retention.ms"].read_only


def test_settings_of_a_broker_are_checked_at_the_door() -> None:
    check_static({"num.partitions": "3", "log.retention.ms": "-1", "compression.type": "producer"})
    for wrong in (
        {"num.partition": "3"},
        {"num.partitions": "0"},
        {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
    ):
        with pytest.raises(InvalidSetting):
            check_static(wrong)


def with_topic(*configs: tuple[str, str | None]) -> Image:
    image = cluster()
    decision = create_topics(image, [NewTopic(name="t", configs=configs)], static=STATIC, rng=chance())
    return after(image, decision.commands)


def altered(image: Image, *items: ConfigItem, target: str | int = "t", replace: bool = False) -> Image:
    request = AlterConfigs(target=target, items=items, replace=replace)
    decision = alter_configs(image, [request], static=STATIC)
    assert decision.answers == (Altered(target),)
    assert alter_configs(image, [request], static=STATIC, validate_only=True).commands == ()
    return after(image, decision.commands)


def code(image: Image, *items: ConfigItem, target: str | int = "t", replace: bool = False) -> int:
    decision = alter_configs(image, [AlterConfigs(target=target, items=items, replace=replace)], static=STATIC)
    [answer] = decision.answers
    assert isinstance(answer, Refused)
    assert decision.commands == ()
    return answer.error.kafka_code


def test_an_incremental_change_leaves_the_rest_and_a_whole_one_does_not() -> None:
    image = with_topic(("retention.ms", "1"), ("segment.ms", "2"))
    one = altered(image, ConfigItem("retention.ms", "5"), ConfigItem("segment.ms", None, ConfigOperation.DELETE))
    assert one.topics["t"].configs == {"retention.ms": "5"}
    whole = altered(image, ConfigItem("flush.ms", "7"), replace=True)
    assert whole.topics["t"].configs == {"flush.ms": "7"}


def test_a_change_that_changes_nothing_is_no_command() -> None:
    image = with_topic(("retention.ms", "1"))
    assert altered(image, ConfigItem("retention.ms", "1")).version == image.version
    assert altered(image, ConfigItem("segment.ms", None, ConfigOperation.DELETE)).version == image.version


def test_lists_are_added_to_and_taken_from() -> None:
    image = altered(with_topic(), ConfigItem("cleanup.policy", "compact,delete", ConfigOperation.APPEND))
    assert image.topics["t"].configs["cleanup.policy"] == "delete,compact"
    image = altered(image, ConfigItem("cleanup.policy", "delete,shred", ConfigOperation.SUBTRACT))
    assert image.topics["t"].configs["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("item", "code_expected"),
    [
        (ConfigItem("retention.ms", "x"), 40),
        (ConfigItem("no.such", "x"), 40),
        (ConfigItem("retention.ms", None), 42),
        (ConfigItem("retention.ms", "1", ConfigOperation.APPEND), 40),
        (ConfigItem("no.such", "1", ConfigOperation.SUBTRACT), 40),
        (ConfigItem("cleanup.policy", "shred", ConfigOperation.APPEND), 40),
        (ConfigItem("max.compaction.lag.ms", "5"), 40),
    ],
)
def test_a_change_that_is_wrong_is_refused_with_its_code(item: ConfigItem, code_expected: int) -> None:
    assert code(with_topic(("min.compaction.lag.ms", "6")), item) == code_expected


def test_a_setting_or_a_resource_named_twice_and_one_that_is_not_there_are_refused() -> None:
    image = with_topic()
    item = ConfigItem("retention.ms", "1")
    assert code(image, item, item) == 42
    assert code(image, item, target="other") == 3
    assert code(image, ConfigItem("log.retention.ms", "1"), target=9) == 42
    twice = alter_configs(image, [AlterConfigs(target="t", items=(item,))] * 2, static=STATIC)
    assert [type(answer) for answer in twice.answers] == [Refused, Refused]


def test_an_internal_topic_keeps_its_cleanup_policy() -> None:
    image = cluster()
    image = after(image, auto_create(image, ["__consumer_offsets"], static=STATIC, rng=chance()).commands)
    assert code(image, ConfigItem("cleanup.policy", "delete"), target="__consumer_offsets") == 44
    assert code(image, ConfigItem("segment.bytes", "4096"), target="__consumer_offsets", replace=True) == 44
    altered(image, ConfigItem("segment.bytes", "4096"), target="__consumer_offsets")


def test_topic_defaults_change_for_one_broker_or_for_all_and_come_first_in_that_order() -> None:
    image = altered(with_topic(), ConfigItem("log.retention.ms", "3"), target=ALL_BROKERS)
    image = altered(image, ConfigItem("log.retention.ms", "2"), target=1)
    of_broker = layers(image, {"log.retention.ms": "4"}, broker=1)
    assert of_broker.merged()["log.retention.ms"] == "2"
    assert layers(image, {}).merged()["log.retention.ms"] == "3"
    assert [entry.value for entry in describe_shared(of_broker)] == ["3"]
    assert describe_shared(of_broker, ["num.partitions"]) == ()
    image = altered(image, ConfigItem("log.retention.ms", None, ConfigOperation.DELETE), target=1)
    assert 1 not in image.broker_configs


def test_what_a_broker_reads_when_it_starts_cannot_change_while_it_runs() -> None:
    assert code(cluster(), ConfigItem("num.partitions", "3"), target=1) == 42
    assert code(cluster(), ConfigItem("no.such", "3"), target=1) == 40
    assert code(cluster(), ConfigItem("log.retention.ms", "x"), target=ALL_BROKERS) == 40


def test_defaults_that_contradict_each_other_are_refused() -> None:
    image = altered(cluster(), ConfigItem("log.cleaner.min.compaction.lag.ms", "6"), target=ALL_BROKERS)
    assert code(image, ConfigItem("log.cleaner.max.compaction.lag.ms", "5"), target=1) == 40


def test_a_list_of_a_broker_is_added_to_what_lies_beneath() -> None:
    item = ConfigItem("log.cleanup.policy", "compact", ConfigOperation.APPEND)
    image = altered(cluster(), item, target=1)
    assert image.configs_of_broker(1) == {"log.cleanup.policy": "delete,compact"}
