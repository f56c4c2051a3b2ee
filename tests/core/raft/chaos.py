"""One seed, one story: a cluster, the faults its profile likes, and users who go on regardless.

A profile is a kind of bad day. Each makes one family of mistakes likely to show: late messages and slow disks for
elections, lopsided links and clocks at their limits for leases, and so on.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from millpond.core.raft.membership import AddLearner, Change, PromoteLearner, RemoveNode
from millpond.core.raft.output import Role
from millpond.core.raft.raft import Raft
from tests.core.raft.cluster import SETTINGS, Cluster, Node, void

HEALED_S: Final = 40.0
"""Twenty of the longest election timeouts: far more than an election with everybody well ever takes."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What the world is like; and how often users and faults do each thing, relative to the others of their kind."""

    name: str
    chaos_s: float = 25.0
    voters: tuple[int, ...] = (3, 3, 5, 2, 1, 4)
    election_timeout_s_max: float = 1.5
    lease_reads: bool = True
    late: float = 0.0
    lost: float = 0.02
    doubled: float = 0.0
    lopsided: bool = False
    delay_s_max: float = 0.05
    disk_s_max: float = 0.05
    disk_stalls: float = 0.0
    crash_after_persist: float = 0.0

    user_pace_s: float = 0.1
    propose: int = 10
    read: int = 3
    change: int = 0
    transfer: int = 0
    compact: int = 0

    fault_pace_s: float = 1.0
    crash: int = 1
    bounce: int = 1
    cut: int = 3


PROFILES: Final = (
    Profile(name="everything", late=0.1, lost=0.05, doubled=0.05, change=1, transfer=1, compact=1),
    Profile(
        name="elections",
        voters=(3, 3, 4, 5),
        election_timeout_s_max=1.2,
        late=0.3,
        doubled=0.2,
        disk_s_max=0.3,
        disk_stalls=0.05,
        crash_after_persist=0.02,
        fault_pace_s=0.7,
    ),
    Profile(
        name="leases",
        voters=(3,),
        election_timeout_s_max=1.1,
        lopsided=True,
        disk_s_max=0.005,
        lost=0.0,
        user_pace_s=0.3,
        read=5,
        transfer=1,
        crash=0,
        bounce=3,
        cut=5,
    ),
    Profile(
        name="clocks",
        voters=(3,),
        election_timeout_s_max=1.05,
        delay_s_max=0.004,
        disk_s_max=0.001,
        lost=0.0,
        user_pace_s=0.3,
        fault_pace_s=0.8,
        crash=0,
        bounce=3,
        cut=3,
    ),
    Profile(name="transfers", voters=(3, 5), late=0.2, lost=0.1, doubled=0.2, transfer=5, election_timeout_s_max=1.2),
    Profile(
        name="reads",
        voters=(3, 5),
        election_timeout_s_max=1.1,
        lease_reads=False,
        late=0.2,
        lopsided=True,
        disk_s_max=0.005,
        user_pace_s=0.06,
        read=10,
        crash=0,
        bounce=0,
    ),
    Profile(name="members", voters=(1, 2, 3, 4), late=0.1, propose=3, change=8, transfer=1, disk_s_max=0.2),
    Profile(name="snapshots", late=0.1, lost=0.1, compact=4, change=1, disk_s_max=0.3, disk_stalls=0.05),
)


