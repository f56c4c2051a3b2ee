"""The Java client: what is produced is what is consumed. Its producer is idempotent unless it is told otherwise."""

from typing import Any

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.confluent import CODECS, read_from_start, send, values_of
from tests.interop.facts import new_name
from tests.interop.foreign_client import ForeignClient, Refused

pytestmark = pytest.mark.slow
BASE_MS = 1_700_000_000_000


def new_topic(java: ForeignClient, *, partitions: int = 1) -> str:
    topic = new_name("java-topic")
    java.ask("create_topic", topic=topic, partitions=partitions)
    return topic


def produce(java: ForeignClient, topic: str, records: list[dict[str, Any]], **settings: object) -> list[Any]:
    """Partition and offset of each, or the name of its error."""
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    kept: list[Any] = java.ask("produce", topic=topic, records=records, settings=dotted)
    return kept


def read(java: ForeignClient, topic: str, count: int, *, offset: int = 0) -> list[dict[str, Any]]:
    name = new_name("reader")
    java.ask("open", name=name)
    java.ask("assign", name=name, partitions=[[topic, 0]])
    java.ask("seek", name=name, offsets=[[topic, 0, offset]])
    records = java.receive(name, count)
    java.ask("close", name=name)
    return records


def timed_topic(java: ForeignClient) -> str:
    """Ten messages, a second apart."""
    topic = new_topic(java)
    produce(java, topic, [{"value": str(number), "timestamp": BASE_MS + 1_000 * number} for number in range(10)])
    return topic


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_each_codec_come_back_as_they_were_sent(java: ForeignClient, codec: str, idempotent: bool) -> None:
    topic = new_topic(java)
    records = [{"value": f"order {number} " + "x" * 50} for number in range(500)]
    kept = produce(java, topic, records, compression_type=codec, enable_idempotence=idempotent, linger_ms=5)
    assert kept == [[0, number] for number in range(500)]
    assert [each["value"] for each in read(java, topic, 500)] == [each["value"] for each in records]


@pytest.mark.parametrize("codec", CODECS)
def test_what_another_client_compressed_is_read(broker: BrokerProcess, java: ForeignClient, codec: str) -> None:
    topic = new_topic(java)
    send(broker, topic, [b"from librdkafka " * 20] * 20, compression_type=codec, linger_ms=50)
    assert {each["value"] for each in read(java, topic, 20)} == {"from librdkafka " * 20}


@pytest.mark.parametrize("codec", CODECS)
def test_another_client_reads_what_java_compressed(broker: BrokerProcess, java: ForeignClient, codec: str) -> None:
    topic = new_topic(java)
    produce(java, topic, [{"value": "from Java " * 20}] * 20, compression_type=codec)
    assert set(values_of(read_from_start(broker, topic, 20))) == {b"from Java " * 20}


def test_headers_timestamps_and_missing_keys_and_values_are_kept(java: ForeignClient) -> None:
    topic = new_topic(java)
    headers = [["trace", "\x00\xff"], ["trace", "again"], ["empty", ""], ["nothing", None]]
    records: list[dict[str, Any]] = [
        {"key": "key", "value": "value", "headers": headers, "timestamp": BASE_MS},
        {"key": "gone", "value": None, "timestamp": BASE_MS + 5},
        {"key": None, "value": "alone", "timestamp": BASE_MS + 3},
        {"key": "", "value": "", "timestamp": BASE_MS + 9},
        {"key": None, "value": None, "timestamp": BASE_MS + 9},
    ]
    produce(java, topic, records)
    found = read(java, topic, 5)
    assert found[0]["headers"] == headers
    assert [each["offset"] for each in found] == list(range(5))
    assert {each["leader_epoch"] for each in found} == {0}
    for field in ("key", "value", "timestamp"):
        assert [each[field] for each in found] == [each[field] for each in records]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_messages_of_900_kilobytes_pass(java: ForeignClient, codec: str) -> None:
    topic = new_topic(java)
    values = [letter * 900_000 for letter in "abc"]
    produce(java, topic, [{"value": value} for value in values], compression_type=codec)
    assert [each["value"] for each in read(java, topic, 3)] == values


def test_a_message_larger_than_a_fetch_asks_for_is_given_all_the_same(java: ForeignClient) -> None:
    topic, name = new_topic(java), new_name("reader")
    produce(java, topic, [{"value": "x" * 500_000}, {"value": "y"}])
    java.ask("open", name=name, settings={"fetch.max.bytes": 1_000, "max.partition.fetch.bytes": 1_000})
    java.ask("assign", name=name, partitions=[[topic, 0]])
    assert [len(each["value"]) for each in java.receive(name, 2)] == [500_000, 1]
    java.ask("close", name=name)


