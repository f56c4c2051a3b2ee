"""Options are taken by the names of Spark's kafka source; what is wrong is refused with what to write instead."""

import pytest

from millpond.model.errors import InvalidSetting
from millpond.model.ids import TopicPartition
from millpond.pipeline.options import GUIDE, Kind, read_options, write_options
from millpond.pipeline.positions import EARLIEST, LATEST

HERE = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS = HERE | {"subscribe": "orders"}


def test_a_batch_begins_at_the_start_and_a_stream_at_the_end() -> None:
    assert read_options(ORDERS, "batch").starting.everywhere == EARLIEST
    assert read_options(ORDERS, "stream").starting.everywhere == LATEST


def test_positions_are_read_as_spark_writes_them() -> None:
    options = read_options(
        HERE | {"assign": '{"orders": [1, 0]}', "startingOffsets": '{"orders": {"0": 23, "1": -2}}'}, "batch"
    )
    assert options.assigned == (TopicPartition("orders", 0), TopicPartition("orders", 1))
    assert options.starting.of(TopicPartition("orders", 0)) == 23
    assert options.starting.of(TopicPartition("orders", 1)) == EARLIEST
    assert options.starting.of(TopicPartition("orders", 2)) is None


def test_a_time_counts_before_offsets() -> None:
    starting = read_options(ORDERS | {"startingTimestamp": "17", "startingOffsets": "earliest"}, "stream").starting
    assert (starting.everywhere, starting.is_time) == (17, True)


def test_names_are_taken_however_they_are_written() -> None:
    options = read_options({"BOOTSTRAP.SERVERS": "a:1", "Subscribe": " x, y ", "INCLUDEHEADERS": "True"}, "batch")
    assert options.topics == ("x", "y")
    assert "headers" in options.columns


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"subscribe": "orders"}, "batch", "kafka.bootstrap.servers is missing"),
        (HERE, "batch", "exactly one of subscribe"),
        (ORDERS | {"assign": '{"a": [0]}'}, "batch", "subscribe and assign"),
        (ORDERS | {"subscribe": " , "}, "batch", "subscribe is empty"),
        (HERE | {"subscribePattern": "("}, "batch", "no regular expression"),
        (ORDERS | {"startingOffset": "earliest"}, "batch", "did you mean startingOffsets"),
        (ORDERS | {"kafka.security.protocol": "SSL"}, "batch", "is not known"),
        (ORDERS | {"startingOffsets": "latest"}, "batch", "'earliest'"),
        (ORDERS | {"startingOffsets": '{"orders": 3}'}, "batch", "a number for each partition"),
        (ORDERS | {"startingOffsets": '{"orders": {"0": -3}}'}, "batch", "a number for each partition"),
        (ORDERS | {"endingOffsets": "latest"}, "stream", "means nothing to a stream"),
        (ORDERS | {"startingTimestamp": "yesterday"}, "batch", "milliseconds since 1970"),
        (ORDERS | {"failOnDataLoss": "perhaps"}, "batch", "true or false"),
        (ORDERS | {"minPartitions": "0"}, "batch", "at least 1"),
        (ORDERS | {"columns": "key,wert"}, "batch", "each once"),
        (ORDERS | {"value.format": "xml"}, "batch", "raw or json"),
        (ORDERS | {"value.format": "json"}, "batch", "are given together"),
        (ORDERS | {"value.schema": "a int", "value.format": "json", "columns": "key"}, "batch", "not among columns"),
        (ORDERS | {"topic": "x"}, "batch", "means nothing to a batch read"),
    ],
)
def test_what_is_wrong_is_refused_with_what_to_do(given: dict[str, str], kind: Kind, text: str) -> None:
    with pytest.raises(InvalidSetting, match=text):
        read_options(given, kind)


@pytest.mark.parametrize(
    ("given", "text"),
    [({"kafka.compression.type": "brotli"}, "zstd"), ({"subscribe": "x"}, "means nothing to a writer")],
)
def test_a_writer_is_as_strict(given: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidSetting, match=text):
        write_options(HERE | given, is_stream=False)


def test_every_option_has_its_row_in_the_guide() -> None:
    for kind in ("batch", "stream"):
        for name in GUIDE:
            if name not in ("subscribe", "subscribePattern", "assign", "kafka.bootstrap.servers"):
                with pytest.raises(InvalidSetting) as caught:
                    read_options(ORDERS | {name: "?"} | {"columns": "?"}, kind)
                assert "not known" not in str(caught.value)
