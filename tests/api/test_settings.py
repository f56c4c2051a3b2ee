"""Settings of topics, groups and brokers: told with where they come from, and changed whole or one by one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.protocol.messages import alter_configs as whole
from millpond.protocol.messages import incremental_alter_configs as single
from millpond.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millpond.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.api.asking import batch, create, produce
from tests.api.brokers import NODE_ID, Answer, Peer, running

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
OF_TOPIC, OF_BROKER, OF_ALL_BROKERS, STATIC, DEFAULT, OF_GROUP = 1, 2, 3, 4, 5, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    """Of a broker of its own: settings of all brokers would change what other tests see."""
    with running(tmp_path, log_retention_ms="5000") as broker, Peer(broker) as connected:
        yield connected


def describe(peer: Peer, kind: int, resource: str, *names: str, **options: bool) -> Answer:
    wanted = DescribeConfigsResource(resource_type=kind, resource_name=resource, configuration_keys=list(names) or None)
    return peer.ask(DescribeConfigsRequest(resources=[wanted], **options)).results[0]


def config(peer: Peer, kind: int, resource: str, name: str) -> tuple[str, int]:
    (found,) = describe(peer, kind, resource, name).configs
    return found.value, found.config_source


def change(peer: Peer, kind: int, resource: str, *changes: tuple[str, int, str | None], dry: bool = False) -> int:
    items = [single.AlterableConfig(name=name, config_operation=how, value=value) for name, how, value in changes]
    of = single.AlterConfigsResource(resource_type=kind, resource_name=resource, configs=items)
    answer = peer.ask(single.IncrementalAlterConfigsRequest(resources=[of], validate_only=dry)).responses[0]
    assert (answer.resource_type, answer.resource_name) == (kind, resource)
    assert (answer.error_message is None) == (answer.error_code == 0)
    code: int = answer.error_code
    return code


def replace(peer: Peer, kind: int, resource: str, *, dry: bool = False, **configs: str | None) -> int:
    items = [whole.AlterableConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    of = whole.AlterConfigsResource(resource_type=kind, resource_name=resource, configs=items)
    code: int = peer.ask(whole.AlterConfigsRequest(resources=[of], validate_only=dry)).responses[0].error_code
    return code


def test_a_setting_says_where_it_comes_from_and_what_lies_beneath(peer: Peer, name: str) -> None:
    create(peer, name, retention_ms="1000")
    assert change(peer, BROKER, "", ("log.retention.ms", SET, "4000")) == 0
    assert change(peer, BROKER, str(NODE_ID), ("log.retention.ms", SET, "3000")) == 0
    (found,) = describe(peer, TOPIC, name, "retention.ms", include_synonyms=True).configs
    assert (found.value, found.config_source, found.read_only, found.is_sensitive) == ("1000", OF_TOPIC, False, False)
    assert [(each.name, each.value, each.source) for each in found.synonyms] == [
        ("retention.ms", "1000", OF_TOPIC),
        ("log.retention.ms", "3000", OF_BROKER),
        ("log.retention.ms", "4000", OF_ALL_BROKERS),
        ("log.retention.ms", "5000", STATIC),
        ("log.retention.ms", "604800000", DEFAULT),
    ]


def test_synonyms_and_documentation_come_only_when_asked_for(peer: Peer, name: str) -> None:
    create(peer, name)
    (bare,) = describe(peer, TOPIC, name, "retention.ms").configs
    (full,) = describe(peer, TOPIC, name, "retention.ms", include_synonyms=True, include_documentation=True).configs
    assert (bare.synonyms, bare.documentation) == ([], None)
    assert full.synonyms
    assert full.documentation
    assert full.config_type == 5


def test_all_settings_come_where_none_is_named_and_unknown_names_are_left_out(peer: Peer, name: str) -> None:
    create(peer, name)
    every = [each.name for each in describe(peer, TOPIC, name).configs]
    nameless = DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[])
    (empty,) = peer.ask(DescribeConfigsRequest(resources=[nameless])).results
    assert [each.name for each in empty.configs] == every
    assert {"cleanup.policy", "retention.ms", "max.message.bytes", "segment.bytes"} <= set(every)
    assert [each.name for each in describe(peer, TOPIC, name, "retention.ms", "nonsense").configs] == ["retention.ms"]


def test_a_broker_knows_itself(peer: Peer) -> None:
    assert config(peer, BROKER, str(NODE_ID), "node.id") == (str(NODE_ID), STATIC)
    assert config(peer, BROKER, str(NODE_ID), "log.retention.ms") == ("5000", STATIC)
    (read_only,) = describe(peer, BROKER, str(NODE_ID), "node.id").configs
    assert read_only.read_only
    assert describe(peer, BROKER, "").configs == []


@pytest.mark.parametrize(
    ("kind", "resource", "code"),
    [
        (TOPIC, "not-there", 3),
        (TOPIC, "no topic!", 17),
        (BROKER, "99", 42),
        (BROKER, "x", 42),
        (GROUP, "", 42),
        (CLIENT_METRICS, "m", 42),
    ],
)
def test_what_has_no_settings_is_refused(peer: Peer, kind: int, resource: str, code: int) -> None:
    described = describe(peer, kind, resource)
    assert (described.error_code, described.configs) == (code, [])
    assert (described.resource_type, described.resource_name) == (kind, resource)
    changed = change(peer, kind, resource, ("retention.ms", SET, "1"))
    assert changed == code
    assert replace(peer, kind, resource, retention_ms="1") == changed


def test_settings_change_one_by_one(peer: Peer, name: str) -> None:
    create(peer, name, retention_ms="1000")
    assert change(peer, TOPIC, name, ("segment.bytes", SET, "2000000")) == 0
    assert config(peer, TOPIC, name, "retention.ms") == ("1000", OF_TOPIC)
    assert change(peer, TOPIC, name, ("cleanup.policy", APPEND, "compact"), ("retention.ms", DELETE, None)) == 0
    assert config(peer, TOPIC, name, "cleanup.policy") == ("delete,compact", OF_TOPIC)
    assert config(peer, TOPIC, name, "retention.ms") == ("5000", STATIC)
    assert change(peer, TOPIC, name, ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert config(peer, TOPIC, name, "cleanup.policy") == ("compact", OF_TOPIC)


def test_settings_change_as_a_whole(peer: Peer, name: str) -> None:
    create(peer, name, retention_ms="1000", segment_bytes="2000000")
    assert replace(peer, TOPIC, name, retention_ms="7000") == 0
    assert config(peer, TOPIC, name, "retention.ms") == ("7000", OF_TOPIC)
    assert config(peer, TOPIC, name, "segment.bytes")[1] == DEFAULT


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (("retention.ms", SET, "soon"), 40),
        (("nonsense", SET, "1"), 40),
        (("retention.ms", APPEND, "1"), 40),
        (("retention.ms", SET, None), 42),
        (("retention.ms", 9, "1"), 42),
    ],
)
def test_a_wrong_change_is_refused_and_nothing_of_it_done(
    peer: Peer, name: str, item: tuple[str, int, str | None], code: int
) -> None:
    create(peer, name)
    assert change(peer, TOPIC, name, ("segment.bytes", SET, "2000000"), item) == code
    assert config(peer, TOPIC, name, "segment.bytes")[1] == DEFAULT


def test_a_change_that_is_only_tried_changes_nothing(peer: Peer, name: str) -> None:
    create(peer, name)
    assert change(peer, TOPIC, name, ("retention.ms", SET, "9"), dry=True) == 0
    assert replace(peer, TOPIC, name, retention_ms="9", dry=True) == 0
    assert change(peer, TOPIC, name, ("retention.ms", SET, "soon"), dry=True) == 40
    assert config(peer, TOPIC, name, "retention.ms") == ("5000", STATIC)


def test_each_resource_of_a_request_is_answered_in_its_place(peer: Peer, name: str) -> None:
    create(peer, name)
    wanted = [(GROUP, "g", SET), (TOPIC, name, SET), (BROKER, "x", SET), (TOPIC, "not-there", SET), (TOPIC, "t", 9)]
    resources = [
        single.AlterConfigsResource(
            resource_type=kind,
            resource_name=resource,
            configs=[single.AlterableConfig(name="retention.ms", config_operation=how, value="1")],
        )
        for kind, resource, how in wanted
    ]
    answers = peer.ask(single.IncrementalAlterConfigsRequest(resources=resources)).responses
    assert [(each.resource_name, each.error_code) for each in answers] == [
        ("g", 40), (name, 0), ("x", 42), ("not-there", 3), ("t", 42)
    ]  # fmt: skip


def test_a_setting_of_a_topic_holds_from_the_next_batch_on(peer: Peer, name: str) -> None:
    create(peer, name)
    assert produce(peer, name, batch(bytes(2000))).error_code == 0
    assert change(peer, TOPIC, name, ("max.message.bytes", SET, "1000")) == 0
    assert produce(peer, name, batch(bytes(2000))).error_code == 10


def test_a_setting_of_all_brokers_holds_for_topics_that_are_there(peer: Peer, name: str) -> None:
    create(peer, name)
    assert change(peer, BROKER, "", ("message.max.bytes", SET, "1000")) == 0
    assert config(peer, TOPIC, name, "max.message.bytes") == ("1000", OF_ALL_BROKERS)
    assert [each.name for each in describe(peer, BROKER, "").configs] == ["message.max.bytes"]
    assert produce(peer, name, batch(bytes(2000))).error_code == 10


def test_what_is_read_at_the_start_cannot_change_later(peer: Peer) -> None:
    assert change(peer, BROKER, str(NODE_ID), ("num.partitions", SET, "9")) == 42


def test_settings_survive_a_restart(tmp_path: Path, name: str) -> None:
    with running(tmp_path / "own") as broker, Peer(broker) as peer:
        create(peer, name)
        change(peer, TOPIC, name, ("retention.ms", SET, "1000"))
        change(peer, BROKER, "", ("log.segment.bytes", SET, "2000000"))
        change(peer, GROUP, "workers", ("millpond.order", SET, "key"))
    with running(tmp_path / "own") as broker, Peer(broker) as peer:
        assert config(peer, TOPIC, name, "retention.ms") == ("1000", OF_TOPIC)
        assert config(peer, TOPIC, name, "segment.bytes") == ("2000000", OF_ALL_BROKERS)
        assert config(peer, GROUP, "workers", "millpond.order") == ("key", OF_GROUP)


def test_a_group_is_configured_whether_it_exists_or_not(peer: Peer) -> None:
    lock = "share.record.lock.duration.ms"
    assert config(peer, GROUP, "workers", lock) == ("30000", DEFAULT)
    assert change(peer, BROKER, "", (f"group.{lock}", SET, "20000")) == 0
    assert config(peer, GROUP, "workers", lock) == ("20000", OF_ALL_BROKERS)
    assert change(peer, GROUP, "workers", (lock, SET, "1000"), ("millpond.priority", SET, "strict")) == 0
    assert config(peer, GROUP, "workers", lock) == ("1000", OF_GROUP)
    assert config(peer, GROUP, "others", lock) == ("20000", OF_ALL_BROKERS)
    assert replace(peer, GROUP, "workers", millpond_order="key") == 0
    assert config(peer, GROUP, "workers", lock)[1] == OF_ALL_BROKERS
    assert change(peer, GROUP, "workers", (lock, SET, "never")) == 40
    assert change(peer, GROUP, "workers", ("retention.ms", SET, "1")) == 40
    assert change(peer, GROUP, "w" * 256, (lock, SET, "1000")) == 42


def test_resources_are_listed_by_type(peer: Peer, name: str) -> None:
    create(peer, name)

    def listed(*types: int) -> list[tuple[int, str]]:
        answer = peer.ask(ListConfigResourcesRequest(resource_types=list(types)))
        assert answer.error_code == 0
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]

    assert listed(TOPIC) == [(TOPIC, name)]
    assert listed(BROKER) == [(BROKER, str(NODE_ID))]
    assert listed() == [(TOPIC, name), (BROKER, str(NODE_ID))]
    assert listed(GROUP) == []
    assert change(peer, GROUP, "workers", ("millpond.order", SET, "key")) == 0
    assert listed(GROUP, CLIENT_METRICS) == [(GROUP, "workers")]
    assert peer.ask(ListConfigResourcesRequest(resource_types=[77])).error_code == 35
    assert peer.ask(ListConfigResourcesRequest(), 0).config_resources == []
