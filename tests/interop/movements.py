"""Partitions moved to other brokers, as an administrator asks for it, and waited for: over the wire, since not every
client that is tested here can ask."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from millpond.cli.asking import Asking
from millpond.cli.cluster_state import PartitionState
from millpond.model.addresses import Address
from millpond.model.ids import TopicPartition
from millpond.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from millpond.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tests.interop.cluster_processes import ANSWER_SECONDS_MAX, STATE_SECONDS_MAX, ClusterProcesses
from tests.interop.facts import until


def move(cluster: ClusterProcesses, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Returns when every partition is where it shall be, and nowhere else."""
    any_broker = next(iter(cluster.brokers.values()))
    with Asking.connect([Address(any_broker.host, any_broker.port)], seconds_max=ANSWER_SECONDS_MAX) as asking:
        asked = AlterPartitionReassignmentsRequest(topics=_by_topic(targets))
        answer = asking.ask(asked, AlterPartitionReassignmentsResponse)
        refused = [part for topic in answer.responses for part in topic.partitions if part.error_code]
        assert (answer.error_code, refused) == (0, [])

        def moving() -> object:
            answer = asking.ask(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse)
            assert answer.error_code == 0
            return answer.topics

        for _ in until(lambda: not moving(), what="nothing moves any more", seconds_max=STATE_SECONDS_MAX):
            threading.Event().wait(0.02)
    cluster.wait(lambda state: _are_there(state.every_partition, targets), what=f"partitions are on {targets}")


def _by_topic(targets: Mapping[TopicPartition, Sequence[int]]) -> list[ReassignableTopic]:
    return [
        ReassignableTopic(
            name=topic,
            partitions=[
                ReassignablePartition(partition_index=at.partition, replicas=list(targets[at])) for at in partitions
            ],
        )
        for topic, partitions in groupby(sorted(targets), key=lambda at: at.topic)
    ]


def _are_there(partitions: Iterable[PartitionState], targets: Mapping[TopicPartition, Sequence[int]]) -> bool:
    found = {TopicPartition(each.topic, each.partition): each for each in partitions}
    return all(
        found[at].replicas == list(target) and found[at].leader in target and set(found[at].in_sync) == set(target)
        for at, target in targets.items()
    )
