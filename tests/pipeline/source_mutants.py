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
from millpond.protocol.records.header import CONTROL

Mutant = Callable[[pytest.MonkeyPatch], None]


def give_what_is_behind_the_end(patch: pytest.MonkeyPatch) -> None:
    """Of the last batch, which goes on after the span."""
    _decode_with(patch, end=None)


def give_what_is_before_the_start(patch: pytest.MonkeyPatch) -> None:
    """Of the first batch, which begins before the span."""
    _decode_with(patch, start=0)


def _decode_with(patch: pytest.MonkeyPatch, **other: int | None) -> None:
    original = decode.decode_batches
    patch.setattr(reading, "decode_batches", lambda data, **told: original(data, **(told | other)))


def take_control_batches_for_messages(patch: pytest.MonkeyPatch) -> None:
    def seen(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
        for place, header in iter_batches(data):
            yield place, header._replace(attributes=header.attributes & ~CONTROL)

    patch.setattr(decode, "iter_batches", seen)


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
    original = decode._pieces

    def pieces(data: Any, parts: Any) -> list[pa.Array]:  # noqa: ANN401
        return [each.fill_null(b"") for each in original(data, parts)]

    patch.setattr(decode, "_pieces", pieces)


def cut_spans_that_overlap(patch: pytest.MonkeyPatch) -> None:
    original = planning._cut

    def cut(span: Span, count: int) -> list[Span]:
        return [Span(each.at, each.start, min(each.end + 1, span.end)) for each in original(span, count)]

    patch.setattr(planning, "_cut", cut)


def believe_the_clock_of_the_first_record(patch: pytest.MonkeyPatch) -> None:
    """Times of a batch that the log has stamped are those its producer gave."""
    original = decode._timestamps

    def times(content: Any, deltas_ms: Any) -> Any:  # noqa: ANN401
        return original(
            type(content)(
                content.data,
                [_unstamped(each) for each in content.headers],
                content.counts,
                content.starts,
                content.ends,
            ),
            deltas_ms,
        )

    patch.setattr(decode, "_timestamps", times)


def _unstamped(header: BatchHeader) -> BatchHeader:
    return header._replace(attributes=header.attributes & ~0x08)


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
    believe_the_clock_of_the_first_record,
    skip_a_batch_without_records,
)
"""Of batch reads, and found after a while: where there is time."""
