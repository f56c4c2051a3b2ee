"""One seed, one story: a cluster, some faults of its own, and users who go on regardless."""

from millpond.core.raft.membership import AddLearner, Change, PromoteLearner, RemoveNode
from millpond.core.raft.raft import Raft
from tests.core.raft.cluster import SETTINGS, Cluster, Node, void

CHAOS_S = 12.0
HEALED_S = 40.0
"""Twenty of the longest election timeouts: far more than an election with everybody well ever takes."""


class Chaos:
    def __init__(self, seed: int, machine: type[Raft] = Raft) -> None:
        voters = (3, 3, 3, 5, 2, 1, 4)[seed % 7]
        lease_reads = seed % 3 != 0
        settings = type(SETTINGS)(
            **{name: getattr(SETTINGS, name) for name in SETTINGS.__slots__} | {"lease_reads": lease_reads}
        )
        self.cluster = Cluster(seed, nodes=5, voters=voters, settings=settings, machine=machine)
        self.rng = self.cluster.rng
        self.tokens = 0
        rng, cluster = self.rng, self.cluster
        cluster.disk_s_max = rng.choice((0.005, 0.05, 0.4))
        network = cluster.network
        network.late = rng.choice((0.0, 0.0, 0.1, 0.3))
        network.lost = rng.choice((0.0, 0.05, 0.2))
        network.doubled = rng.choice((0.0, 0.1))
        cluster.crash_after_persist = rng.choice((0.0, 0.0, 0.02))
        self._pace_s = rng.choice((0.05, 0.15))
        self._weights = {
            self.propose: 10,
            self.read: 4,
            self.crash: rng.choice((0, 1, 2)),
            self.restart: 2,
            self.cut: rng.choice((0, 1, 2)),
            self.mend: 1,
            self.change: rng.choice((0, 1, 3)),
            self.transfer: rng.choice((0, 0, 1)),
            self.compact: rng.choice((0, 1)),
        }

    def run(self) -> int:
        """Returns how many entries were committed."""
        self._next()
        self.cluster.run_until(CHAOS_S)
        self._recover()
        return self.cluster.committed.newest

    def _next(self) -> None:
        if self.cluster.now < CHAOS_S:
            (what,) = self.rng.choices(list(self._weights), list(self._weights.values()))
            what()
            self.cluster.at(self.cluster.now + self.rng.uniform(0.0, 2 * self._pace_s), self._next)

    def _any(self, *, alive: bool = True) -> Node | None:
        nodes = [node for node in self.cluster.nodes.values() if node.alive is alive]
        return self.rng.choice(nodes) if nodes else None

    def _leader(self) -> Node | None:
        """Mostly the leader, sometimes one who only believes so, or a stranger."""
        return self.cluster.leader() if self.rng.random() < 0.8 else self._any()

    def propose(self) -> None:
        if node := self._leader():
            self.cluster.propose(node, self.rng.randbytes(self.rng.randrange(0, 12)))

    def read(self) -> None:
        if node := self._leader() if self.rng.random() < 0.5 else self._any():
            self.tokens += 1
            self.cluster.read(node, self.tokens)

    def crash(self) -> None:
        if node := self._leader():
            self.cluster.crash(node)

    def restart(self) -> None:
        if node := self._any(alive=False):
            self.cluster.start(node)

    def cut(self) -> None:
        cut = self.cluster.network.cut
        nodes = list(self.cluster.nodes)
        match self.rng.randrange(0, 3):
            case 0:
                cut.add((self.rng.choice(nodes), self.rng.choice(nodes)))  # one way only
            case 1:
                alone = leader.node_id if (leader := self._leader()) else self.rng.choice(nodes)
                cut |= {pair for each in nodes for pair in ((alone, each), (each, alone))}
            case _:
                side = set(self.rng.sample(nodes, 2))
                cut |= {(a, b) for a in nodes for b in nodes if (a in side) != (b in side)}

    def mend(self) -> None:
        self.cluster.network.cut.clear()

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
