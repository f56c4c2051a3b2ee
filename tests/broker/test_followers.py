"""What a follower makes of a leader's answer."""

from millpond.broker.drivers.followers import _answer
from millpond.core.replication.following import DivergingEpoch, Truncate, follow
from millpond.model.ids import LeaderEpoch, Offset
from millpond.protocol.messages.fetch import EpochEndOffset, PartitionData
from millpond.storage.epochs import LeaderEpochs


def test_a_follower_of_a_leader_that_has_nothing_gives_up_all_it_has() -> None:
    history = LeaderEpochs([(LeaderEpoch(0), Offset(0))])
    answer = _answer(
        PartitionData(diverging_epoch=EpochEndOffset(epoch=-1, end_offset=0), high_watermark=0, log_start_offset=0)
    )
    assert answer.diverging == DivergingEpoch(LeaderEpoch(-1), Offset(0))
    assert follow(answer, history=history, log_start=Offset(0), log_end=Offset(1)) == Truncate(Offset(0))


def test_an_answer_that_names_no_difference_has_none() -> None:
    assert _answer(PartitionData(diverging_epoch=EpochEndOffset(epoch=-1, end_offset=-1))).diverging is None
    assert _answer(PartitionData(diverging_epoch=None)).diverging is None
