"""A classic group under anything its members, the clock and a restart may do, with its invariants held at each step."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from millpond.core.groups.classic import ClassicGroup, State
from millpond.core.groups.classic_events import (
    ClassicEvent,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    Leaving,
    SyncGroup,
    SyncResult,
    Tick,
)
from millpond.core.groups.effects import Effect, Persist, Reply, Token
from millpond.core.groups.errors import GroupError
from millpond.core.groups.records import ClassicGroupRecord
from millpond.core.groups.settings import GroupSettings
from tests.core.groups.conversation import Ids, instant

PARTITIONS = 5
NAMES = st.sampled_from(["ana", "ben", "cid", "i-dora", "i-ed"])
PROTOCOLS = st.sampled_from(
    [
        (("range", b""), ("sticky", b"")),
        (("sticky", b""), ("range", b"")),
        (("range", b"changed"), ("sticky", b"")),
        (("exotic", b""),),
    ]
)
SETTINGS = st.builds(
    GroupSettings,
    initial_rebalance_delay_ms=st.sampled_from([0, 100]),
    members_max=st.sampled_from([2, 100]),
    new_member_join_timeout_ms=st.sampled_from([300_000, 5_000]),
)


@dataclass
class Process:
    """A client's process, and what it believes."""

    name: str
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] = ()

    @property
    def instance_id(self) -> str | None:
        return self.name if self.name.startswith("i-") else None