class Chaos:
    def __init__(self, seed: int, machine: type[Raft] = Raft) -> None:
        self.profile = profile = PROFILES[seed % len(PROFILES)]
        voters = profile.voters[seed // len(PROFILES) % len(profile.voters)]
        settings = replace(
            SETTINGS, election_timeout_s_max=profile.election_timeout_s_max, lease_reads=profile.lease_reads
        )
        self.cluster = cluster = Cluster(
            seed, nodes=max(3, voters) + (profile.change > 0), voters=voters, settings=settings, machine=machine
        )
        self.rng = rng = cluster.rng
        self.news = random.Random(seed)
        """Who learns that a leader is gone, and when."""
        self.tokens = 0
        cluster.disk_s_max = rng.choice((0.005, profile.disk_s_max))
        cluster.disk_stalls = profile.disk_stalls
        cluster.network.delay_s_max = profile.delay_s_max
        cluster.crash_after_persist = profile.crash_after_persist
        cluster.network.late = rng.choice((profile.late, profile.late / 2))
        cluster.network.lost = profile.lost
        cluster.network.doubled = profile.doubled
        if profile.lopsided:
            self._tilt()
        self._users = {
            self.propose: profile.propose,
            self.read: profile.read,
            self.change: profile.change,
            self.transfer: profile.transfer,
            self.compact: profile.compact,
        }
        self._faults = {self.crash: profile.crash, self.bounce: profile.bounce, self.cut: profile.cut}

    def run(self) -> int:
        """Returns how many entries were committed."""
        self._go_on(self._users, self.profile.user_pace_s)
        self._go_on(self._faults, self.profile.fault_pace_s)
        self.cluster.run_until(self.profile.chaos_s)
        self._recover()
        return self.cluster.committed.newest

    def _go_on(self, actions: dict[Callable[[], None], int], pace_s: float) -> None:
        if self.cluster.now < self.profile.chaos_s:
            (what,) = self.rng.choices(list(actions), list(actions.values()))
            what()
            wait_s = self.rng.uniform(0.0, 2 * pace_s)
            self.cluster.at(self.cluster.now + wait_s, lambda: self._go_on(actions, pace_s))

    def _tilt(self) -> None:
        """Some links become slow, one way only."""
        nodes = list(self.cluster.nodes)
        slow_s = self.cluster.settings.election_timeout_s_min
        for pair in ((a, b) for a in nodes for b in nodes):
            if self.rng.random() < 0.3:
                self.cluster.network.slow[pair] = self.rng.uniform(0.2 * slow_s, 0.9 * slow_s)

    def _any(self) -> Node | None:
        nodes = [node for node in self.cluster.nodes.values() if node.alive]
        return self.rng.choice(nodes) if nodes else None

    def _leader(self) -> Node | None:
        """One who believes to lead; sometimes a stranger."""
        leaders = [node for node in self.cluster.nodes.values() if node.alive and node.raft.role is Role.LEADER]
        return self.rng.choice(leaders) if leaders and self.rng.random() < 0.9 else self._any()

    def propose(self) -> None:
        if node := self._leader():
            self.cluster.propose(node, self.rng.randbytes(self.rng.randrange(0, 12)))

    def read(self) -> None:
        if node := self._leader():
            self.tokens += 1
            self.cluster.read(node, self.tokens)

    def crash(self) -> None:
        if node := self._leader():
            self._end(node)
            self.cluster.at(self.cluster.now + self.rng.uniform(0.0, 4.0), lambda: self._restart(node))

    def bounce(self) -> None:
        """A restart so quick that nobody notices."""
        if node := self._any():
            self._end(node)
            self.cluster.start(node)

    def _end(self, node: Node) -> None:
        """Some of the others learn that a leader's process has ended, sooner or later; it may be back by then."""
        leader, term, led = node.node_id, node.raft.term, node.raft.role is Role.LEADER
        self.cluster.crash(node)
        for other in self.cluster.nodes.values():
            if led and other is not node and self.news.random() < 0.5:
                self.cluster.at(
                    self.cluster.now + self.news.choice((0.05, 0.2, 2.0)) * self.news.random(),
                    lambda other=other: self._learn(other, leader, term),  # type: ignore[misc]
                )

    def _learn(self, node: Node, leader: int, term: int) -> None:
        if node.alive:
            self.cluster.tell(f"{node.node_id} learns that {leader}, which led term {term}, is gone")
            self.cluster.give(node, lambda raft, now: raft.leader_gone(leader, term, now))

    def _restart(self, node: Node) -> None:
        if not node.alive:
            self.cluster.start(node)

    def cut(self) -> None:
        """Some pairs hear nothing of each other for a while; mostly the leader is among them."""
        nodes = list(self.cluster.nodes)
        leader = node.node_id if (node := self._leader()) else self.rng.choice(nodes)
        to_leader = {(each, leader) for each in nodes}
        from_leader = {(leader, each) for each in nodes}
        one, other = self.rng.sample(nodes, 2)
        side = {one, other}
        pairs = self.rng.choice(
            (
                to_leader,
                from_leader,
                to_leader | from_leader,
                {(leader, other), (other, leader)},
                {(one, other), (other, one)},
                {(a, b) for a in nodes for b in nodes if (a in side) != (b in side)},
            )
        )
        self.cluster.network.cut += list(pairs)
        timeout_s = self.cluster.settings.election_timeout_s_max
        self.cluster.at(self.cluster.now + self.rng.uniform(0.3, 2.5) * timeout_s, lambda: self._mend(pairs))

    def _mend(self, pairs: set[tuple[int, int]]) -> None:
        if self.cluster.network.cut:
            for pair in pairs:
                self.cluster.network.cut.remove(pair)

    def change(self) -> None:
        node = self._leader()
        if node is None:
            return
        target = self.rng.choice(list(self.cluster.nodes))
        members = node.raft.membership
        change: Change = AddLearner(target)
        if target in members.learners:
            change = PromoteLearner(target)
        elif target in members.voters:
            change = RemoveNode(target)
        self.cluster.give(node, lambda raft, now: void(raft.change_membership(change, now)))

    def transfer(self) -> None:
        if node := self._leader():
            to = self.rng.choice([None, *self.cluster.nodes])
            self.cluster.give(node, lambda raft, now: void(raft.transfer(to, now)))

    def compact(self) -> None:
        if node := self._any():
            self.cluster.compact(node, self.rng.choice((0, 3)))

    def _recover(self) -> None:
        """Liveness: with everybody well, a leader appears, and what it is asked to keep reaches every voter."""
        cluster = self.cluster
        cluster.heal()
        proposed = [0]

        def is_well() -> bool:
            leader = cluster.leader()
            if leader is None:
                return False
            if proposed[0] <= leader.raft.commit and leader.raft.log.term_at(proposed[0]) == leader.raft.term:
                voters = leader.raft.membership.voters
                return all(cluster.nodes[voter].applied_index >= proposed[0] for voter in voters)
            if proposed[0] == 0 or leader.raft.log.term_at(proposed[0]) != leader.raft.term:
                cluster.propose(leader, b"well")
                if leader.raft.log.last_term == leader.raft.term:
                    proposed[0] = leader.raft.log.last_index
            return False

        assert cluster.run_until(cluster.now + HEALED_S, unless=is_well), "Liveness: no leader, or it cannot commit"


def run_seed(seed: int, machine: type[Raft] = Raft) -> Chaos:
    chaos = Chaos(seed, machine)
    chaos.run()
    return chaos
