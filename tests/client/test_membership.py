"""Members of a group against the coordinator's own machine, over a network that loses questions and answers."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.client.membership import FENCED_CODES, Heartbeat, Membership, Place, State, Subscription
from millpond.client.retries import Backoff
from millpond.core.groups.consumer import ConsumerGroup
from millpond.core.groups.consumer_events import ConsumerHeartbeat, ConsumerHeartbeatResult, Topic
from millpond.core.groups.effects import Reply, Token
from millpond.core.groups.records import TopicIdPartition
from millpond.core.groups.settings import GroupSettings
from millpond.model.errors import RefusedByBroker
from millpond.model.instant import Instant

TOPIC_ID = b"t" * 16
PARTITIONS = 5
ALL = frozenset(Place(TOPIC_ID, number) for number in range(PARTITIONS))


class Member:
    def __init__(self, name: str) -> None:
        self.name = name
        self.machine = Membership(
            Subscription(frozenset({"orders"})), is_static=False, backoff=Backoff(), rng=random.Random(0)
        )
        self.is_gone = False


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.group = ConsumerGroup(
            "kitchen",
            GroupSettings(),
            lambda _: "never asked",
            {"orders": Topic(TOPIC_ID, PARTITIONS)},
            now=self.instant(),
        )
        self.members: list[Member] = []

    def instant(self) -> Instant:
        return Instant(monotonic_ms=int(self.now * 1000), wall_ms=int(self.now * 1000))

    def join(self) -> None:
        self.members.append(Member(f"member-{len(self.members)}"))

    def beat(self, member: Member, *, loses: str | None = None) -> None:
        heartbeat = member.machine.due(now=self.now)
        if heartbeat is None:
            return
        result = None if loses == "question" else self.ask(member, heartbeat)
        if result is None or loses == "answer":
            member.machine.unanswered(now=self.now)
        elif result.error:
            member.machine.refused(int(result.error), result.message, of="kitchen", now=self.now)
        else:
            assigned = result.assignment
            member.machine.answered(
                epoch=result.member_epoch,
                interval_seconds=result.heartbeat_interval_ms / 1000,
                assignment=None if assigned is None else frozenset(Place(*each) for each in assigned),
                now=self.now,
            )

    def ask(self, member: Member, heartbeat: Heartbeat) -> ConsumerHeartbeatResult:
        owned = heartbeat.owned
        event = ConsumerHeartbeat(
            token=Token(0),
            member_id=member.name,
            member_epoch=heartbeat.epoch,
            rebalance_timeout_ms=-1 if heartbeat.subscription is None else 300_000,
            topics=None if heartbeat.subscription is None else heartbeat.subscription.topics,
            owned=None if owned is None else frozenset(TopicIdPartition(*each) for each in owned),
        )
        (result,) = [each.result for each in self.group.step(event, now=self.instant()) if isinstance(each, Reply)]
        assert isinstance(result, ConsumerHeartbeatResult)
        return result

    def leave(self, member: Member) -> None:
        farewell = member.machine.leave()
        if farewell is not None:
            self.ask(member, farewell)
        member.is_gone = True
        member.machine.owned = frozenset()

    @property
    def here(self) -> list[Member]:
        return [each for each in self.members if not each.is_gone]

    def check(self) -> None:
        owned = [place for each in self.here for place in each.machine.owned]
        assert len(owned) == len(set(owned)), "two members own one partition"


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["join", "beat", "beat", "beat", "own", "own", "lose question", "lose answer", "leave"]),
        st.integers(0, 3),
    ),
    max_size=80,
)


@given(EVENTS)
@settings(max_examples=300)
def test_no_two_members_own_one_partition_and_in_calm_all_are_owned(events: list[tuple[str, int]]) -> None:
    world = World()
    world.join()
    for event, number in events:
        world.now += 1.0
        here = world.here
        if event == "join" or not here:
            if len(here) < 4:
                world.join()
            continue
        member = here[number % len(here)]
        match event:
            case "beat":
                world.beat(member)
            case "lose question" | "lose answer":
                world.beat(member, loses=event.split()[1])
            case "own" if member.machine.target is not None:
                member.machine.own(member.machine.target)
            case "leave":
                world.leave(member)
        world.check()
    if not world.here:
        world.join()
    for _ in range(30):
        world.now += 1.0
        for member in world.here:
            if member.machine.target is not None:
                member.machine.own(member.machine.target)
            world.beat(member)
            world.check()
    assert frozenset().union(*(each.machine.owned for each in world.here)) == ALL
    assert all(each.machine.state is State.MEMBER for each in world.here)


def test_a_member_that_was_forgotten_owns_nothing_and_joins_again() -> None:
    world = World()
    world.join()
    (member,) = world.members
    world.beat(member)
    assert member.machine.target == ALL
    member.machine.own(ALL)
    assert member.machine.target is None
    code = min(FENCED_CODES)
    world.now += 10
    assert member.machine.due(now=world.now) is not None
    assert member.machine.refused(code, None, of="kitchen", now=world.now)
    assert member.machine.owned == frozenset()
    rejoin = member.machine.due(now=world.now)
    assert rejoin == Heartbeat(epoch=0, subscription=Subscription(frozenset({"orders"})), owned=frozenset())


def test_a_refusal_that_no_second_try_betters_ends_it() -> None:
    world = World()
    world.join()
    machine = world.members[0].machine
    assert machine.due(now=1.0) is not None
    assert not machine.refused(112, "there is no assignor best", of="group kitchen", now=1.0)
    assert machine.state is State.FAILED
    assert isinstance(machine.failure, RefusedByBroker)
    assert "group kitchen: there is no assignor best (UNSUPPORTED_ASSIGNOR)" in str(machine.failure)
    assert machine.next_at is None
