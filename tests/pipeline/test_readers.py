"""What Spark asks of a reader, asked without Spark: offsets that go on, limits, losses, a broker that goes away."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from millpond.client import TopicPartition
from millpond.client.blocking import Admin, Producer
from millpond.model.errors import OffsetOutOfRange
from millpond.pipeline import decode
from millpond.pipeline.kernel import KERNEL
from millpond.pipeline.link import Link
from millpond.pipeline.options import Connection, read_options
from millpond.pipeline.planning import Span
from millpond.pipeline.reading import read_span
from millpond.pipeline.source import StreamReader
from millpond.testing.broker import InProcessBroker

BATCH = 10


def send(broker: InProcessBroker, topic: str, numbers: Iterable[int]) -> None:
    """In batches of a few, so that there are many."""
    numbers = list(numbers)
    with Producer(broker.bootstrap) as producer:
        for start in range(0, len(numbers), BATCH):
            producer.send_many(topic, [b"%d" % number for number in numbers[start : start + BATCH]], partition=0)


def reader(broker: InProcessBroker, topic: str, **options: str) -> StreamReader:
    given = {"bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"} | options
    return StreamReader(read_options(given, "stream"), None)


def values(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]


def test_offsets_go_on_within_the_limit_and_every_message_is_read_once(broker: InProcessBroker) -> None:
    broker.create_topic("steps")
    send(broker, "steps", range(95))
    stream = reader(broker, "steps", maxOffsetsPerTrigger="30")
    place, found, sizes = stream.initialOffset(), [], []
    while (end := stream.latestOffset(place, stream.getDefaultReadLimit())) != place:
        read = [number for each in stream.partitions(place, end) for number in values(stream.read(each))]
        sizes.append(len(read))
        found += read
        place = end
    stream.stop()
    assert found == list(range(95))
    assert sizes == [30, 30, 30, 5]


def test_a_trigger_that_wants_everything_is_not_limited(broker: InProcessBroker) -> None:
    broker.create_topic("everything")
    send(broker, "everything", range(50))
    stream = reader(broker, "everything", maxOffsetsPerTrigger="30")
    assert stream.getDefaultReadLimit() == ReadMaxRows(30)
    assert stream.latestOffset(stream.initialOffset(), ReadAllAvailable())["everything"] == {"0": 50}
    stream.stop()


def test_available_now_ends_where_it_began_to(broker: InProcessBroker) -> None:
    broker.create_topic("now")
    send(broker, "now", range(20))
    stream = reader(broker, "now")
    place = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    send(broker, "now", range(20, 40))
    assert stream.latestOffset(place, ReadAllAvailable())["now"] == {"0": 20}
    stream.stop()


@pytest.mark.parametrize("available_now", [False, True])
def test_a_topic_that_was_made_anew_is_a_loss(broker: InProcessBroker, available_now: bool) -> None:
    name = f"anew-{available_now}"
    broker.create_topic(name)
    send(broker, name, range(5))
    with Admin(broker.bootstrap) as admin:
        admin.delete_topic(name)
        admin.create_topic(name, partitions=1)
    place = {name: {"0": 30}}
    for fails in ("true", "false"):
        stream = reader(broker, name, failOnDataLoss=fails)
        if available_now:
            stream.prepareForTriggerAvailableNow()
        if fails == "true":
            with pytest.raises(OffsetOutOfRange, match="was read up to offset 30, and now ends at 0"):
                stream.latestOffset(place, ReadAllAvailable())
        else:
            assert stream.latestOffset(place, ReadAllAvailable())[name] == place[name]
        stream.stop()


def test_a_topic_that_was_made_anew_and_is_longer_by_now_is_another_one(broker: InProcessBroker) -> None:
    """Its offsets say nothing: reading on from the old place would miss its first messages without a word."""
    broker.create_topic("longer")
    send(broker, "longer", range(5))
    stream = reader(broker, "longer")
    place = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    stream.stop()
    with Admin(broker.bootstrap) as admin:
        admin.delete_topic("longer")
        admin.create_topic("longer", partitions=1)
    send(broker, "longer", range(100, 120))
    stream = reader(broker, "longer")
    with pytest.raises(OffsetOutOfRange, match="topic longer was deleted and made anew since it was read"):
        stream.latestOffset(place, ReadAllAvailable())
    stream.stop()
    stream = reader(broker, "longer", failOnDataLoss="false", maxOffsetsPerTrigger="15")
    found = []
    while (end := stream.latestOffset(place, stream.getDefaultReadLimit())) != place:
        found += [number for each in stream.partitions(place, end) for number in values(stream.read(each))]
        place = end
    stream.stop()
    assert found == list(range(100, 120))


def test_a_limit_in_bytes_does_not_hide_what_is_lost(broker: InProcessBroker) -> None:
    """The sample that it is judged by is taken where the stream is, and that may be gone."""
    broker.create_topic("sampled")
    send(broker, "sampled", range(20))
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition("sampled", 0): 10})
    for fails in ("true", "false"):
        stream = reader(broker, "sampled", maxBytesPerTrigger="100000", failOnDataLoss=fails)
        end = stream.latestOffset({"sampled": {"0": 5}}, stream.getDefaultReadLimit())
        (part,) = stream.partitions({"sampled": {"0": 5}}, end)
        if fails == "true":
            with pytest.raises(OffsetOutOfRange, match="the messages from offset 5 to 9 are gone"):
                values(stream.read(part))
        else:
            assert values(stream.read(part)) == list(range(10, 20))
        stream.stop()


def test_a_broker_that_goes_away_in_the_middle_is_waited_for(tmp_path: Path) -> None:
    with InProcessBroker(data_directory=str(tmp_path)) as first:
        port, connection = first.broker.port, Connection(first.bootstrap)
        first.create_topic("long")
        send(first, "long", range(500))
        link = Link(connection)
        span = Span(TopicPartition("long", 0), 0, 500)
        batches = read_span(link, span, columns=("value",), fetch_bytes=500, fail_on_data_loss=True)
        found = values([next(batches)])
    assert len(found) < 500
    with InProcessBroker(data_directory=str(tmp_path), port=port):
        found += values(batches)
        link.close()
    assert found == list(range(500))


def test_what_was_read_stays_as_it_was_when_more_is_read(broker: InProcessBroker) -> None:
    """Answers are read into memory that is used again."""
    broker.create_topic("kept")
    send(broker, "kept", range(300))
    span = Span(TopicPartition("kept", 0), 0, 300)
    for kernel in {None, KERNEL}:
        with patch.object(decode, "KERNEL", kernel), Link(Connection(broker.bootstrap)) as link:
            batches = list(read_span(link, span, columns=("value",), fetch_bytes=300, fail_on_data_loss=True))
        assert len(batches) > 3
        assert values(batches) == list(range(300))


def test_readers_on_one_link_do_not_get_in_each_others_way(broker: InProcessBroker) -> None:
    """One that is left in the middle, with an answer on its way, and two that take turns."""
    broker.create_topic("turns", partitions=1)
    send(broker, "turns", range(300))
    span = Span(TopicPartition("turns", 0), 0, 300)
    how: dict[str, Any] = {"columns": ("value",), "fetch_bytes": 300, "fail_on_data_loss": True}
    with Link(Connection(broker.bootstrap)) as link:
        left = read_span(link, span, **how)
        next(left)
        del left
        first, second = read_span(link, span, **how), read_span(link, span, **how)
        found = [(values([one]), values([other])) for one, other in zip(first, second, strict=True)]
    assert [number for numbers, _ in found for number in numbers] == list(range(300))
    assert [number for _, numbers in found for number in numbers] == list(range(300))


@pytest.mark.parametrize(
    ("options", "tasks"), [({}, 1), ({"minRecordsPerPartition": "1"}, 4), ({"minPartitions": "4"}, 4)]
)
def test_a_task_reads_several_small_ranges(broker: InProcessBroker, options: dict[str, str], tasks: int) -> None:
    topic = f"small-{tasks}-{len(options)}-{''.join(options)}"
    broker.create_topic(topic, partitions=4)
    with Producer(broker.bootstrap) as producer:
        for partition in range(4):
            producer.send_many(topic, [b"%d" % number for number in range(partition, 40, 4)], partition=partition)
    stream = reader(broker, topic, **options)
    start = stream.initialOffset()
    parts = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
    stream.stop()
    assert len(parts) == tasks
    assert sorted(number for part in parts for number in values(stream.read(part))) == list(range(40))


def test_progress_is_committed_when_the_next_batch_is_asked_for(broker: InProcessBroker) -> None:
    broker.create_topic("watched")
    send(broker, "watched", range(30))
    stream = reader(broker, "watched", maxOffsetsPerTrigger="20", **{"kafka.group.id": "watcher"})
    place = stream.initialOffset()
    for _ in range(2):
        place = stream.latestOffset(place, stream.getDefaultReadLimit())
    stream.stop()
    with Admin(broker.bootstrap) as admin:
        assert admin.group_offsets("watcher") == {TopicPartition("watched", 0): 20}
