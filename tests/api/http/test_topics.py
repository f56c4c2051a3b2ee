"""/api/v1/topics and /api/v1/cluster."""

from base64 import b64decode

import pytest

from millpond.client.blocking import Admin
from millpond.testing.broker import InProcessBroker
from tests.api.http.asking import Door


def test_a_topic_from_its_making_to_its_end(door: Door) -> None:
    wish = {"name": "life", "partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "60000"}}
    made = door.post("/api/v1/topics", wish)
    assert made.status == 201
    assert [each["partition"] for each in made.json["partitions"]] == [0, 1]
    assert made.json["configs"]["retention.ms"] == {"value": "60000", "is_default": False}
    assert made.json == door.done("GET", "/api/v1/topics/life")

    altered = door.done("PATCH", "/api/v1/topics/life", {"configs": {"retention.ms": None, "max.message.bytes": "999"}})
    assert altered["configs"]["retention.ms"]["is_default"]
    assert altered["configs"]["max.message.bytes"] == {"value": "999", "is_default": False}

    grown = door.done("POST", "/api/v1/topics/life/partitions", {"total": 3})
    assert len(grown["partitions"]) == 3
    summary = {"name": "life", "partitions": 3, "replication_factor": 1, "is_internal": False}
    assert summary in door.done("GET", "/api/v1/topics")["topics"]

    assert door.done("DELETE", "/api/v1/topics/life") == {"deleted": "life"}
    assert door.get("/api/v1/topics/life").code == "unknown_topic_or_partition"


def test_a_topics_id_is_written_as_kafkas_tools_write_it(door: Door, broker: InProcessBroker) -> None:
    made = door.done("POST", "/api/v1/topics", {"name": "known-by-id"})
    with Admin(broker.bootstrap) as admin:
        assert b64decode(made["topic_id"] + "==", altchars=b"-_") == admin.describe_topic("known-by-id").topic_id
    assert len(made["topic_id"]) == 22


def test_a_setting_is_a_text_a_number_or_true(door: Door) -> None:
    configs = {"retention.ms": 60_000, "min.cleanable.dirty.ratio": 0.25, "unclean.leader.election.enable": True}
    made = door.done("POST", "/api/v1/topics", {"name": "typed", "configs": configs})
    assert [made["configs"][each]["value"] for each in configs] == ["60000", "0.25", "true"]
    altered = door.done("PATCH", "/api/v1/topics/typed", {"configs": {"retention.ms": 70_000}})
    assert altered["configs"]["retention.ms"]["value"] == "70000"


def test_millponds_own_topics_are_listed_where_asked_for(door: Door) -> None:
    door.done("POST", "/subscribe", {"group": "g", "topics": ["anything"]})

    def names(path: str) -> set[str]:
        return {each["name"] for each in door.done("GET", path)["topics"]}

    assert "__consumer_offsets" in names("/api/v1/topics?internal=true") - names("/api/v1/topics")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "field"),
    [
        ("POST", "", {"partitions": 1}, 400, "missing_field", "name"),
        ("POST", "", {"name": "a/b"}, 400, "invalid_topic_name", "name"),
        ("POST", "", {"name": "there"}, 409, "topic_already_exists", "name"),
        ("POST", "", {"name": "a", "partitions": 0}, 400, "invalid_field", "partitions"),
        ("POST", "", {"name": "a", "replication_factor": 2}, 400, "invalid_replication_factor", "replication_factor"),
        ("POST", "", {"name": "a", "configs": {"no.such": "1"}}, 400, "invalid_setting", "configs"),
        ("POST", "", {"name": "a", "configs": {"retention.ms": [7]}}, 400, "invalid_field", "configs[...]"),
        ("PATCH", "/there", {"configs": {"retention.ms": "soon"}}, 400, "invalid_setting", "configs"),
        ("PATCH", "/there", {}, 400, "missing_field", "configs"),
        ("PATCH", "/nothing", {"configs": {}}, 404, "unknown_topic_or_partition", "topic"),
        ("POST", "/there/partitions", {"total": 1}, 400, "invalid_partitions", "total"),
        ("POST", "/nothing/partitions", {"total": 1}, 404, "unknown_topic_or_partition", "topic"),
        ("DELETE", "/nothing", None, 404, "unknown_topic_or_partition", "topic"),
        ("DELETE", "/__consumer_offsets", None, 403, "policy_violation", "topic"),
    ],
)
def test_what_is_wrong_is_said(
    broker: InProcessBroker,
    door: Door,
    method: str,
    path: str,
    body: object,
    status: int,
    code: str,
    field: str | None,
) -> None:
    if "there" not in broker.broker.node.image.topics:
        broker.create_topic("there")
    if "__consumer_offsets" not in broker.broker.node.image.topics:
        door.done("POST", "/subscribe", {"group": "g", "topics": ["there"]})
    answered = door.ask(method, f"/api/v1/topics{path}", body)
    assert (answered.status, answered.code, answered.json.get("field")) == (status, code, field)


def test_the_cluster(broker: InProcessBroker, door: Door) -> None:
    found = door.done("GET", "/api/v1/cluster")
    assert (found["cluster_id"], found["controller"], found["answered_by"]) == ("millpond", 1, 1)
    (mine,) = found["brokers"]
    assert (mine["node_id"], mine["port"], mine["is_fenced"]) == (1, broker.broker.port, False)
    assert (found["partitions_without_leader"], found["partitions_under_replicated"]) == (0, 0)
