"""What is in a topic, read by a plain consumer: what Spark reads and writes is compared with it."""

import time

from millpond.client import Message, TopicPartition
from millpond.client.blocking import Admin, Consumer

SECONDS_MAX = 60.0
"""For what takes a moment; so that a message that is missing is a red test, and not one that never ends."""


def everything(bootstrap: str, topic: str) -> list[Message]:
    """All that was there when this was asked, in no order between partitions."""
    with Admin(bootstrap) as admin:
        partitions = len(admin.describe_topic(topic).partitions)
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer(bootstrap) as consumer:
        consumer.assign(*places)
        consumer.seek_to_start(*places)
        ends = consumer.end_offsets(*places)
        missing = {place for place in places if ends[place] > 0}
        found: list[Message] = []
        deadline = time.monotonic() + SECONDS_MAX
        while missing:
            assert time.monotonic() < deadline, f"{missing} were not read to their ends, {ends}"
            for each in consumer.poll():
                found.append(each)
                if each.offset + 1 >= ends[TopicPartition(topic, each.partition)]:
                    missing.discard(TopicPartition(topic, each.partition))
    return [each for each in found if each.offset < ends[TopicPartition(topic, each.partition)]]
