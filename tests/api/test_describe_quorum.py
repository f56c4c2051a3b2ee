"""DescribeQuorum of three brokers: any tells what the controller knows, and without that what it knows itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

from millpond.protocol.messages.describe_quorum import (
    METADATA_TOPIC,
    DescribeQuorumRequest,
    PartitionRequest,
    TopicRequest,
)
from tests.api.brokers import Peer
from tests.api.three_brokers import NODES, Three
from tests.interop.facts import until

pytestmark = pytest.mark.slow


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    with Three(tmp_path) as started:
        yield started


def quorum(three: Three, node: int, version: int) -> Any:  # noqa: ANN401
    request = DescribeQuorumRequest(
        topics=[TopicRequest(topic_name=METADATA_TOPIC, partitions=[PartitionRequest(partition_index=0)])]
    )
    with Peer(three.brokers[node]) as peer:
        return peer.ask(request, version).topics[0].partitions[0]


def ends(three: Three, node: int, version: int = 2) -> dict[int, int]:
    return {each.replica_id: each.log_end_offset for each in quorum(three, node, version).current_voters}


def wait_heard(three: Three) -> None:
    """Until every broker says that the controller has heard all of them."""
    for node in NODES:
        for _ in until(lambda node=node: min(ends(three, node).values()) > 0, what=f"all known to {node}"):  # type: ignore[misc]
            pass


def test_every_broker_tells_how_far_the_others_are(three: Three) -> None:
    wait_heard(three)
    for version in (0, 1, 2):
        for node in NODES:
            found = ends(three, node, version)
            assert list(found) == list(NODES)
            assert min(found.values()) > 0


def test_without_an_answer_of_the_controller_a_broker_tells_what_it_knows(three: Three) -> None:
    wait_heard(three)
    leader = quorum(three, 1, 2).leader_id
    other = next(node for node in NODES if node != leader)
    links = three.brokers[other].node.links
    assert links is not None
    with patch.object(links, "describe_quorum", AsyncMock(return_value=None)):
        found = ends(three, other)
    assert found.pop(other) > 0
    assert set(found.values()) == {-1}
