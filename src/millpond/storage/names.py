"""Names on disk: one directory a partition, files in it named for the first offset they hold.

    <topic>-<partition>/
        00000000000000001500.log        record batches, back to back: exactly the bytes that travel on the wire
        00000000000000001500.index      where offsets and times lie in that .log (index.py)
        00000000000000001500.producers  idempotent producers as they were before offset 1500 (producers.py)
        checkpoint                      what is known to be on disk (checkpoints.py)
        leader-epochs                   which leader wrote from where on (epochs.py)
        topic-id                        whose log this is (founding.py)
        topic-id.unfounded              the same, in a log that nobody was told of yet
        clean-shutdown                  only after an orderly close
        *.new                           being written; removed when found

Invariant: no topic name leads outside its own directory, because only `[a-zA-Z0-9._-]` gets this far.
Pure.
"""

import re

from millpond.model.ids import Offset, TopicPartition
from millpond.model.limits import PARTITIONS_PER_TOPIC_MAX
from millpond.model.topic_names import check_topic_name, is_topic_name

LOG = ".log"
INDEX = ".index"
PRODUCERS = ".producers"
UNFINISHED = ".new"
CHECKPOINT = "checkpoint"
LEADER_EPOCHS = "leader-epochs"
CLEAN_SHUTDOWN = "clean-shutdown"
TOPIC_ID = "topic-id"
UNFOUNDED = "topic-id.unfounded"

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,4})")
_OFFSET_FILE = re.compile(r"(?P<offset>[0-9]{20})(?P<suffix>\.[a-z]+)")


def partition_directory(at: TopicPartition) -> str:
    check_topic_name(at.topic)
    assert 0 <= at.partition < PARTITIONS_PER_TOPIC_MAX, at
    return f"{at.topic}-{at.partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """None for a directory that is not a partition's."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or not is_topic_name(match["topic"]):
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def offset_file(offset: Offset, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def offsets_of(names: list[str], suffix: str) -> list[Offset]:
    """The offsets of all files with that suffix, ascending."""
    matches = (_OFFSET_FILE.fullmatch(name) for name in names)
    return sorted(Offset(int(match["offset"])) for match in matches if match and match["suffix"] == suffix)
