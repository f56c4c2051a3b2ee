"""Asks the gRPC door, with a generated stub and nothing else of ours."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as wire
from millpond.api.grpc.proto.millpond.v1.delays_pb2_grpc import DelaysStub
from millpond.api.grpc.proto.millpond.v1.groups_pb2_grpc import GroupsStub
from millpond.api.grpc.proto.millpond.v1.messages_pb2_grpc import MessagesStub
from millpond.api.grpc.proto.millpond.v1.queues_pb2_grpc import QueuesStub
from millpond.api.grpc.proto.millpond.v1.topics_pb2_grpc import TopicsStub

SECONDS_MAX = 30


class Door:
    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.messages: Any = MessagesStub(channel)
        self.topics: Any = TopicsStub(channel)
        self.groups: Any = GroupsStub(channel)
        self.queues: Any = QueuesStub(channel)
        self.delays: Any = DelaysStub(channel)

    def produce(self, *messages: wire.NewMessage) -> list[tuple[int, int]]:
        answered = self.messages.Produce(wire.ProduceRequest(messages=messages), timeout=SECONDS_MAX)
        return [(each.partition, each.offset) for each in answered.places]

    def consume(self, topic: str, **options: Any) -> list[wire.Message]:  # noqa: ANN401
        request = wire.ConsumeRequest(topic=topic, **options)
        answers = self.messages.Consume(request, timeout=SECONDS_MAX)
        return [message for answer in answers for message in answer.messages]

    def append(self, *requests: wire.ProduceBatchRequest) -> list[wire.ProduceBatchResponse]:
        return list(self.messages.ProduceBatches(iter(requests), timeout=SECONDS_MAX))


@contextmanager
def refused(status: grpc.StatusCode, code: str, *, naming: str = "") -> Iterator[None]:
    with pytest.raises(grpc.RpcError) as caught:
        yield
    error: Any = caught.value
    assert (error.code(), code_in(error.trailing_metadata())) == (status, code), error
    assert error.details()
    assert naming in error.details()


def code_in(metadata: Iterable[tuple[str, str | bytes]]) -> str | bytes | None:
    return dict(metadata).get("millpond-code")