class ClassicGroupMachine(RuleBasedStateMachine):
    @initialize(group_settings=SETTINGS)
    def start(self, group_settings: GroupSettings) -> None:
        self.settings = group_settings
        self.ids = Ids()
        self.now_ms = 0
        self.group = ClassicGroup("g", group_settings, self.ids, now=instant(0))
        self.processes: dict[str, Process] = {}
        self.pending: dict[Token, Process] = {}
        self.tokens = 0
        self.kept: ClassicGroupRecord | None = None
        self.generation_seen = 0
        self.assigned: dict[tuple[int, str], bytes] = {}

    # What members do

    @rule(name=NAMES, protocols=PROTOCOLS, old=st.booleans(), rebalance_ms=st.sampled_from([0, 1_000, 20_000]))
    def joins(self, name: str, protocols: tuple[tuple[str, bytes], ...], old: bool, rebalance_ms: int) -> None:
        process = self._process(name)
        event = JoinGroup(
            token=self._token(process),
            member_id=process.member_id,
            instance_id=process.instance_id,
            protocols=protocols,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=rebalance_ms,
            client_id=name,
            requires_known_member_id=not old,
            can_skip_assignment=not old,
        )
        self._step(event)

    @rule(names=st.lists(NAMES, min_size=2, max_size=4, unique=True))
    def some_come_together(self, names: list[str]) -> None:
        """As clients do it when nothing goes wrong; without this, two members of one generation are a rare sight."""
        protocols = (("range", b""), ("sticky", b""))
        for _ in range(3):
            for name in names:
                self.joins(name, protocols, False, 20_000)
        self.time_passes(300)
        for name in names:
            self.syncs(name)

    @rule(name=NAMES)
    def syncs(self, name: str) -> None:
        process = self._process(name)
        shares = dict.fromkeys(process.leads, b"")
        for number in range(PARTITIONS if shares else 0):
            shares[process.leads[number % len(shares)]] += b"%d " % number
        given = tuple((member_id, b"for " + member_id.encode() + b": " + share) for member_id, share in shares.items())
        self._step(
            SyncGroup(
                token=self._token(process),
                member_id=process.member_id,
                instance_id=process.instance_id,
                generation=process.generation,
                assignments=given,
            )
        )

    @rule(name=NAMES)
    def heartbeats(self, name: str) -> None:
        process = self._process(name)
        self._step(
            Heartbeat(
                token=self._token(process),
                member_id=process.member_id,
                instance_id=process.instance_id,
                generation=process.generation,
            )
        )

    @rule(name=NAMES, other=NAMES)
    def leave(self, name: str, other: str) -> None:
        process = self._process(name)
        leaving = [self._process(each) for each in (name, other)]
        members = tuple(Leaving(member_id=each.member_id, instance_id=each.instance_id) for each in leaving)
        self._step(LeaveGroup(token=self._token(process), members=members))

    @rule(name=NAMES)
    def is_started_again(self, name: str) -> None:
        self.processes[name] = Process(name)

    @rule(name=NAMES)
    def commits(self, name: str) -> None:
        process = self._process(name)
        error = self.group.admit_commit(
            member_id=process.member_id,
            instance_id=process.instance_id,
            generation=process.generation,
            now=instant(self.now_ms),
        )
        if error is GroupError.NONE and process.generation >= 0:
            assert process.generation == self.group.generation

    # What happens to all of them

    @rule(ms=st.sampled_from([1, 100, 1_000, 6_000, 11_000, 21_000]))
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
        if self.kept is not None:
            self.group = ClassicGroup.restore(self.kept, self.settings, self.ids, now=instant(self.now_ms))
            self.generation_seen = self.kept.generation
            self.pending.clear()

    def _process(self, name: str) -> Process:
        return self.processes.setdefault(name, Process(name))

    def _token(self, process: Process) -> Token:
        self.tokens += 1
        self.pending[Token(self.tokens)] = process
        return Token(self.tokens)

    def _step(self, event: ClassicEvent) -> None:
        for effect in self.group.step(event, now=instant(self.now_ms)):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Persist):
            assert isinstance(effect.record, ClassicGroupRecord)
            self.kept = effect.record
        elif isinstance(effect, Reply):
            process = self.pending.pop(effect.to)  # fails where a request is answered twice
            if isinstance(effect.result, JoinResult):
                self._hear_join(process, effect.result)
            elif isinstance(effect.result, SyncResult) and effect.result.error is GroupError.NONE:
                self._hear_sync(process, effect.result)

    def _hear_join(self, process: Process, result: JoinResult) -> None:
        if result.error in {GroupError.NONE, GroupError.MEMBER_ID_REQUIRED}:
            process.member_id, process.generation = result.member_id, result.generation
            process.leads = tuple(each.member_id for each in result.members)
        elif result.error is GroupError.UNKNOWN_MEMBER_ID:
            process.member_id = ""

    def _hear_sync(self, process: Process, result: SyncResult) -> None:
        """An assignment is kept before it is told, the same whenever it is asked for, and nobody else's."""
        assert self.kept is not None
        assert self.kept.generation == self.group.generation
        assert result.assignment in {each.assignment for each in self.kept.members}
        before = self.assigned.setdefault((self.group.generation, process.name), result.assignment)
        assert before == result.assignment
        of_generation = [
            assignment for (generation, _), assignment in self.assigned.items() if generation == self.group.generation
        ]
        assert len(set(of_generation)) == len(of_generation)

    # Invariants

    @invariant()
    def no_request_is_lost(self) -> None:
        held = {each.joining for each in self.group.members} | {each.syncing for each in self.group.members}
        assert self.pending.keys() == held - {None}
        if self.pending:
            assert self.group.next_deadline is not None

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.group.generation >= self.generation_seen
        self.generation_seen = self.group.generation

    @invariant()
    def every_member_of_a_stable_generation_has_one_assignment(self) -> None:
        if self.group.state is State.STABLE:
            shares = [member.assignment for member in self.group.members]
            assert all(shares)
            assert len(set(shares)) == len(shares)

    @invariant()
    def the_leader_is_a_member(self) -> None:
        if len(self.group.members):
            assert self.group.members.get(self.group.leader or "") is not None

    @invariant()
    def states_fit_the_members(self) -> None:
        if self.group.state is State.EMPTY:
            assert not len(self.group.members)
        if self.group.state in {State.STABLE, State.COMPLETING_REBALANCE}:
            assert len(self.group.members)
            assert self.group.protocol in self.group.members.shared_protocols()

    @invariant()
    def every_member_can_be_waited_for(self) -> None:
        """Each has a session, or waits for us; and a group that waits for anybody has a deadline."""
        if len(self.group.members):
            assert self.group.next_deadline is not None


def test_a_classic_group_keeps_its_invariants() -> None:
    run_state_machine_as_test(ClassicGroupMachine, settings=settings(max_examples=100, stateful_step_count=40))


@pytest.mark.slow
def test_a_classic_group_keeps_its_invariants_for_long() -> None:
    run_state_machine_as_test(ClassicGroupMachine, settings=settings(max_examples=200, stateful_step_count=80))
