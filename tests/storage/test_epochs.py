"""The history of leaders, against the tables of KIP-101 and KIP-279 and against a plain list of epochs."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millpond.model.ids import NO_EPOCH, LeaderEpoch, Offset
from millpond.storage.epochs import LeaderEpochs

NEVER = 2**63 - 1


def history(*pairs: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([(LeaderEpoch(epoch), Offset(start)) for epoch, start in pairs])


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, 0)),  # a log from before epochs
        (0, (0, 0)),  # older than anything here: cut to where the history begins
        (1, (1, 0)),
        (2, (2, 100)),  # known: it ended where the next began
        (3, (2, 100)),  # unknown: the one before it, where that ended
        (4, (2, 100)),
        (5, (5, 130)),
        (6, (5, 130)),
        (7, (7, 180)),  # the latest ends with the log
        (8, (-1, -1)),  # newer than anything here: the asker is ahead
    ],
)
def test_the_end_of_an_epoch_is_as_kip_101_and_kip_279_have_it(asked: int, answer: tuple[int, int]) -> None:
    epochs = history((2, 0), (5, 100), (7, 130))
    assert epochs.end_of(LeaderEpoch(asked), log_end=Offset(180)) == answer


@pytest.mark.parametrize("asked", [-1, 0, 5])
def test_a_log_without_a_history_knows_the_end_of_no_epoch(asked: int) -> None:
    assert history().end_of(LeaderEpoch(asked), log_end=Offset(10)) == (-1, -1)


def test_an_epoch_older_than_a_history_that_was_cut_in_front_ends_where_that_begins() -> None:
    epochs = history((2, 0), (5, 100), (7, 130)).forget_before(Offset(110))
    assert epochs.end_of(LeaderEpoch(2), log_end=Offset(180)) == (2, 110)


@pytest.mark.parametrize(
    ("offset", "answer"),
    [(0, (-1, 10)), (9, (-1, 10)), (10, (2, 100)), (99, (2, 100)), (100, (5, NEVER)), (10**9, (5, NEVER))],
)
def test_the_epoch_at_an_offset_comes_with_where_the_next_begins(offset: int, answer: tuple[int, int]) -> None:
    assert history((2, 10), (5, 100)).at(Offset(offset)) == answer


def test_the_latest_epoch_of_nobody_is_none() -> None:
    assert history().latest == NO_EPOCH
    assert history().at(Offset(0)) == (-1, NEVER)


def test_a_leader_that_wrote_nothing_leaves_no_trace() -> None:
    epochs = history((1, 0)).begin(LeaderEpoch(2), Offset(50)).begin(LeaderEpoch(3), Offset(50))
    assert epochs.pairs() == [(1, 0), (3, 50)]


def test_a_new_history_leaves_the_old_one_as_it_was_until_it_is_adopted() -> None:
    epochs = history((1, 0))
    longer = epochs.begin(LeaderEpoch(2), Offset(50))
    assert epochs.pairs() == [(1, 0)]
    epochs.adopt(longer)
    assert epochs.pairs() == [(1, 0), (2, 50)]


def test_an_epoch_that_goes_back_is_our_own_bug() -> None:
    with pytest.raises(AssertionError):
        history((5, 0)).begin(LeaderEpoch(4), Offset(10))


def test_truncating_at_the_start_of_an_epoch_forgets_it() -> None:
    assert history((1, 0), (2, 50)).truncate(Offset(50)).pairs() == [(1, 0)]
    assert history((1, 0), (2, 50)).truncate(Offset(51)).pairs() == [(1, 0), (2, 50)]
    assert history((1, 0), (2, 50)).truncate(Offset(0)).pairs() == []


def test_forgetting_the_front_keeps_the_epoch_that_reaches_into_the_rest() -> None:
    epochs = history((1, 0), (2, 50), (4, 80))
    assert epochs.forget_before(Offset(50)).pairs() == [(2, 50), (4, 80)]
    assert epochs.forget_before(Offset(60)).pairs() == [(2, 60), (4, 80)]
    assert epochs.forget_before(Offset(90)).pairs() == [(4, 90)]
    assert history((3, 70)).forget_before(Offset(20)).pairs() == [(3, 70)]


class EpochsMachine(RuleBasedStateMachine):
    """The model is a plain dict: the epoch of each offset that is left."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs = LeaderEpochs([])
        self.model: dict[int, int] = {}
        self.end = 0
        self.newest = -1

    @rule(step=st.integers(0, 2), count=st.integers(1, 5))
    def write(self, step: int, count: int) -> None:
        epoch = max(self.newest, 0) + step
        if epoch != self.epochs.latest:
            self.epochs = self.epochs.begin(LeaderEpoch(epoch), Offset(self.end))
        self.model |= dict.fromkeys(range(self.end, self.end + count), epoch)
        self.end += count
        self.newest = epoch

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        self.end = data.draw(st.integers(min(self.model), self.end), label="end")
        self.epochs = self.epochs.truncate(Offset(self.end))
        self.model = {offset: epoch for offset, epoch in self.model.items() if offset < self.end}
        self.newest = max(self.model.values(), default=-1)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def forget_before(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(min(self.model), self.end - 1), label="start")
        self.epochs = self.epochs.forget_before(Offset(start))
        self.model = {offset: epoch for offset, epoch in self.model.items() if offset >= start}

    @invariant()
    def every_offset_has_its_epoch(self) -> None:
        for offset, epoch in self.model.items():
            later = [each for each in self.model if each > offset and self.model[each] != epoch]
            assert self.epochs.at(Offset(offset)) == (epoch, min(later, default=NEVER))
        assert self.epochs.latest == self.newest

    @invariant()
    def epochs_and_offsets_ascend(self) -> None:
        pairs = self.epochs.pairs()
        assert all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(pairs))

    @invariant()
    def every_epoch_ends_where_a_newer_one_begins(self) -> None:
        for asked in range(-1, self.newest + 3):
            assert self.epochs.end_of(LeaderEpoch(asked), log_end=Offset(self.end)) == self.end_of(asked)

    def end_of(self, asked: int) -> tuple[int, int]:
        if not self.model or asked > self.newest:
            return -1, -1
        older = [epoch for epoch in self.model.values() if epoch <= asked]
        newer = [offset for offset, epoch in self.model.items() if epoch > asked]
        return max(older, default=asked), min(newer, default=self.end)


TestEpochsAgainstAPlainDict = EpochsMachine.TestCase
TestEpochsAgainstAPlainDict.settings = settings(max_examples=40, stateful_step_count=20)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), max_size=6))
def test_a_history_reads_back_from_its_pairs(steps: list[tuple[int, int]]) -> None:
    epochs, epoch, start = LeaderEpochs([]), LeaderEpoch(0), Offset(0)
    for epoch_step, offset_step in steps:
        epochs = epochs.begin(epoch, start)
        epoch, start = LeaderEpoch(epoch + epoch_step), Offset(start + offset_step)
    assert LeaderEpochs(epochs.pairs()).pairs() == epochs.pairs()
    assert len(epochs.pairs()) == len(steps)
