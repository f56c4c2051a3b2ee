"""A program that knows Millpond by its .proto files alone: it sends, reads, and prints what it saw.

Started by test_stub.py where the Python generated from those files is, and nothing else of Millpond.
"""

import queue
import sys

import grpc
from millpond.v1 import (  # type: ignore[import-not-found]
    messages_pb2,
    messages_pb2_grpc,
    queues_pb2,
    queues_pb2_grpc,
    topics_pb2,
    topics_pb2_grpc,
)

COUNT = 100


def main(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        topics_pb2_grpc.TopicsStub(channel).CreateTopic(topics_pb2.CreateTopicRequest(name="abroad"))
        messages = messages_pb2_grpc.MessagesStub(channel)
        requests = [
            messages_pb2.ProduceRequest(messages=[messages_pb2.NewMessage(topic="abroad", value=b"%d" % number)])
            for number in range(COUNT)
        ]
        offsets = [answer.places[0].offset for answer in messages.ProduceStream(iter(requests))]
        found = [
            int(message.value)
            for answer in messages.Consume(messages_pb2.ConsumeRequest(topic="abroad"))
            for message in answer.messages
        ]
        assert offsets == found == list(range(COUNT))
        assert work(queues_pb2_grpc.QueuesStub(channel)) == list(range(COUNT))
        try:
            list(messages.Consume(messages_pb2.ConsumeRequest(topic="nowhere")))
        except grpc.RpcError as error:
            (code,) = [value for key, value in error.trailing_metadata() if key == "millpond-code"]  # type: ignore[misc, has-type]
            sys.stdout.write(f"{len(found)} {error.code().name} {code}\n")


def work(queues: queues_pb2_grpc.QueuesStub) -> list[int]:
    """As a consumer of the same topic as a queue, until nothing is left."""
    requests: queue.SimpleQueue[queues_pb2.WorkRequest | None] = queue.SimpleQueue()
    requests.put(queues_pb2.WorkRequest(begin=queues_pb2.Begin(topic="abroad", group="crew", unsettled_max=7)))
    found: list[int] = []
    for answer in queues.Work(iter(requests.get, None)):
        messages = answer.delivery.messages
        assert len(messages) <= 7
        found += [int(each.message.value) for each in messages]
        if messages:
            ack = queues_pb2.WorkAck(receipts=[each.receipt for each in messages])
            requests.put(queues_pb2.WorkRequest(ack=ack))
        elif len(found) == COUNT:
            requests.put(None)
    return found


if __name__ == "__main__":
    main(sys.argv[1])
