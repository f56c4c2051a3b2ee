"""Settings of groups: what holds for one, what is refused, and how they change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.core.delivery.settings import Priority
from millpond.core.metadata.alterations import (
    AlterConfigs,
    Altered,
    ConfigItem,
    ConfigOperation,
    OfGroup,
    alter_configs,
)
from millpond.core.metadata.broker_configs import BROKER_KEYS, check_static, layers
from millpond.core.metadata.commands import ALL_BROKERS
from millpond.core.metadata.config_keys import parse
from millpond.core.metadata.configs import ConfigSource, describe_group
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.group_configs import (
    GROUP_KEYS,
    REDRIVES,
    Expired,
    Order,
    StartAt,
    check_group_configs,
    effective_group,
    group_config,
)
from millpond.core.metadata.image import Image, rebuild, snapshot
from millpond.model.errors import InvalidSetting
from tests.core.metadata.clusters import STATIC, after, cluster

WORKERS = OfGroup("g")
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE


def altered(image: Image, *items: ConfigItem, target: OfGroup | int = WORKERS, replace: bool = False) -> Image:
    decision = alter_configs(image, [AlterConfigs(target=target, items=items, replace=replace)], static=STATIC)
    assert decision.answers == (Altered(target),)
    return after(image, decision.commands)


def complaint(image: Image, *items: ConfigItem, target: OfGroup | int = WORKERS) -> str:
    decision = alter_configs(image, [AlterConfigs(target=target, items=items)], static=STATIC)
    [answer] = decision.answers
    assert isinstance(answer, Refused)
    assert decision.commands == ()
    return str(answer.error)


def test_a_group_with_nothing_set_is_a_queue_that_keeps_what_it_was_sent() -> None:
    config = effective_group({}, {})
    assert (config.start, config.start_age_ms) == (StartAt.EARLIEST, 0)
    assert (config.lock_ms, config.share_session_timeout_ms, config.deliveries_max) == (30_000, 45_000, 5)
    assert (config.locks_per_partition_max, config.unacked_per_consumer_max) == (100_000, 10_000)
    assert (config.retry_backoff_ms, config.retry_backoff_ms_max, config.retry_jitter) == (0, 300_000, 0.2)
    assert (config.dead_letter, config.dead_letter_topic, config.expired) == (True, None, Expired.DROP)
    assert (config.order, config.priority, config.priority_age_ms_max) == (Order.OFFSET, Priority.STRICT, 60_000)
    assert not config.read_committed


def test_every_default_is_allowed_explained_and_has_a_name_for_all_groups() -> None:
    for key in GROUP_KEYS.values():
        parse(key, key.default)
        assert key.about.endswith(".")
        assert BROKER_KEYS[key.broker_name].default == key.default


@pytest.mark.parametrize(
    ("text", "start", "age_ms"),
    [
        ("latest", StartAt.LATEST, 0),
        ("by_duration:P7D", StartAt.BY_DURATION, 7 * 86_400_000),
        ("by_duration:PT1H30M", StartAt.BY_DURATION, 5_400_000),
        ("by_duration:P1DT0.25S", StartAt.BY_DURATION, 86_400_250),
    ],
)
def test_where_a_group_begins_may_be_an_age(text: str, start: StartAt, age_ms: int) -> None:
    config = effective_group({"share.auto.offset.reset": text}, {})
    assert (config.start, config.start_age_ms) == (start, age_ms)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("share.auto.offset.reset", "by_duration:", "earliest or latest or by_duration:PnDTnHnMn.nS"),
        ("share.auto.offset.reset", "by_duration:P", "such as by_duration:P7D"),
        ("share.auto.offset.reset", "by_duration:PT", "such as by_duration:P7D"),
        ("share.auto.offset.reset", "by_duration:-P1D", "such as by_duration:P7D"),
        ("share.record.lock.duration.ms", "99", "from 100 to 43200000"),
        ("millpond.retry.jitter", "1.1", "from 0 to 1"),
        ("millpond.dead.letter", "yes", "on or off"),
        ("millpond.priority", "fair", "strict or weighted or off"),
        ("retention.ms", "1", "no setting of a group"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_what_is(name: str, text: str, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        check_group_configs({name: text})


@given(st.sampled_from(sorted(GROUP_KEYS)), st.text(max_size=30) | st.integers().map(str) | st.floats().map(str))
def test_any_text_is_a_value_that_holds_or_refused(name: str, text: str) -> None:
    try:
        check_group_configs({name: text})
    except InvalidSetting:
        return
    effective_group({name: text}, {})


def test_dead_letters_are_sent_back_in_order_whatever_is_set() -> None:
    name = f"{REDRIVES}g.orders"
    image = altered(cluster(), ConfigItem("millpond.order", "key", SET), target=OfGroup(name))
    config = group_config(image, {"group.share.auto.offset.reset": "latest", "millpond.priority": "weighted"}, name)
    assert (config.start, config.order, config.priority) == (StartAt.EARLIEST, Order.OFFSET, Priority.OFF)
    assert (config.deliveries_max, config.dead_letter) == (1_000, False)


def test_a_groups_value_comes_before_that_of_all_groups() -> None:
    image = altered(cluster(), ConfigItem("group.share.delivery.count.limit", "7", SET), target=ALL_BROKERS)
    image = altered(image, ConfigItem("millpond.order", "key", SET))
    defaults = layers(image, STATIC).merged()
    assert group_config(image, defaults, "g").deliveries_max == 7
    image = altered(image, ConfigItem("share.delivery.count.limit", "3", SET))
    assert group_config(image, defaults, "g").deliveries_max == 3
    assert group_config(image, defaults, "other").deliveries_max == 7
    assert group_config(image, defaults, "g").order is Order.KEY
    (entry,) = describe_group(image.configs_of_group("g"), layers(image, STATIC), ["share.delivery.count.limit"])
    assert (entry.value, entry.source) == ("3", ConfigSource.GROUP)
    assert [each.source for each in entry.synonyms] == [
        ConfigSource.GROUP,
        ConfigSource.ALL_BROKERS,
        ConfigSource.DEFAULT,
    ]


def test_settings_go_with_the_last_of_them_and_survive_a_snapshot() -> None:
    image = altered(cluster(), ConfigItem("millpond.order", "key", SET), ConfigItem("millpond.expired", "drop", SET))
    assert rebuild(snapshot(image), version=image.version) == image
    image = altered(image, ConfigItem("millpond.expired", None, DELETE))
    assert image.group_configs == {"g": {"millpond.order": "key"}}
    assert altered(image, replace=True).group_configs == {}


def test_settings_that_contradict_each_other_or_name_no_topic_are_refused() -> None:
    image = cluster()
    assert "a first wait" in complaint(image, ConfigItem("millpond.retry.backoff.ms", "300001", SET))
    for kind in ("share", "consumer"):
        too_short = ConfigItem(f"{kind}.session.timeout.ms", "1000", SET)
        too_slow = ConfigItem(f"{kind}.heartbeat.interval.ms", "1000", SET)
        assert "below the timeout" in complaint(image, too_slow, too_short)
    assert "is no topic name" in complaint(image, ConfigItem("millpond.dead.letter.topic", "no topic!", SET))
    altered(image, ConfigItem("millpond.dead.letter.topic", "graveyard", SET))
    of_all = ConfigItem("group.share.session.timeout.ms", "1000", SET)
    assert "below the timeout" in complaint(image, of_all, target=ALL_BROKERS)
    with pytest.raises(InvalidSetting, match="below the timeout"):
        check_static({"group.share.session.timeout.ms": "1000"})


@pytest.mark.parametrize("group", ["", "g" * 256])
def test_a_group_id_that_is_none_is_refused(group: str) -> None:
    item = ConfigItem("millpond.order", "key", SET)
    assert "allowed are 1 to 255" in complaint(cluster(), item, target=OfGroup(group))
