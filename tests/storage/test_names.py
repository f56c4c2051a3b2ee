"""Names on disk: no topic leads outside its directory, and a directory tells its partition."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millpond.model.errors import InvalidTopicName
from millpond.model.ids import Offset, TopicPartition
from millpond.model.topic_names import check_topic_name
from millpond.storage.names import offset_file, offsets_of, parse_partition_directory, partition_directory

ALLOWED = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "/",
    "a\\b",
    "a\0b",
    "\0",
    "a\n",
    "\na",
    "a b",
    "ü",
    "a٣",
    "é",
    "a:b",
    "~",
    "*",
    "%2e",
    "a" * 250,
]

topics = st.text(ALLOWED, min_size=1, max_size=249).filter(lambda topic: topic not in (".", ".."))
partitions = st.integers(0, 99_999)


@pytest.mark.parametrize("topic", HOSTILE)
def test_a_hostile_topic_name_is_refused(topic: str) -> None:
    with pytest.raises(InvalidTopicName):
        check_topic_name(topic)
    with pytest.raises(InvalidTopicName):
        partition_directory(TopicPartition(topic, 0))


@pytest.mark.parametrize("topic", ["a", "...", "-", "_", "a.b", "A-1", "0", "-1", "orders-3", "a" * 249])
def test_an_honest_topic_name_is_taken(topic: str) -> None:
    check_topic_name(topic)
    assert parse_partition_directory(partition_directory(TopicPartition(topic, 3))) == TopicPartition(topic, 3)


def test_the_refusal_shows_the_name_its_length_and_what_is_allowed() -> None:
    with pytest.raises(InvalidTopicName) as caught:
        check_topic_name("a\n")
    assert str(caught.value) == (
        r"'a\n' (2 characters) is no topic name; allowed are 1 to 249 of a-z A-Z 0-9 . _ - and neither '.' nor '..'"
    )


def test_a_long_name_is_shown_in_part() -> None:
    with pytest.raises(InvalidTopicName) as caught:
        check_topic_name("a" * 100_000)
    assert "(100000 characters)" in str(caught.value)
    assert len(str(caught.value)) < 300


@given(topic=st.one_of(st.text(), topics), partition=partitions)
@example(topic="orders-3", partition=3)
@example(topic="-0", partition=0)
@example(topic="a" * 249, partition=99_999)
def test_any_text_is_refused_or_names_one_entry_that_tells_its_partition(topic: str, partition: int) -> None:
    at = TopicPartition(topic, partition)
    try:
        name = partition_directory(at)
    except InvalidTopicName:
        return
    assert "/" not in name
    assert "\0" not in name
    assert name not in (".", "..")
    assert len(name.encode()) <= 255
    assert parse_partition_directory(name) == at


@given(topic=topics, partition=partitions)
def test_every_allowed_name_is_taken(topic: str, partition: int) -> None:
    assert parse_partition_directory(partition_directory(TopicPartition(topic, partition))) == (topic, partition)


@given(st.one_of(st.text(), st.text(ALLOWED), st.from_regex(r"[a-z.-]{1,4}-[0-9]{1,12}\n?")))
@example("a" * 250 + "-0")
@example("a-0\n")
@example("a-٣")
def test_a_directory_is_a_partitions_only_if_that_partition_would_be_there(name: str) -> None:
    at = parse_partition_directory(name)
    if at is not None:
        assert partition_directory(at) == name


@pytest.mark.parametrize(
    "name",
    ["", "orders", "orders-", "-3", "orders-03", "orders--1x", "orders-3.new", ".-0", "..-0", "a/b-0", "lost+found"],
)
def test_a_directory_that_is_no_partitions_is_none(name: str) -> None:
    assert parse_partition_directory(name) is None


def test_the_largest_partition_number_is_understood() -> None:
    assert parse_partition_directory("orders-99999") == TopicPartition("orders", 99_999)
    assert parse_partition_directory("orders-100000") is None


@given(st.lists(st.integers(0, 2**63 - 1), unique=True))
def test_files_sort_by_name_as_their_offsets_do(offsets: list[int]) -> None:
    names = sorted(offset_file(Offset(offset), ".log") for offset in offsets)
    assert offsets_of(names, ".log") == sorted(offsets)
    assert offsets_of(list(reversed(names)), ".log") == sorted(offsets)


def test_other_files_are_not_taken_for_segments() -> None:
    names = [
        "00000000000000000007.log",
        "00000000000000000008.index",
        "00000000000000000009.log.new",
        "0000000000000000010.log",
        "checkpoint",
        "x00000000000000000011.log",
        "00000000000000000012.log\n",
    ]
    assert offsets_of(names, ".log") == [7]
    assert offsets_of(names, ".index") == [8]
