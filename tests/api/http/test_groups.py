"""/api/v1/groups, and members of groups over HTTP: subscribe, heartbeat, fetch, commit, leave."""

from typing import Any

import pytest

from millpond.testing.broker import InProcessBroker
from tests.api.http.asking import Door


class Member:
    def __init__(self, door: Door, group: str, *topics: str) -> None:
        self.door = door
        self.group = group
        joined = door.done("POST", "/subscribe", {"group": group, "topics": list(topics)})
        self.member_id: str = joined["member_id"]
        self._heard(joined)

    def _heard(self, answered: dict[str, Any]) -> None:
        self.epoch: int = answered["member_epoch"]
        self.assigned = [(each["topic"], each["partition"]) for each in answered["assigned_partitions"]]

    @property
    def me(self) -> dict[str, Any]:
        return {"group": self.group, "member_id": self.member_id, "member_epoch": self.epoch}

    def beat(self) -> None:
        self._heard(self.door.done("POST", "/heartbeat", self.me))

    def fetch(self, **more: object) -> dict[str, Any]:
        found: dict[str, Any] = self.door.done("POST", "/fetch", {**self.me, **more})
        self._heard(found)
        return found

    def commit(self, positions: object) -> None:
        self.door.done("POST", "/commit", {**self.me, "offsets": positions})

    def leave(self) -> None:
        self.door.done("POST", "/leave", {"group": self.group, "member_id": self.member_id})


def fill(broker: InProcessBroker, door: Door, topic: str, count: int, *, partitions: int = 1) -> None:
    broker.create_topic(topic, partitions=partitions)
    door.done(
        "POST",
        "/produce",
        [{"topic": topic, "value": str(number), "partition": number % partitions} for number in range(count)],
    )


def test_a_member_reads_commits_and_goes_on(broker: InProcessBroker, door: Door) -> None:
    fill(broker, door, "read", 5)
    member = Member(door, "reading", "read")
    assert member.assigned == [("read", 0)]
    found = member.fetch(count=3)
    assert [each["value"] for each in found["messages"]] == ["0", "1", "2"]
    assert found["positions"] == [{"topic": "read", "partition": 0, "offset": 3}]
    again = member.fetch(count=1)
    assert again["messages"] == found["messages"][:1], "what is not committed comes again"
    ahead = member.fetch(count=1, positions=found["positions"])
    assert [each["value"] for each in ahead["messages"]] == ["3"]
    member.commit(found["positions"])
    assert [each["value"] for each in member.fetch()["messages"]] == ["3", "4"]
    member.leave()
    assert door.post("/heartbeat", member.me).code == "unknown_member"


def test_two_members_share_and_the_second_takes_over(broker: InProcessBroker, door: Door) -> None:
    fill(broker, door, "shared", 8, partitions=4)
    first = Member(door, "sharing", "shared")
    assert len(first.assigned) == 4
    second = Member(door, "sharing", "shared")
    while len(first.assigned) != 2 or len(second.assigned) != 2:
        first.beat()
        second.beat()
    assert set(first.assigned) | set(second.assigned) == {("shared", number) for number in range(4)}
    found = second.fetch()
    assert {(each["topic"], each["partition"]) for each in found["messages"]} <= set(second.assigned)
    first.leave()
    while len(second.assigned) != 4:
        second.beat()


