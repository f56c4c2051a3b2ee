"""A consumer group under anything its members, the clock and a restart may do; its invariants hold at each step."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from millpond.core.groups.assignors import ASSIGNORS
from millpond.core.groups.classic_events import Tick
from millpond.core.groups.consumer import ConsumerGroup, State
from millpond.core.groups.consumer_events import (
    AWAY,
    LEAVING,
    ConsumerEvent,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    TopicsChanged,
)
from millpond.core.groups.effects import Effect, Persist, Reply, Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import (
    ConsumerGroupRecord,
    ConsumerMemberForgotten,
    ConsumerMemberRecord,
    TopicIdPartition,
)
from millpond.core.groups.settings import GroupSettings
from tests.core.groups.consumer_conversation import topics
from tests.core.groups.conversation import Ids, instant

NAMES = st.sampled_from(["ana", "ben", "cid", "i-dora", "i-ed"])
SUBSCRIPTIONS = st.sampled_from([("a",), ("a", "b"), ("b", "c"), ()])
ASSIGNOR_NAMES = st.sampled_from([None, *ASSIGNORS])
TOPICS = st.fixed_dictionaries({}, optional={name: st.integers(1, 5) for name in "abc"})


@dataclass
class Process:
    """A client's process. `reads` is what it really reads: it must never be what another member reads."""

    name: str
    lives: int = 0
    epoch: int = 0
    reads: frozenset[TopicIdPartition] = frozenset()
    may_read: frozenset[TopicIdPartition] = frozenset()
    """What it was assigned last; it gives up the rest in its own time."""
    missed: bool = False
    """An answer got lost: the next heartbeat says everything, and so is told everything."""
    topics: frozenset[str] = frozenset()

    @property
    def instance_id(self) -> str | None:
        return self.name if self.name.startswith("i-") else None

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.lives}"


