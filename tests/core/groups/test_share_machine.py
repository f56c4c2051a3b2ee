"""A share group under anything its members, the clock and a restart may do; its invariants hold at each step."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import TopicIdPartition
from millpond.core.groups.share import State
from tests.core.groups.consumer_conversation import topics
from tests.core.groups.share_conversation import ShareConversation

NAMES = st.sampled_from(["ana", "ben", "cid", "dora", "ed", "fay"])
SUBSCRIPTIONS = st.sampled_from([("a",), ("a", "b"), ("b", "c")])
TOPICS = st.fixed_dictionaries({}, optional={name: st.integers(1, 5) for name in "abc"})


class ShareGroupMachine(RuleBasedStateMachine):
    @initialize(sizes=TOPICS)
    def start(self, sizes: dict[str, int]) -> None:
        self.talk = ShareConversation(topics(**sizes))
        self.epoch_seen = 0
        self.behind: set[str] = set()
        """Whose last answer was lost: they know less than the coordinator thinks."""

    @rule(name=NAMES, subscription=SUBSCRIPTIONS)
    def joins(self, name: str, subscription: tuple[str, ...]) -> None:
        assert self.talk.join(name, *subscription) is GroupError.NONE
        self._heard(name)

    @rule(name=NAMES, is_lost=st.integers(0, 4), subscription=st.none() | SUBSCRIPTIONS)
    def heartbeats(self, name: str, is_lost: int, subscription: tuple[str, ...] | None) -> None:
        epoch = self.talk.readers[name].epoch if name in self.talk.readers else 0
        if not epoch:
            return
        wanted = None if subscription is None else frozenset(subscription)
        lost = is_lost == 0
        result = self.talk.say(name, name, is_lost=lost, member_epoch=epoch, topics=wanted)
        assert result.error in {GroupError.NONE, GroupError.UNKNOWN_MEMBER_ID, GroupError.FENCED_MEMBER_EPOCH}
        if lost:
            self.behind.add(name)
        elif result.error is GroupError.NONE:
            self._heard(name)

    @rule(name=NAMES)
    def leaves(self, name: str) -> None:
        is_member = name in self.talk.group.members
        expected = GroupError.NONE if is_member else GroupError.UNKNOWN_MEMBER_ID
        assert self.talk.leave(name) is expected
        self.behind.discard(name)

    @rule(sizes=TOPICS)
    def topics_change(self, sizes: dict[str, int]) -> None:
        before = self.talk.topics
        grown = {name: max(size, before[name].partitions if name in before else 0) for name, size in sizes.items()}
        self.talk.change_topics(**grown)

    @rule(ms=st.sampled_from([1, 1_000, 20_000, 46_000]))
    def time_passes(self, ms: int) -> None:
        self.talk.wait(ms)

    @rule()
    def the_coordinator_restarts(self) -> None:
        if self.talk.kept_group is None:
            return
        group = self.talk.group
        before = group.epoch, group.state, {name: each.record("g") for name, each in group.members.items()}
        self.talk.restart()
        group = self.talk.group
        assert (group.epoch, group.state, {name: each.record("g") for name, each in group.members.items()}) == before

    def _heard(self, name: str) -> None:
        """Whoever heard an answer reads what it should."""
        self.behind.discard(name)
        assert self.talk.readers[name].reads == self.talk.group.members[name].target

    @invariant()
    def every_partition_subscribed_to_is_in_somebodys_target_and_everybody_has_work(self) -> None:
        members, known = self.talk.group.members.values(), self.talk.topics
        for member in members:
            wanted = _partitions(self.talk, member.topics & known.keys())
            assert member.target <= wanted
            assert bool(member.target) == bool(wanted)
        names = self.talk.group.subscribed_topics()
        assert frozenset[TopicIdPartition]().union(*(member.target for member in members)) == _partitions(
            self.talk, names
        )

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self.talk.group
        assert group.epoch >= self.epoch_seen
        self.epoch_seen = group.epoch
        assert all(member.epoch <= group.epoch for member in group.members.values())

    @invariant()
    def what_is_kept_is_what_is(self) -> None:
        group = self.talk.group
        assert self.talk.kept == {name: each.record("g") for name, each in group.members.items()}
        kept = self.talk.kept_group
        assert (group.epoch, group.changed_at) == ((kept.epoch, kept.changed_at) if kept else (0, group.changed_at))

    @invariant()
    def who_was_answered_reads_what_it_was_told(self) -> None:
        for name, member in self.talk.group.members.items():
            if name not in self.behind and self.talk.readers[name].epoch == member.epoch:
                assert self.talk.readers[name].reads == member.assigned

    @invariant()
    def every_member_has_a_session_and_the_state_says_whether_there_is_one(self) -> None:
        group = self.talk.group
        assert (group.next_deadline is not None) == bool(group.members)
        assert group.state is (State.STABLE if group.members else State.EMPTY)


def _partitions(talk: ShareConversation, names: frozenset[str]) -> frozenset[TopicIdPartition]:
    return frozenset(
        TopicIdPartition(talk.topics[name].topic_id, number)
        for name in names
        for number in range(talk.topics[name].partitions)
    )


def test_a_share_group_keeps_its_invariants() -> None:
    run_state_machine_as_test(ShareGroupMachine, settings=settings(max_examples=100, stateful_step_count=40))


@pytest.mark.slow
def test_a_share_group_keeps_its_invariants_for_long() -> None:
    run_state_machine_as_test(ShareGroupMachine, settings=settings(max_examples=200, stateful_step_count=80))
