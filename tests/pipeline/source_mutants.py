"""Bugs in the reading of topics, planted on purpose, one at a time: each is a step that is easily left out, and works
with every log in which nothing special is."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from millpond.model.ids import TopicPartition
from millpond.model.ports import Buffer
from millpond.pipeline import decode, planning, reading, source
from millpond.pipeline.planning import Span
from millpond.pipeline.positions import Offsets
from millpond.protocol.records import BatchHeader, iter_batches, parse_header
from millpond.protocol.records.header import CONTROL, LOG_APPEND_TIME

Mutant = Callable[[pytest.MonkeyPatch], None]


def give_what_is_behind_the_end(patch: pytest.MonkeyPatch) -> None:
    """Of the last batch, which goes on after the span."""
    _decode_with(patch, end=None)


def give_what_is_before_the_start(patch: pytest.MonkeyPatch) -> None:
    """Of the first batch, which begins before the span."""
    _decode_with(patch, start=0)


def _decode_with(patch: pytest.MonkeyPatch, **other: int | None) -> None:
    original = decode.decode_in_parts
    patch.setattr(reading, "decode_in_parts", lambda data, **told: original(data, **(told | other)))


def take_control_batches_for_messages(patch: pytest.MonkeyPatch) -> None:
    _overlook(patch, CONTROL)


def believe_the_producers_clock(patch: pytest.MonkeyPatch) -> None:
    """Also where the log has stamped a batch."""
    _overlook(patch, LOG_APPEND_TIME)


def _overlook(patch: pytest.MonkeyPatch, attribute: int) -> None:
    original = decode._before

    def seen(data: Buffer, end: int | None) -> Iterator[tuple[int, BatchHeader]]:
        for place, header in original(data, end):
            yield place, header._replace(attributes=header.attributes & ~attribute)

    patch.setattr(decode, "_before", seen)
    patch.setattr(decode, "KERNEL", None)  # which looks at headers itself


def go_on_behind_the_last_record(patch: pytest.MonkeyPatch) -> None:
    """And not behind the batch: compaction may have taken its last ones."""

    def whole(data: memoryview, offset: int) -> tuple[memoryview, int]:
        found, after = original(data, offset)
        if len(found):
            last = [header for _, header in iter_batches(found)][-1]
            after = max(offset + 1, last.base_offset + last.record_count)
        return found, after

    original = reading._whole
    patch.setattr(reading, "_whole", whole)


def read_nulls_as_empty(patch: pytest.MonkeyPatch) -> None:
    def decoded(data: Buffer, **told: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401
        for batch in decode.decode_in_parts(data, **told):
            place = batch.schema.get_field_index("key")
            yield batch.set_column(place, "key", batch.column(place).fill_null(b""))

    patch.setattr(reading, "decode_in_parts", decoded)


def cut_spans_that_overlap(patch: pytest.MonkeyPatch) -> None:
    original = planning._cut

    def cut(span: Span, count: int) -> list[Span]:
        return [Span(each.at, each.start, min(each.end + 1, span.end)) for each in original(span, count)]

    patch.setattr(planning, "_cut", cut)


def read_one_more_than_the_limit(patch: pytest.MonkeyPatch) -> None:
    original = planning.limited

    def limited(
        starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, offsets_max: int
    ) -> Offsets:
        return original(starts, ends, offsets_max=offsets_max + 1)

    patch.setattr(source, "limited", limited)


def skip_a_batch_without_records(patch: pytest.MonkeyPatch) -> None:
    """As if it were the end."""

    def whole(data: memoryview, offset: int) -> tuple[memoryview, int]:
        found, after = original(data, offset)
        if len(found) and not parse_header(found).record_count:
            return found, 1 << 60
        return found, after

    original = reading._whole
    patch.setattr(reading, "_whole", whole)


BATCH_MUTANTS: tuple[Mutant, ...] = (
    give_what_is_behind_the_end,
    give_what_is_before_the_start,
    take_control_batches_for_messages,
    read_nulls_as_empty,
)
STREAM_MUTANTS: tuple[Mutant, ...] = (read_one_more_than_the_limit,)
RARE_MUTANTS: tuple[Mutant, ...] = (
    go_on_behind_the_last_record,
    cut_spans_that_overlap,
    believe_the_producers_clock,
    skip_a_batch_without_records,
)
"""Of batch reads, and found after a while: where there is time."""