class ConsumerGroupMachine(RuleBasedStateMachine):
    @initialize(sizes=TOPICS)
    def start(self, sizes: dict[str, int]) -> None:
        self.ids = Ids()
        self.now_ms = 0
        self.settings = GroupSettings()
        self.topics = topics(**sizes)
        self.group = ConsumerGroup("g", self.settings, self.ids, self.topics, now=instant(0))
        self.processes: dict[str, Process] = {}
        self.tokens = 0
        self.kept: dict[str, ConsumerMemberRecord] = {}
        self.kept_group: ConsumerGroupRecord | None = None
        self.epoch_seen = 0

    # What members do

    @rule(name=NAMES, subscription=SUBSCRIPTIONS, regex=st.sampled_from([None, None, "[ab]"]), assignor=ASSIGNOR_NAMES)
    def joins(self, name: str, subscription: tuple[str, ...], regex: str | None, assignor: str | None) -> None:
        process = self._process(name)
        process.reads = process.may_read = frozenset()
        process.topics = frozenset(subscription)
        self._say(
            process,
            member_epoch=0,
            instance_id=process.instance_id,
            rebalance_timeout_ms=20_000,
            topics=process.topics,
            regex=regex,
            assignor=assignor,
            owned=frozenset(),
        )

    @rule(name=NAMES, works_on=st.booleans(), answer_lost=st.integers(0, 5))
    def heartbeats(self, name: str, works_on: bool, answer_lost: int) -> None:
        process = self._process(name)
        if not process.epoch:
            return
        if works_on:
            process.reads = process.may_read
        said = self._everything(process) if process.missed else {"owned": process.reads if works_on else None}
        self._say(process, answer_lost=not answer_lost, member_epoch=process.epoch, **said)

    @rule(name=NAMES, subscription=SUBSCRIPTIONS)
    def subscribes_anew(self, name: str, subscription: tuple[str, ...]) -> None:
        process = self._process(name)
        if process.epoch:
            process.topics = frozenset(subscription)
            said = self._everything(process) if process.missed else {"topics": process.topics}
            self._say(process, member_epoch=process.epoch, **said)

    @staticmethod
    def _everything(process: Process) -> dict[str, object]:
        return {"owned": process.reads, "topics": process.topics, "rebalance_timeout_ms": 20_000}

    @rule(name=NAMES)
    def leaves(self, name: str) -> None:
        process = self._process(name)
        self._say(process, member_epoch=LEAVING, instance_id=process.instance_id)
        process.reads = process.may_read = frozenset()

    @rule(name=NAMES, says_so=st.booleans())
    def is_started_again(self, name: str, says_so: bool) -> None:
        """A new process with a new id; a static one may have said that it will be back."""
        process = self._process(name)
        if says_so and process.instance_id is not None:
            self._say(process, member_epoch=AWAY, instance_id=process.instance_id)
        process.lives, process.epoch = process.lives + 1, 0
        process.reads = process.may_read = frozenset()

    # What happens to all of them

    @rule(sizes=TOPICS)
    def topics_change(self, sizes: dict[str, int]) -> None:
        grown = {
            name: max(size, self.topics[name].partitions if name in self.topics else 0) for name, size in sizes.items()
        }
        self.topics = topics(**grown)
        self._step(TopicsChanged(self.topics))

    @rule(ms=st.sampled_from([1, 700, 10_000, 21_000, 46_000]))
    def time_passes(self, ms: int) -> None:
        until = self.now_ms + ms
        while (due := self.group.next_deadline) is not None and due <= until:
            self.now_ms = max(due, self.now_ms)
            self._step(Tick())
            later = self.group.next_deadline
            assert later is None or later > self.now_ms, "what is due has happened"
        self.now_ms = until

    @rule()
    def the_coordinator_restarts(self) -> None:
        if self.kept_group is None:
            return
        before = {name: each.record("g") for name, each in self.group.members.items()}
        epoch_before, state_before = self.group.epoch, self.group.state
        self.group = ConsumerGroup.restore(
            self.kept_group, self.kept.values(), self.settings, self.ids, self.topics, now=instant(self.now_ms)
        )
        assert {name: each.record("g") for name, each in self.group.members.items()} == before
        assert (self.group.epoch, self.group.state) == (epoch_before, state_before)

    @rule()
    def all_is_quiet_for_a_while(self) -> None:
        """Everybody heartbeats and does as told: then everybody has what it should, within four rounds."""
        for _ in range(4):
            for name in list(self.processes):
                self.heartbeats(name, True, 1)
        present = {process.member_id for process in self.processes.values() if process.epoch > 0}
        if self.group.members.keys() <= present:
            assert self.group.state in {State.STABLE, State.EMPTY}
            for process in self.processes.values():
                if process.member_id in self.group.members:
                    assert process.may_read == self.group.members[process.member_id].target

    def _process(self, name: str) -> Process:
        return self.processes.setdefault(name, Process(name))

    def _say(self, process: Process, *, answer_lost: bool = False, **said: object) -> None:
        self.tokens += 1
        event = ConsumerHeartbeat(token=Token(self.tokens), member_id=process.member_id, **said)  # type: ignore[arg-type]
        member = self.group.members.get(process.member_id)
        told_to_give_up = member.revoking if member else frozenset[TopicIdPartition]()
        (result,) = [each.result for each in self._step(event) if isinstance(each, Reply)]
        assert isinstance(result, ConsumerHeartbeatResult)
        process.missed = answer_lost
        if answer_lost:
            return
        if result.error is GroupError.NONE:
            self._obey(process, result, told_to_give_up)
        elif result.error in {GroupError.FENCED_MEMBER_EPOCH, GroupError.UNKNOWN_MEMBER_ID}:
            process.epoch = 0
            process.reads = process.may_read = frozenset()

    def _obey(
        self, process: Process, result: ConsumerHeartbeatResult, told_to_give_up: frozenset[TopicIdPartition]
    ) -> None:
        process.epoch = max(result.member_epoch, 0)
        if result.assignment is None or result.member_epoch < 0:
            return
        # Nobody is told to stop reading what it should have; though what it was told before it may hear late.
        given_up = process.reads - result.assignment - told_to_give_up
        assert not given_up & self.group.members[process.member_id].target
        process.may_read = result.assignment
        process.reads |= result.assignment  # at once; what it gives up, it goes on reading until it says so

    def _step(self, event: ConsumerEvent) -> list[Effect]:
        effects = self.group.step(event, now=instant(self.now_ms))
        for effect in effects:
            if isinstance(effect, Persist):
                match effect.record:
                    case ConsumerGroupRecord():
                        self.kept_group = effect.record
                    case ConsumerMemberRecord():
                        self.kept[effect.record.member_id] = effect.record
                    case ConsumerMemberForgotten():
                        del self.kept[effect.record.member_id]
        return effects

    # Invariants

    @invariant()
    def a_partition_is_read_by_one_member(self) -> None:
        """Of those who are members: one that was expired finds out with its next heartbeat."""
        read = [
            each
            for process in self.processes.values()
            if process.member_id in self.group.members
            for each in process.reads
        ]
        assert len(set(read)) == len(read)

    @invariant()
    def a_partition_is_held_by_one_member_and_is_in_one_target(self) -> None:
        members = self.group.members.values()
        held = [each for member in members for each in (*member.assigned, *member.revoking)]
        assert len(set(held)) == len(held)
        targets = [each for member in members for each in member.target]
        assert len(set(targets)) == len(targets)

    @invariant()
    def targets_cover_what_is_subscribed(self) -> None:
        targets = {each for member in self.group.members.values() for each in member.target}
        names = self.group.subscribed_topics()
        wanted = {
            TopicIdPartition(self.topics[name].topic_id, number)
            for name in names
            for number in range(self.topics[name].partitions)
        }
        assert targets == wanted

    @invariant()
    def epochs_only_grow(self) -> None:
        assert self.group.epoch >= self.epoch_seen
        self.epoch_seen = self.group.epoch
        assert all(member.epoch <= self.group.epoch for member in self.group.members.values())

    @invariant()
    def what_is_kept_is_what_is(self) -> None:
        assert self.kept == {name: each.record("g") for name, each in self.group.members.items()}
        assert self.group.epoch == (self.kept_group.epoch if self.kept_group else 0)

    @invariant()
    def every_member_has_a_session(self) -> None:
        assert (self.group.next_deadline is not None) == bool(self.group.members)


def test_a_consumer_group_keeps_its_invariants() -> None:
    run_state_machine_as_test(ConsumerGroupMachine, settings=settings(max_examples=100, stateful_step_count=40))


@pytest.mark.slow
def test_a_consumer_group_keeps_its_invariants_for_long() -> None:
    run_state_machine_as_test(ConsumerGroupMachine, settings=settings(max_examples=200, stateful_step_count=80))
