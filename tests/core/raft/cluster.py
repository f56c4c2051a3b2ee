"""A cluster of Raft machines in one thread: a network, disks and clocks that do what the seed says.

Nothing here waits: time is a heap of things that will happen. Each node's disk finishes its persists in order, some
time after they were asked for; messages may be late, lost, doubled and out of order; a crash leaves what the disk had
finished, and a part of what it was doing. Everything is checked against `invariants.py` after each input.
"""

import heapq
import random
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from millpond.core.raft.durable import Entry, EntryKind, Snapshot
from millpond.core.raft.encoding import decode_message, encode_message
from millpond.core.raft.membership import Membership
from millpond.core.raft.messages import Message
from millpond.core.raft.output import Output, Persist, Role
from millpond.core.raft.raft import Raft
from millpond.core.raft.settings import RaftSettings
from tests.core.raft.disk import Disk
from tests.core.raft.invariants import (
    CommittedForEver,
    ElectedByMajority,
    LeaseExclusivity,
    LinearizableReads,
    LogMatching,
    OneChangeAtATime,
    OneVote,
    SameState,
    SingleLeader,
)

SETTINGS = RaftSettings(
    election_timeout_s_min=1.0,
    election_timeout_s_max=2.0,
    heartbeat_s=0.25,
    clock_drift_max=0.1,
    append_bytes_max=24,
    appends_in_flight_max=3,
    proposals_in_flight_max=40,
    snapshot_chunk_bytes=16,
    learner_entries_behind_max=10,
)


@dataclass
class Network:
    delay_s_max: float = 0.05
    late: float = 0.0
    """The share of messages that take up to `late_s_max`, less one, mostly much less."""
    late_s_max: float = 6.0
    lost: float = 0.0
    doubled: float = 0.0
    slow: dict[tuple[int, int], float] = field(default_factory=dict)
    """Pairs (from, to) whose messages take this much longer."""
    cut: list[tuple[int, int]] = field(default_factory=list)
    """Pairs (from, to) between which nothing passes."""


class Node:
    def __init__(self, node_id: int, founders: Membership | None, *, clock_rate: float, clock_offset: float) -> None:
        self.node_id = node_id
        self.disk = Disk(founders)
        self.alive = False
        self.life = 0
        self.persists: deque[Persist] = deque()
        self.commit_seen = 0
        self.applied_index = 0
        self.state = 0
        self._rate = clock_rate
        self._offset = clock_offset
        self.raft: Raft
        self.tick_at: float | None = None

    def clock(self, now: float) -> float:
        return self._offset + self._rate * now

    def real_time(self, clock: float) -> float:
        return (clock - self._offset) / self._rate

    def forget(self) -> None:
        """What a new process starts from."""
        snapshot = self.disk.snapshot
        self.persists.clear()
        self.commit_seen = self.applied_index = snapshot.index
        self.state = state_in(snapshot)
        self.tick_at = None
        self.life += 1


def state_in(snapshot: Snapshot) -> int:
    return int.from_bytes(snapshot.data[:4], "big")


