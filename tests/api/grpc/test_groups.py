"""The Groups service: what an operator sees of groups, and where they go on."""

import grpc

from millpond.api.grpc.proto.millpond.v1 import groups_pb2 as wire
from millpond.api.grpc.proto.millpond.v1 import messages_pb2, queues_pb2
from millpond.client import blocking
from millpond.testing.broker import InProcessBroker
from tests.api.grpc.asking import SECONDS_MAX, Door, refused

INVALID, MISSING = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


def reset(door: Door, **asked: object) -> list[tuple[str, int, int]]:
    request = wire.ResetOffsetsRequest(group="desk", **asked)  # type: ignore[arg-type]
    answer = door.groups.ResetOffsets(request, timeout=SECONDS_MAX)
    return [(each.topic, each.partition, each.offset) for each in answer.offsets]


def test_a_group_is_listed_described_measured_moved_and_deleted(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("letters")
    door.produce(*[messages_pb2.NewMessage(topic="letters", value=b"x")] * 10)
    with blocking.Consumer(broker.bootstrap, topics=["letters"], group="desk", auto_commit=False) as consumer:
        assert len(consumer.poll(4, 30)) == 4
        consumer.commit()
        described = door.groups.DescribeGroup(wire.DescribeGroupRequest(group="desk"), timeout=SECONDS_MAX)
        (member,) = described.members
        (part,) = door.groups.GetLag(wire.GetLagRequest(group="desk"), timeout=SECONDS_MAX).partitions
        assert part.HasField("committed_offset")
        assert (described.state, described.protocol) == ("Stable", "consumer")
        assert list(member.assigned) == [messages_pb2.Partition(topic="letters", partition=0)]
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "group_not_empty"):
            reset(door, earliest=True)
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "group_not_empty"):
            door.groups.DeleteGroup(wire.DeleteGroupRequest(group="desk"), timeout=SECONDS_MAX)
    broker.clock.advance(5_000)
    lag = door.groups.GetLag(wire.GetLagRequest(group="desk"), timeout=SECONDS_MAX)
    (part,) = lag.partitions
    assert (lag.messages, part.committed_offset, part.end_offset, part.messages) == (6, 4, 10, 6)
    assert lag.seconds == part.seconds >= 5
    listed = door.groups.ListGroups(wire.ListGroupsRequest(), timeout=SECONDS_MAX).groups
    assert wire.GroupSummary(group="desk", state="Empty", protocol="consumer") in listed
    assert reset(door, shift=-1, dry_run=True) == [("letters", 0, 3)]
    assert reset(door, latest=True) == [("letters", 0, 10)]
    offsets = messages_pb2.Commit(offsets=[messages_pb2.Committed(topic="letters", partition=0, offset=7)])
    assert reset(door, offsets=offsets) == [("letters", 0, 7)]
    assert reset(door, earliest=True, topics=["letters"]) == [("letters", 0, 0)]
    assert door.groups.GetLag(wire.GetLagRequest(group="desk"), timeout=SECONDS_MAX).messages == 10
    door.groups.DeleteGroup(wire.DeleteGroupRequest(group="desk"), timeout=SECONDS_MAX)
    with refused(MISSING, "group_not_found"):
        door.groups.DescribeGroup(wire.DescribeGroupRequest(group="desk"), timeout=SECONDS_MAX)


def test_what_cannot_be_done_to_a_group_is_refused(door: Door) -> None:
    with refused(INVALID, "invalid_field", naming="where to is not said"):
        reset(door)
    with refused(INVALID, "invalid_field", naming="at least 0"):
        reset(door, timestamp_ms=-1)
    with refused(MISSING, "unknown_topic_or_partition", naming="nowhere"):
        reset(door, latest=True, topics=["nowhere"])
    for group in ("", "nobody"):
        with refused(MISSING, "group_not_found"):
            door.groups.GetLag(wire.GetLagRequest(group=group), timeout=SECONDS_MAX)


def test_a_queue_group_of_several_partitions_has_a_lag(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("parcels", partitions=2)
    for partition in range(2):
        door.produce(messages_pb2.NewMessage(topic="parcels", partition=partition, value=b"x"))
    received = 0
    while received < 2:
        request = queues_pb2.ReceiveRequest(topic="parcels", group="postmen", wait_ms=20_000)
        received += len(door.queues.Receive(request, timeout=SECONDS_MAX).messages)
    lag = door.groups.GetLag(wire.GetLagRequest(group="postmen"), timeout=SECONDS_MAX)
    assert [(each.partition, each.messages) for each in lag.partitions] == [(0, 1), (1, 1)]
