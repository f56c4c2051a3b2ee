"""Batches sent behind one that was refused."""

from millpond.core.replication.refusals import PRODUCERS_MAX, Refusals
from millpond.model.errors import NotLeader
from millpond.model.ids import ProducerEpoch, ProducerId, Sequence, TimestampMs
from millpond.protocol.records import BatchHeader, NewRecord, encode_batch, parse_header

REFUSAL = NotLeader("not now")


def header(producer: int, sequence: int, *, epoch: int = 0) -> BatchHeader:
    record = NewRecord(b"value", timestamp=TimestampMs(1))
    return parse_header(
        encode_batch(
            [record],
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(epoch),
            base_sequence=Sequence(sequence),
        )
    )


def test_each_batch_behind_is_refused_once_and_the_first_may_come_again() -> None:
    refusals = Refusals()
    refusals.refused(header(7, 10), REFUSAL)
    assert [refusals.why_not_yet(header(7, sequence)) for sequence in (11, 12)] == [REFUSAL, REFUSAL]
    assert refusals.why_not_yet(header(7, 10)) is None
    assert not refusals


def test_a_first_batch_that_is_refused_again_holds_the_others_back_again() -> None:
    refusals = Refusals()
    for _ in range(2):
        refusals.refused(header(7, 10), REFUSAL)
        assert refusals.why_not_yet(header(7, 11)) is REFUSAL


def test_a_batch_that_comes_again_without_the_first_is_for_the_log_to_judge() -> None:
    refusals = Refusals()
    refusals.refused(header(7, 10), REFUSAL)
    assert [refusals.why_not_yet(header(7, 11)) for _ in range(2)] == [REFUSAL, None]


def test_other_producers_and_other_epochs_are_not_held_back() -> None:
    refusals = Refusals()
    refusals.refused(header(7, 10), REFUSAL)
    assert refusals.why_not_yet(header(8, 11)) is None
    assert refusals.why_not_yet(header(7, 0, epoch=1)) is None
    assert not refusals


def test_only_so_many_producers_are_remembered_the_oldest_is_forgotten() -> None:
    refusals = Refusals()
    for producer in range(PRODUCERS_MAX + 1):
        refusals.refused(header(producer, 0), REFUSAL)
    assert refusals.why_not_yet(header(0, 1)) is None
    assert refusals.why_not_yet(header(1, 1)) is REFUSAL


def test_batches_without_a_producer_leave_no_trace() -> None:
    refusals = Refusals()
    refusals.refused(parse_header(encode_batch([NewRecord(b"value", timestamp=TimestampMs(1))])), REFUSAL)
    assert not refusals


def test_a_gap_is_forgiven_once_and_what_is_missing_may_come() -> None:
    refusals = Refusals()
    assert refusals.forgives(header(7, 12), REFUSAL)
    assert refusals.why_not_yet(header(7, 13)) is REFUSAL
    assert [refusals.why_not_yet(header(7, sequence)) for sequence in (11, 12, 13)] == [None, None, None]


def test_a_gap_that_stays_is_for_the_log_to_judge_and_a_later_one_is_forgiven_again() -> None:
    refusals = Refusals()
    assert refusals.forgives(header(7, 12), REFUSAL)
    assert refusals.why_not_yet(header(7, 12)) is None
    assert not refusals.forgives(header(7, 12), REFUSAL)
    assert refusals.forgives(header(7, 20), REFUSAL)
    assert refusals.forgives(header(7, 1, epoch=1), REFUSAL)


def test_gaps_of_only_so_many_producers_are_remembered() -> None:
    refusals = Refusals()
    for producer in range(PRODUCERS_MAX + 1):
        assert refusals.forgives(header(producer, 1), REFUSAL)
    assert refusals.forgives(header(0, 1), REFUSAL)
    assert not refusals.forgives(header(PRODUCERS_MAX, 1), REFUSAL)