class Cluster:
    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 3,
        voters: int = 3,
        settings: RaftSettings = SETTINGS,
        machine: type[Raft] = Raft,
        disk_s_max: float = 0.02,
    ) -> None:
        self.rng = random.Random(seed)
        self.settings = settings
        self.machine = machine
        self.network = Network()
        self.disk_s_max = disk_s_max
        self.disk_stalls = 0.0
        """The share of persists that take seconds."""
        self.crash_after_persist = 0.0
        self.now = 0.0
        self.inputs = 0
        self.story: list[str] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self.single_leader, self.one_vote, self.log_matching = SingleLeader(), OneVote(), LogMatching()
        self.committed, self.same_state, self.lease = CommittedForEver(), SameState(), LeaseExclusivity()
        self.reads, self.one_change, self.elected = LinearizableReads(), OneChangeAtATime(), ElectedByMajority()
        first = Membership(tuple(range(1, voters + 1)))
        self.nodes: dict[int, Node] = {}
        for node_id in range(1, nodes + 1):
            membership = first if node_id <= voters else None
            rate = self.rng.choice((1.0, 1.0 - settings.clock_drift_max, self.rng.uniform(0.9, 1.0)))
            self.nodes[node_id] = Node(node_id, membership, clock_rate=rate, clock_offset=self.rng.uniform(0.0, 1000.0))
        for node in self.nodes.values():
            self.start(node)

    # Time

    def at(self, time: float, what: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (time, self._sequence, what))

    def run_until(self, time: float, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """Returns whether `unless` came true before that time."""
        while not unless():
            if not self._heap or self._heap[0][0] > time:
                self.now = time
                return False
            self.now, _, what = heapq.heappop(self._heap)
            what()
        return True

    # Nodes

    def start(self, node: Node) -> None:
        node.forget()
        node.alive = True
        rng = random.Random(self.rng.getrandbits(32))
        node.raft = self.machine(node.node_id, self.settings, rng, node.disk.contents(), now=node.clock(self.now))
        self._after_input(node)

    def crash(self, node: Node) -> None:
        """The persist under way is done in part; later ones not at all."""
        if node.persists:
            node.disk.perform(node.persists[0], self.rng.randrange(len(list(node.disk.steps(node.persists[0]))) + 1))
        node.alive = False
        node.life += 1

    def give(self, node: Node, what: Callable[[Raft, float], None]) -> None:
        """One input to a living node."""
        what(node.raft, node.clock(self.now))
        self._after_input(node)

    def leader(self) -> Node | None:
        """The one of the newest term."""
        leaders = [node for node in self.nodes.values() if node.alive and node.raft.role is Role.LEADER]
        return max(leaders, key=lambda node: node.raft.term, default=None)

    # After each input

    def _after_input(self, node: Node) -> None:
        self.inputs += 1
        output = node.raft.take_output()
        self._check(node, output)
        for message in output.messages:
            self.one_vote.said(message)
            self._send(message)
        if output.restore is not None:
            node.applied_index, node.state = output.restore.index, state_in(output.restore)
            self.same_state.restored(output.restore, node.state)
        for entry in output.committed:
            self._apply(node, entry)
        if output.persist is not None:
            node.persists.append(output.persist)
            if len(node.persists) == 1:
                self._write_next(node)
        deadline = node.raft.deadline()
        if deadline != node.tick_at:
            node.tick_at = deadline
        else:
            return
        if deadline is not None:
            self.at(max(self.now, node.real_time(deadline)), self._tick_of(node, node.life, deadline))

    def _check(self, node: Node, output: Output) -> None:
        self.single_leader.seen(node)
        self.elected.seen(node, self)
        self.committed.seen(node, self)
        self.lease.seen(self)
        self.reads.seen(output)
        if output.persist is not None and output.persist.entries:
            self.log_matching.persisting(node, output.persist.entries)
            self.one_change.persisting(node, output.persist.entries)
        if output.restore is not None:
            self.log_matching.restored(node)

    def _tick_of(self, node: Node, life: int, deadline: float) -> Callable[[], None]:
        def tick() -> None:
            if not node.alive or node.life != life or node.tick_at != deadline:
                return
            node.tick_at = None
            if node.raft.deadline() == deadline:
                node.raft.tick(max(deadline, node.clock(self.now)))
                self._after_input(node)

        return tick

    def _apply(self, node: Node, entry: Entry) -> None:
        assert entry.index == node.applied_index + 1, f"{node.node_id} applies {entry.index} after {node.applied_index}"
        node.applied_index = entry.index
        if entry.kind is EntryKind.DATA:
            node.state = zlib.crc32(entry.data, node.state)
        self.same_state.applied(entry.index, node.state)

    def _write_next(self, node: Node) -> None:
        life = node.life

        def done() -> None:
            if not node.alive or node.life != life:
                return
            persist = node.persists.popleft()
            node.disk.perform(persist)
            if self.rng.random() < self.crash_after_persist:
                node.persists.clear()
                self.crash(node)
                self.at(self.now + self.rng.uniform(0.0, 1.0), lambda: None if node.alive else self.start(node))
                return
            if node.persists:
                self._write_next(node)
            self.give(node, lambda raft, now: raft.persisted(persist.number, now))

        stalls = self.rng.random() < self.disk_stalls
        self.at(self.now + self.rng.uniform(0.0, 3.0 if stalls else self.disk_s_max), done)

    # The network

    def _send(self, message: Message) -> None:
        network, rng = self.network, self.rng
        copies = 2 if rng.random() < network.doubled else 1
        for _ in range(copies):
            if rng.random() < network.lost:
                continue
            delay_s = rng.uniform(0.001, network.delay_s_max)
            if rng.random() < network.late:
                delay_s = network.late_s_max ** rng.uniform(0.0, 1.0) - 1.0
            delay_s += network.slow.get((message.sender, message.to), 0.0)
            self.at(self.now + delay_s, self._delivery_of(message))

    def _delivery_of(self, message: Message) -> Callable[[], None]:
        def deliver() -> None:
            node = self.nodes[message.to]
            if node.alive and (message.sender, message.to) not in self.network.cut:
                node.raft.receive(message, node.clock(self.now))
                self._after_input(node)

        return deliver

    def through_bytes(self) -> None:
        """From now on messages travel as they would on a wire."""
        send = self._send
        self._send = lambda message: send(decode_message(encode_message(message)))  # type: ignore[method-assign]

    # What users do

    def propose(self, node: Node, data: bytes) -> None:
        self.give(node, lambda raft, now: void(raft.propose(data, now)))

    def read(self, node: Node, token: int) -> None:
        self.reads.asked(token, self.committed.newest)
        self.give(node, lambda raft, now: void(raft.read(token, now)))

    def compact(self, node: Node, entries_kept: int) -> None:
        if node.applied_index <= node.raft.log.snapshot.index:
            return
        data = node.state.to_bytes(4, "big") + b"." * self.rng.randrange(0, 60)
        snapshot = node.raft.make_snapshot(node.applied_index, data)
        if snapshot.index > node.disk.snapshot.index:
            node.disk.keep_snapshot(snapshot)
            node.raft.compact(snapshot, entries_kept=entries_kept)

    def heal(self) -> None:
        self.network = Network()
        self.crash_after_persist = self.disk_stalls = 0.0
        self.disk_s_max = 0.02
        for node in self.nodes.values():
            if not node.alive:
                self.start(node)


def void(_: object) -> None:
    """For answers that nobody looks at."""
