"""Where to begin and where to end, as a reader is told it, and offsets as Spark's checkpoints hold them.

    "earliest", "latest", or JSON: {"orders": {"0": 23, "1": -2}}, where -2 is earliest and -1 latest
    times in milliseconds, one for all, or JSON by partition, as offsets

In a checkpoint: {"orders": {"0": 23, "1": 7}, "#ids": {"orders": "5f0c..."}}, the shape of Spark's kafka source but for
the ids, which no topic can be named like: by them a topic is known that was deleted and made anew under its old name.

Pure. Driven by options.py, planning.py and source.py.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from millpond.model.errors import InvalidSetting
from millpond.model.ids import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
_NAMES: Final = {"earliest": EARLIEST, "latest": LATEST}

Offsets = dict[TopicPartition, int]
OffsetsJson = dict[str, dict[str, Any]]
Ids = dict[str, str]
"""By topic; only of those whose cluster gives them ids."""
_IDS: Final = "#ids"


@dataclass(frozen=True, slots=True)
class Position:
    """One for all partitions, but for those that are named."""

    everywhere: int | None
    """An offset, EARLIEST or LATEST, or a time; None where only those named have one."""
    named: tuple[tuple[TopicPartition, int], ...] = ()
    is_time: bool = False

    def of(self, at: TopicPartition) -> int | None:
        return dict(self.named).get(at, self.everywhere)


def parse_offsets(option: str, text: str, *, allowed: tuple[str, ...]) -> Position:
    name = text.strip().lower()
    if name in allowed:
        return Position(_NAMES[name])
    if name in _NAMES:
        raise InvalidSetting(f"{option} is {text!r}; it is {' or '.join(map(repr, allowed))}, or offsets as JSON")
    words = f"{' or '.join(allowed)}, or JSON"
    return Position(None, _parse_json(option, text, least=EARLIEST, form=words))


def parse_times(option: str, text: str) -> Position:
    """Of each partition."""
    return Position(None, _parse_json(option, text, least=0), is_time=True)


def parse_time(option: str, text: str) -> Position:
    if not text.strip().isdecimal():
        raise InvalidSetting(f"{option} is {text!r}; it is milliseconds since 1970, such as 1700000000000")
    return Position(int(text), is_time=True)


def _parse_json(option: str, text: str, *, least: int, form: str = "JSON") -> tuple[tuple[TopicPartition, int], ...]:
    try:
        document = json.loads(text)
        found = [
            (TopicPartition(topic, int(partition)), number)
            for topic, partitions in document.items()
            for partition, number in partitions.items()
        ]
    except (ValueError, AttributeError):
        found = []
    if not found or any(type(number) is not int or number < least or at.partition < 0 for at, number in found):
        raise InvalidSetting(
            f'{option} is {text!r}; it is {form} such as {{"topic": {{"0": 23, "1": -2}}}}, a number for each partition'
        )
    return tuple(found)


def parse_assignment(option: str, text: str) -> tuple[TopicPartition, ...]:
    try:
        found = [
            TopicPartition(topic, number) for topic, numbers in json.loads(text).items() for number in sorted(numbers)
        ]
    except (ValueError, AttributeError, TypeError):
        found = []
    if not found or any(type(at.partition) is not int or at.partition < 0 for at in found):
        raise InvalidSetting(f'{option} is {text!r}; it is JSON such as {{"orders": [0, 1], "returns": [2]}}')
    return tuple(found)


def to_json(offsets: Mapping[TopicPartition, int], ids: Mapping[str, str] | None = None) -> OffsetsJson:
    document: OffsetsJson = {}
    for at in sorted(offsets):
        document.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    known = {topic: ids[topic] for topic in document if ids and topic in ids}
    return document | {_IDS: known} if known else document


def from_json(document: OffsetsJson) -> Offsets:
    return {
        TopicPartition(topic, int(number)): offset
        for topic, partitions in document.items()
        if topic != _IDS
        for number, offset in partitions.items()
    }


def ids_in(document: OffsetsJson) -> Ids:
    return dict(document.get(_IDS, {}))


def made_anew(before: OffsetsJson, now: Mapping[str, str]) -> set[str]:
    """Topics that are others than they were, whatever they are called."""
    return {topic for topic, was in ids_in(before).items() if now.get(topic, was) != was}