def test_a_message_too_large_for_its_topic_is_refused(java: ForeignClient) -> None:
    topic = new_name("java-topic")
    java.ask("create_topic", topic=topic, partitions=1, configs={"max.message.bytes": "1000"})
    assert produce(java, topic, [{"value": "x" * 2_000}]) == ["RecordTooLargeException"]
    assert produce(java, topic, [{"value": "x" * 20}]) == [[0, 0]]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_each_level_of_acks_delivers(java: ForeignClient, acks: str) -> None:
    topic = new_topic(java)
    produce(java, topic, [{"value": str(number)} for number in range(50)], acks=acks, enable_idempotence=acks == "all")
    assert [each["value"] for each in read(java, topic, 50)] == [str(number) for number in range(50)]


def test_a_topic_is_made_when_it_is_first_written_to(java: ForeignClient) -> None:
    topic = new_name("java-unmade")
    assert produce(java, topic, [{"value": "first"}]) == [[0, 0]]


def test_keys_stay_on_their_partition_and_those_without_are_spread(broker: BrokerProcess, java: ForeignClient) -> None:
    topic = new_topic(java, partitions=4)
    homes = produce(java, topic, [{"key": f"customer {number % 20}", "value": "x"} for number in range(100)])
    by_key = {(number % 20, partition) for number, (partition, _) in enumerate(homes)}
    assert len(by_key) == 20
    assert len({partition for partition, _ in homes}) > 1


@pytest.mark.parametrize(
    ("time_ms", "found"),
    [(0, [0, BASE_MS]), (BASE_MS + 3_001, [4, BASE_MS + 4_000]), (BASE_MS + 9_000, [9, BASE_MS + 9_000])],
)
def test_an_offset_is_found_by_time(java: ForeignClient, time_ms: int, found: list[int]) -> None:
    topic, name = timed_topic(java), new_name("reader")
    java.ask("open", name=name)
    assert java.ask("offsets_for_times", name=name, partitions=[[topic, 0]], time=time_ms) == found
    assert java.ask("offsets_for_times", name=name, partitions=[[topic, 0]], time=BASE_MS + 9_001) is None
    assert java.ask("ends", name=name, partitions=[[topic, 0]]) == [[0, 10]]
    java.ask("close", name=name)
    assert read(java, topic, 10 - found[0], offset=found[0])[0]["value"] == str(found[0])


@pytest.mark.parametrize(("reset", "values"), [("earliest", ["8", "9", "new"]), ("by_duration:PT1H", ["new"])])
def test_a_consumer_out_of_range_starts_where_it_is_told_to(java: ForeignClient, reset: str, values: list[str]) -> None:
    topic, name = timed_topic(java), new_name("reader")
    produce(java, topic, [{"value": "new"}])
    java.ask("delete_records", partitions=[[topic, 0]], before=8)
    java.ask("open", name=name, settings={"auto.offset.reset": reset})
    java.ask("assign", name=name, partitions=[[topic, 0]])
    java.ask("seek", name=name, offsets=[[topic, 0, 2]])
    assert [each["value"] for each in java.receive(name, len(values))] == values
    java.ask("close", name=name)


def test_a_consumer_without_a_reset_is_told_that_it_is_out_of_range(java: ForeignClient) -> None:
    topic, name = timed_topic(java), new_name("reader")
    java.ask("open", name=name, settings={"auto.offset.reset": "none"})
    java.ask("assign", name=name, partitions=[[topic, 0]])
    java.ask("seek", name=name, offsets=[[topic, 0, 99]])
    with pytest.raises(Refused, match="OffsetOutOfRangeException"):
        java.receive(name, 1)
    java.ask("close", name=name)


def test_a_reader_of_committed_messages_only_reads_them_all(java: ForeignClient) -> None:
    topic, name = timed_topic(java), new_name("reader")
    java.ask("open", name=name, settings={"isolation.level": "read_committed"})
    java.ask("assign", name=name, partitions=[[topic, 0]])
    assert [each["value"] for each in java.receive(name, 10)] == [str(number) for number in range(10)]
    assert java.ask("ends", name=name, partitions=[[topic, 0]]) == [[0, 10]]
    java.ask("close", name=name)
