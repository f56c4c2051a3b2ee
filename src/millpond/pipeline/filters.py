"""What of a query's conditions spares reading: topics, partitions, offsets and the earliest time.

Spark still applies every condition itself: here they only make ranges smaller. Of times only the lower bound helps,
because the messages of a partition need not be in the order of their times.

Invariant: no message that satisfies the conditions is left out.
Pure. Driven by source.py, where Spark has `spark.sql.python.filterPushdown.enabled`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from millpond.model.ids import TopicPartition
from millpond.pipeline.positions import Offsets

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Conditions:
    topics: frozenset[str] | None = None
    """None for any."""
    partitions: frozenset[int] | None = None
    offset_min: int = 0
    offset_end: int | None = None
    partition_min: int = 0
    partition_end: int | None = None
    time_min_ms: int | None = None
    offered: list[Filter] = field(default_factory=list)

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Learns from them; all are given back, for Spark to apply."""
        self.offered = list(filters)
        for each in self.offered:
            match each:
                case EqualTo(attribute=(name,), value=value):
                    self._among(name, {value})
                    self._at_least(name, value)
                    self._at_most(name, value)
                case In(attribute=(name,), value=values):
                    self._among(name, set(values))
                case GreaterThanOrEqual(attribute=(name,), value=value) | GreaterThan(attribute=(name,), value=value):
                    self._at_least(name, value)
                case LessThanOrEqual(attribute=(name,), value=value) | LessThan(attribute=(name,), value=value):
                    self._at_most(name, value)
                case _:
                    pass
        return self.offered

    def _among(self, name: str, values: set[Any]) -> None:
        if name == "topic":
            self.topics = frozenset(values) if self.topics is None else self.topics & values
        elif name == "partition":
            self.partitions = frozenset(values) if self.partitions is None else self.partitions & values

    def _at_least(self, name: str, value: Any) -> None:  # noqa: ANN401 - whatever the column holds
        if name == "offset" and value is not None:
            self.offset_min = max(self.offset_min, value)
        elif name == "partition" and value is not None:
            self.partition_min = max(self.partition_min, value)
        elif name == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
            moment = int((value - _EPOCH).total_seconds() * 1000) - 1
            self.time_min_ms = max(self.time_min_ms or 0, moment, 0)

    def _at_most(self, name: str, value: Any) -> None:  # noqa: ANN401
        if name == "offset" and value is not None:
            self.offset_end = value + 1 if self.offset_end is None else min(self.offset_end, value + 1)
        elif name == "partition" and value is not None:
            self.partition_end = value + 1 if self.partition_end is None else min(self.partition_end, value + 1)

    # What comes of it

    def wants(self, at: TopicPartition) -> bool:
        return (
            (self.topics is None or at.topic in self.topics)
            and (self.partitions is None or at.partition in self.partitions)
            and at.partition >= self.partition_min
            and (self.partition_end is None or at.partition < self.partition_end)
        )

    def starts(self, starts: Mapping[TopicPartition, int]) -> Offsets:
        return {at: max(start, self.offset_min) for at, start in starts.items()}

    def ends(self, ends: Mapping[TopicPartition, int]) -> Offsets:
        return {at: end if self.offset_end is None else min(end, self.offset_end) for at, end in ends.items()}
