"""Requests: the errors in a response are found wherever they are, and every code has Kafka's name."""

import dataclasses

import pytest

from millpond.api.kafka.served import SERVED
from millpond.core.groups.errors import GroupError
from millpond.model import errors
from millpond.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from millpond.protocol.messages.heartbeat import HeartbeatResponse
from millpond.protocol.messages.registry import Api
from millpond.telemetry.bounded import OTHER, BoundedCounts
from millpond.telemetry.kafka_errors import error_name
from millpond.telemetry.requests import ApiFacts, error_finder


def test_errors_are_found_at_the_top_and_in_every_partition() -> None:
    parts = [PartitionData(partition_index=number, error_code=code) for number, code in enumerate((0, 1, 3, 1))]
    response = FetchResponse(error_code=70, responses=[FetchableTopicResponse(topic="t", partitions=parts)])
    assert sorted(error_finder(FetchResponse)(response)) == [1, 1, 3, 70]
    assert list(error_finder(FetchResponse)(FetchResponse())) == []


@pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
def test_every_response_that_is_served_can_be_searched(api: Api) -> None:
    cls = api.response_class
    response = cls()
    find = error_finder(cls)
    assert list(find(response)) == []
    if any(field.name == "error_code" for field in dataclasses.fields(cls)):  # type: ignore[arg-type]
        response.error_code = 42  # type: ignore[attr-defined]
        assert list(find(response)) == [42]


def test_facts_of_an_api_add_up() -> None:
    facts = ApiFacts("Heartbeat")
    find = error_finder(HeartbeatResponse)
    for code in (GroupError.NONE, GroupError.REBALANCE_IN_PROGRESS, GroupError.REBALANCE_IN_PROGRESS):
        facts.latencies.note(1_000)
        facts.note_errors(find(HeartbeatResponse(error_code=code)))
    facts.unanswered += 1
    assert facts.request_count == 4
    assert facts.errors == {27: 2}


def test_every_code_that_can_be_answered_has_kafkas_name() -> None:
    leaves = [each for each in vars(errors).values() if isinstance(each, type) and hasattr(each, "kafka_code")]
    assert leaves
    assert not [each for each in leaves if error_name(each.kafka_code).startswith("CODE_")]
    for code in GroupError:
        if code is not GroupError.NONE:
            assert error_name(code) == code.name
    # What only a handler knows of.
    assert error_name(53) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    assert error_name(70) == "FETCH_SESSION_ID_NOT_FOUND"
    assert error_name(104) == "INCONSISTENT_CLUSTER_ID"
    assert error_name(12_345) == "CODE_12345"


def test_names_that_peers_choose_have_an_end() -> None:
    counts = BoundedCounts(label_count=2, names_max=2)
    for group in ("a", "b", "c", "d", "a"):
        counts.add(group, "joined")
    assert dict(counts) == {("a", "joined"): 2, ("b", "joined"): 1, (OTHER, OTHER): 2}
