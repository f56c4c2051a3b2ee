"""What replication promises, each promise a check that runs after every step of the model."""

from dataclasses import dataclass, field

from millpond.core.metadata.elections import elect_leaderless
from tests.core.replication.model import Node, Record, World


def equal(some: list[Record], others: list[Record]) -> bool:
    """As far as both have it still."""
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(None in pair or pair[0] == pair[1] for pair in pairs)


class Broken(AssertionError):
    """A promise did not hold."""


@dataclass
class Promises:
    world: World
    committed: list[Record] = field(default_factory=list)
    """Everything below the highest high watermark there ever was."""
    acknowledged: dict[int, tuple[int, Record]] = field(default_factory=dict)
    """By offset: the epoch it was acknowledged in, and the record."""
    leader_of: dict[int, int] = field(default_factory=dict)
    told: tuple[int, int] = (-1, 0)
    """The leader epoch and the high watermark that a consumer heard last."""

    def __post_init__(self) -> None:
        if self.world.unclean:
            return
        self.world.on_open = self.a_later_leader_has_what_was_acknowledged
        self.world.on_acknowledged = self.one_leader_acknowledges_in_an_epoch

    def expect(self, holds: bool, promise: str, what: object = "") -> None:
        if not holds:
            raise Broken(f"{promise}: {what}")

    def a_later_leader_has_what_was_acknowledged(self, node: Node) -> None:
        assert node.leading is not None
        for offset, (epoch, record) in self.acknowledged.items():
            has = offset < len(node.log) and node.log[offset] in (None, record)
            later = node.leading.leader_epoch > epoch
            self.expect(has or not later, "acknowledged records are in the log of every later leader", (node, offset))

    def one_leader_acknowledges_in_an_epoch(self, node: Node, end: int, record: Record) -> None:
        assert node.leading is not None
        epoch = node.leading.leader_epoch
        leader = self.leader_of.setdefault(epoch, node.broker)
        self.expect(leader == node.broker, "one leader acknowledges in an epoch", (epoch, leader, node.broker))
        self.acknowledged[end - 1] = (epoch, record)

    def check(self) -> None:
        for node in self.world.nodes.values():
            self.only_a_live_broker_has_a_lease(node)
        self.expect(not elect_leaderless(self.world.image), "what could have a leader has one")
        if not self.world.unclean:
            self.check_records()

    def check_records(self) -> None:
        for node in self.world.nodes.values():
            if node.leading is not None:
                self.logs_are_equal_below_the_high_watermark(node)
                self.the_high_watermark_never_falls_for_a_consumer(node)
        self.who_is_in_sync_or_eligible_is_complete()

    def logs_are_equal_below_the_high_watermark(self, node: Node) -> None:
        assert node.leading is not None
        mark = node.leading.high_watermark
        self.expect(mark <= len(node.log), "a high watermark is within the log", (mark, node))
        self.committed.extend(node.log[len(self.committed) : mark])
        self.expect(equal(node.log[:mark], self.committed[:mark]), "logs are equal below the high watermark", node)

    def the_high_watermark_never_falls_for_a_consumer(self, node: Node) -> None:
        leading = node.leading
        assert leading is not None
        if not self.world.has_lease(node) or not leading.is_caught_up_with_the_past:
            return
        epoch, mark = self.told
        if leading.leader_epoch >= epoch:
            self.expect(leading.high_watermark >= mark, "the high watermark never falls for a consumer", leading)
            self.told = (leading.leader_epoch, leading.high_watermark)

    def only_a_live_broker_has_a_lease(self, node: Node) -> None:
        if self.world.has_lease(node):
            known = self.world.image.brokers[node.broker]
            self.expect(not known.fenced and known.epoch == node.life, "only a live broker has a lease", node.broker)

    def who_is_in_sync_or_eligible_is_complete(self) -> None:
        image, partition = self.world.image, self.world.partition
        for broker in (*partition.isr, *partition.elr):
            node = self.world.nodes[broker]
            if node.directory_id == image.brokers[broker].directory_id:
                complete = equal(node.log[: min(node.synced, len(self.committed))], self.committed)
                self.expect(complete, "who is in sync or eligible has all below the high watermark", (partition, node))

    def all_copies_are_equal(self) -> None:
        """Once everything is well again."""
        partition = self.world.partition
        if not partition.isr and not partition.elr:
            # Every complete copy was on a disk that is lost; nobody leads, and nobody pretends to.
            self.expect(self.world.disks_lost > 0, "somebody is complete as long as no disk is lost", partition)
            return
        self.expect(set(partition.isr) == set(partition.replicas), "all come back in sync", partition)
        leader = self.world.nodes[partition.leader]
        for broker in partition.replicas:
            node = self.world.nodes[broker]
            self.expect(equal(node.log, leader.log), "all copies are equal in the end", (partition, node, leader))
        self.expect(leader.leading is not None, "the leader leads in the end")
        assert leader.leading is not None
        self.expect(leader.leading.high_watermark == len(leader.log), "everything is committed in the end", leader)
