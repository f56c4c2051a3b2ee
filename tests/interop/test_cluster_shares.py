"""A stock share consumer while brokers of its cluster are killed: every message comes, and none again whose
acknowledgement was answered."""

from collections.abc import Callable

import pytest

from millpond.api.kafka.served import SERVED
from tests.interop.cluster_processes import ClusterProcesses
from tests.interop.confluent import send
from tests.interop.facts import new_name, until
from tests.interop.foreign_client import ForeignClient
from tests.interop.sharers import ConfluentSharer, JavaSharer, Sharer
from tests.interop.test_cluster_clients import new_topic

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SERVED.keys() >= {76, 77, 78, 79}, reason="ShareFetch and ShareAcknowledge are not served"),
]
MESSAGES = 300
PARTITIONS = 3


class Received:
    """What one member got, and which acknowledgements were answered."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.done: set[str] = set()
        self.again: list[str] = []
        """Delivered although it was answered before that it is done with."""

    def turn(self, member: Sharer) -> None:
        taken = {each.value for each in member.take()}
        self.again += sorted(taken & self.done)
        self.seen |= taken
        if taken and member.commit() == []:
            self.done |= taken


@pytest.mark.parametrize("client", ["confluent", "java"])
@pytest.mark.parametrize("whose", ["leader", "controller"])
def test_every_message_comes_and_none_again_that_was_done_with(
    cluster: ClusterProcesses, request: pytest.FixtureRequest, client: str, whose: str
) -> None:
    topic, group = new_topic(cluster, partitions=PARTITIONS), new_name("share")
    member: Sharer
    if client == "java":
        java: ForeignClient = request.getfixturevalue("cluster_java")
        member = JavaSharer(java, group, topic, mode="implicit")
    else:
        member = ConfluentSharer(cluster, group, topic, mode="implicit")
    received = Received()
    first = {b"first %d" % number for number in range(MESSAGES)}
    _send(cluster, topic, first)
    _take_until(member, received, lambda: len(received.done) >= MESSAGES / 2, what="half are done with")
    victim = cluster.leader_of(topic) if whose == "leader" else cluster.controller()
    victim.kill()
    cluster.wait(lambda _: cluster.leader_of(topic) is not victim, what="another leads")
    second = {b"second %d" % number for number in range(MESSAGES)}
    _send(cluster, topic, second)
    wanted = {value.decode() for value in first | second}
    _take_until(member, received, lambda: received.done >= wanted, what="all are done with")
    victim.start()
    cluster.wait_healthy()
    member.close()
    assert received.seen == wanted
    assert received.again == []
    assert cluster.bugs == []


def _send(cluster: ClusterProcesses, topic: str, values: set[bytes]) -> None:
    ordered = sorted(values)
    for partition in range(PARTITIONS):
        send(cluster, topic, ordered[partition::PARTITIONS], partition=partition, enable_idempotence=True)


def _take_until(member: Sharer, received: Received, fact: Callable[[], bool], *, what: str) -> None:
    for _ in until(fact, what=what, seconds_max=60.0):
        received.turn(member)
