"""Subscribe: members of a group share its partitions, and go on where the group was."""

import queue
from typing import Any

import grpc

from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.testing.broker import InProcessBroker
from tests.api.grpc.asking import SECONDS_MAX, Door, refused

Place = tuple[str, int]


class Member:
    def __init__(self, door: Door, group: str, *topics: str) -> None:
        self._sending: queue.SimpleQueue[wire.SubscribeRequest | None] = queue.SimpleQueue()
        self._answers: Any = door.messages.Subscribe(iter(self._sending.get, None), timeout=SECONDS_MAX)
        self._sending.put(wire.SubscribeRequest(join=wire.Join(group=group, topics=topics)))
        self.messages: list[wire.Message] = []
        self.partitions: set[Place] = set()

    def answer(self, wanted: str) -> Any:  # noqa: ANN401
        """The next of that kind; those before it are noted."""
        while True:
            answer = next(self._answers)
            kind = answer.WhichOneof("what")
            if kind == "assignment":
                self.partitions = {(each.topic, each.partition) for each in answer.assignment.partitions}
            elif kind == "delivery":
                assert {(each.topic, each.partition) for each in answer.delivery.messages} <= self.partitions
                self.messages += answer.delivery.messages
            if kind == wanted:
                return getattr(answer, kind)

    def wait_partitions(self, count: int) -> None:
        while len(self.partitions) != count:
            self.answer("assignment")

    def wait_messages(self, count: int) -> None:
        while len(self.messages) < count:
            self.answer("delivery")

    def commit(self, topic: str, partition: int, offset: int) -> None:
        committed = wire.Committed(topic=topic, partition=partition, offset=offset)
        self._sending.put(wire.SubscribeRequest(commit=wire.Commit(offsets=[committed])))

    def say(self, request: wire.SubscribeRequest) -> None:
        self._sending.put(request)

    def leave(self) -> None:
        self._sending.put(None)
        for _ in self._answers:
            pass


def fill(door: Door, topic: str, *values: bytes, partition: int = 0) -> None:
    door.produce(*[wire.NewMessage(topic=topic, value=value, partition=partition) for value in values])


def test_the_next_member_goes_on_where_the_last_committed(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("handed-on")
    fill(door, "handed-on", b"1", b"2", b"3")
    first = Member(door, "readers", "handed-on")
    first.wait_messages(3)
    assert [each.value for each in first.messages] == [b"1", b"2", b"3"]
    first.commit("handed-on", 0, 2)
    assert first.answer("committed").offsets[0].offset == 2
    first.leave()
    second = Member(door, "readers", "handed-on")
    second.wait_messages(1)
    assert [each.value for each in second.messages] == [b"3"]
    second.leave()


def test_two_members_share_the_partitions_and_one_takes_over(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("shared", partitions=2)
    first = Member(door, "sharing", "shared")
    first.wait_partitions(2)
    second = Member(door, "sharing", "shared")
    first.wait_partitions(1)
    second.wait_partitions(1)
    assert first.partitions | second.partitions == {("shared", 0), ("shared", 1)}
    ((_, lost),) = second.partitions
    second.leave()
    first.wait_partitions(2)
    fill(door, "shared", b"taken over", partition=lost)
    first.wait_messages(1)
    assert (first.messages[0].value, first.messages[0].partition) == (b"taken over", lost)
    first.leave()


def test_a_commit_of_what_is_not_ones_own_is_refused(broker: InProcessBroker, door: Door) -> None:
    broker.create_topic("own")
    member = Member(door, "owners", "own")
    member.wait_partitions(1)
    member.commit("own", 3, 1)
    assert member.answer("commit_failure").code == "not_assigned"
    member.commit("own", 0, -1)
    assert member.answer("commit_failure").code == "invalid_field"
    member.commit("own", 0, 0)
    assert member.answer("committed").offsets[0].offset == 0
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "invalid_field", naming="joins once"):
        member.say(wire.SubscribeRequest(join=wire.Join(group="owners", topics=["own"])))
        member.answer("nothing more")


def test_a_member_says_what_it_joins(door: Door) -> None:
    for first in (wire.SubscribeRequest(), wire.SubscribeRequest(join=wire.Join(group="g"))):
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "invalid_field", naming="join"):
            list(door.messages.Subscribe(iter([first]), timeout=SECONDS_MAX))
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "invalid_field", naming="no join"):
        list(door.messages.Subscribe(iter([]), timeout=SECONDS_MAX))