def test_a_member_that_is_behind_is_fenced(broker: InProcessBroker, door: Door) -> None:
    fill(broker, door, "fenced", 1)
    member = Member(door, "fencing", "fenced")
    stale = {**member.me, "member_epoch": member.epoch + 7}
    position = [{"topic": "fenced", "partition": 0, "offset": 1}]
    assert door.post("/commit", {**stale, "offsets": position}).code == "stale_member_epoch"
    refused = door.post("/heartbeat", stale)
    assert (refused.status, refused.code) == (409, "fenced_member_epoch")


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/subscribe", {"group": "g"}, "topics"),
        ("/subscribe", {"group": "", "topics": ["a"]}, "group"),
        ("/subscribe", {"group": "g", "topics": []}, "topics"),
        ("/heartbeat", {"group": "g", "member_id": "m"}, "member_epoch"),
        ("/heartbeat", {"group": "g", "member_id": "m", "member_epoch": 0}, "member_epoch"),
        ("/fetch", {"group": "g", "member_id": "m", "member_epoch": 1, "count": -1}, "count"),
        ("/commit", {"group": "g", "member_id": "m", "member_epoch": 1, "offsets": [{}]}, "offsets[0].topic"),
        ("/leave", {"group": "g", "member": "m"}, "member"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_field(door: Door, path: str, body: object, field: str) -> None:
    answered = door.post(path, body)
    assert (answered.status, answered.json["field"]) == (400, field)


def test_a_group_is_listed_described_reset_and_deleted(broker: InProcessBroker, door: Door) -> None:
    fill(broker, door, "looked-after", 10)
    one = "/api/v1/groups/looked-after"
    member = Member(door, "looked-after", "looked-after")
    member.commit([{"topic": "looked-after", "partition": 0, "offset": 4}])
    assert {"group": "looked-after", "state": "Stable", "protocol": "consumer"} in door.done("GET", "/api/v1/groups")[
        "groups"
    ]
    (described,) = door.done("GET", one)["members"]
    assert described["assigned_partitions"] == [{"topic": "looked-after", "partition": 0}]
    assert door.post(f"{one}/offsets", {"to": "earliest"}).code == "group_not_empty"
    assert door.ask("DELETE", one).code == "group_not_empty"
    member.leave()

    def reset(**to: object) -> list[int]:
        found = door.done("POST", f"{one}/offsets", to)
        return [each["offset"] for each in found["offsets"]]

    assert reset(to="shift", shift=-3, dry_run=True) == [1]
    assert door.done("GET", f"{one}/lag")["messages"] == 6, "a dry run changes nothing"
    assert reset(to="shift", shift=-3) == [1]
    assert door.done("GET", f"{one}/lag")["messages"] == 9
    assert reset(to="latest") == [10]
    assert reset(to="timestamp", timestamp=0) == [0]
    assert reset(to="offsets", offsets=[{"topic": "looked-after", "partition": 0, "offset": 7}]) == [7]
    beyond = {"to": "offsets", "offsets": [{"topic": "looked-after", "partition": 0, "offset": 11}], "dry_run": True}
    refused = door.post(f"{one}/offsets", beyond)
    assert (refused.status, refused.code, refused.json["field"]) == (416, "offset_out_of_range", "offsets")
    assert refused.json["detail"] == "offset 11 is not in looked-after-0, which has 0 to 10"
    assert reset(to="earliest", topics=["looked-after"]) == [0]
    assert door.post(f"{one}/offsets", {"to": "shift"}).json["field"] == "shift"
    assert door.post(f"{one}/offsets", {"to": "latest", "shift": 1}).json["field"] == "shift"
    assert door.done("DELETE", one) == {"deleted": "looked-after"}
    assert door.get(one).code == "group_not_found"


def test_lag_is_in_messages_and_in_seconds(broker: InProcessBroker, door: Door) -> None:
    fill(broker, door, "late", 3)
    member = Member(door, "late", "late")
    found = door.done("GET", "/api/v1/groups/late/lag")
    assert (found["messages"], found["seconds"]) == (0, None)
    assert found["partitions"] == [
        {"topic": "late", "partition": 0, "committed_offset": None, "end_offset": 3, "messages": None, "seconds": None}
    ]
    member.commit([{"topic": "late", "partition": 0, "offset": 1}])
    broker.clock.advance(5_000)
    member.beat()
    found = door.done("GET", "/api/v1/groups/late/lag")
    assert (found["messages"], found["seconds"]) == (2, 5.0)
    assert found["partitions"] == [
        {"topic": "late", "partition": 0, "committed_offset": 1, "end_offset": 3, "messages": 2, "seconds": 5.0}
    ]
    member.commit([{"topic": "late", "partition": 0, "offset": 3}])
    found = door.done("GET", "/api/v1/groups/late/lag")
    assert (found["messages"], found["seconds"]) == (0, 0.0)


@pytest.mark.parametrize(("method", "rest"), [("GET", ""), ("GET", "/lag"), ("DELETE", "")])
def test_a_group_that_is_not_there(door: Door, method: str, rest: str) -> None:
    answered = door.ask(method, f"/api/v1/groups/nobody{rest}")
    assert (answered.status, answered.code) == (404, "group_not_found")
