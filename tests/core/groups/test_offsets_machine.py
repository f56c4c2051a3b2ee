"""Committed offsets of several groups, against plain dicts: nothing changes them but a commit, a deletion, or time."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from millpond.core.groups.consumer_events import TopicsChanged
from millpond.core.groups.errors import GroupError
from millpond.model.ids import TopicPartition
from tests.core.groups.consumer_conversation import topics
from tests.core.groups.coordinator import A0, A1, B0, Coordinator

GROUPS = st.sampled_from(["g", "h"])
PLACES = st.sampled_from([A0, A1, B0])


class OffsetsMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.coordinator = Coordinator()
        self.model: dict[str, dict[TopicPartition, int]] = {"g": {}, "h": {}}
        self.classic: dict[str, str] = {}
        self.consuming: dict[str, int] = {}

    @rule(group=GROUPS, at=PLACES, offset=st.integers(0, 100), as_member=st.booleans(), stale=st.booleans())
    def commits(self, group: str, at: TopicPartition, offset: int, as_member: bool, stale: bool) -> None:
        member_id, generation = "", -1
        if as_member and group in self.classic:
            described = self.coordinator.registry.describe(group)
            member_id = self.classic[group]
            generation = getattr(described, "generation", 0) - stale
        elif as_member and group in self.consuming:
            member_id, generation = "ana", self.consuming[group] - stale
        busy = group in self.classic or group in self.consuming
        error = self.coordinator.commit(at, offset, group=group, member_id=member_id, generation=generation)
        assert (error is GroupError.NONE) == (not busy if not member_id else not stale)
        if error is GroupError.NONE:
            self.model[group][at] = offset

    @rule(group=GROUPS)
    def joins_classic(self, group: str) -> None:
        if group not in self.classic and group not in self.consuming:
            self.classic[group] = self.coordinator.join_classic(group)

    @rule(group=GROUPS)
    def joins_consumer(self, group: str) -> None:
        if group not in self.classic and group not in self.consuming:
            self.consuming[group] = self.coordinator.join_consumer(group).member_epoch

    @rule(group=GROUPS)
    def leaves(self, group: str) -> None:
        if group in self.classic:
            self.coordinator.leave_classic(self.classic.pop(group), group)
        elif group in self.consuming:
            self.coordinator.leave_consumer(group)
            del self.consuming[group]

    @rule(group=GROUPS)
    def is_deleted(self, group: str) -> None:
        if self.coordinator.delete(group) is GroupError.NONE:
            assert group not in self.classic
            assert group not in self.consuming
            self.model[group] = {}

    @rule()
    def topic_b_is_replaced(self) -> None:
        """It is deleted, and made again."""
        for sizes in ({"a": 2}, {"a": 2, "b": 1}):
            self.coordinator.topics = topics(**sizes)
            self.coordinator.step(TopicsChanged(self.coordinator.topics))
        for offsets in self.model.values():
            offsets.pop(B0, None)

    @rule()
    def the_coordinator_restarts(self) -> None:
        self.coordinator.restart()

    @rule()
    def a_minute_passes(self) -> None:
        """Sessions expire, offsets do not."""
        self.coordinator.wait(60_000)
        self.classic.clear()
        self.consuming.clear()

    @invariant()
    def offsets_are_what_was_committed(self) -> None:
        for group, offsets in self.model.items():
            assert {each.at: each.offset for each in self.coordinator.registry.committed(group)} == offsets


def test_committed_offsets_never_go_back_by_themselves() -> None:
    run_state_machine_as_test(OffsetsMachine, settings=settings(max_examples=60, stateful_step_count=40))
