"""Batches sent behind one that was refused."""

from millpond.core.replication.refusals import PRODUCERS_MAX, Refusals
from millpond.model.errors import NotLeader
from millpond.model.ids import ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.protocol.records import BatchHeader, NewRecord, encode_batch, parse_header

REFUSAL = NotLeader("not now")


def header(producer: int, sequence: int) -> BatchHeader:
    record = NewRecord(b"value", timestamp=TimestampMs(1))
    return parse_header(
        encode_batch(
            [record],
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0),
            base_sequence=Sequence(sequence),
        )
    )


def test_each_batch_behind_is_refused_once() -> None:
    refusals = Refusals()
    refusals.refused(header(7, 10), REFUSAL)
    behind = [refusals.why_out_of_order(header(7, sequence)) for sequence in (11, 12, 11)]
    assert behind == [REFUSAL, REFUSAL, None]
    assert not refusals


def test_a_producer_whose_batch_was_taken_skips_numbers_by_itself() -> None:
    refusals = Refusals()
    refusals.refused(header(7, 10), REFUSAL)
    refusals.taken(header(7, 10))
    assert refusals.why_out_of_order(header(7, 12)) is None


def test_others_are_not_spared() -> None:
    refusals = Refusals()
    refusals.refused(header(7, 10), REFUSAL)
    assert refusals.why_out_of_order(header(8, 12)) is None
    assert refusals.why_out_of_order(header(7, 12)) is REFUSAL


def test_only_so_many_producers_are_remembered_the_oldest_is_forgotten() -> None:
    refusals = Refusals()
    for producer in range(PRODUCERS_MAX + 1):
        refusals.refused(header(producer, 0), REFUSAL)
    assert refusals.why_out_of_order(header(0, 1)) is None
    assert refusals.why_out_of_order(header(1, 1)) is REFUSAL


def test_batches_without_a_producer_leave_no_trace() -> None:
    refusals = Refusals()
    refusals.refused(parse_header(encode_batch([NewRecord(b"value", timestamp=TimestampMs(1))])), REFUSAL)
    assert not refusals
