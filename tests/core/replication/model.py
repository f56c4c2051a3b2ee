"""A tiny cluster that keeps one partition: real rules and machines, pretended disks, clocks and network.

Every broker has a log of (epoch, value), of which a part is synced; it learns of metadata late, and loses what is not
synced when it crashes, sometimes its whole disk. Messages are delayed, lost and reordered. The controller decides at
once; its decisions are delivered late. Driven by chance.py, watched by promises.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from millpond.core.metadata import alterations, elections, reassignments, replicas
from millpond.core.metadata.alterations import AlterConfigs, ConfigItem
from millpond.core.metadata.commands import NO_LEADER, Command, CreateTopic, Endpoint
from millpond.core.metadata.decisions import Refused
from millpond.core.metadata.image import EMPTY, Image, Partition, apply_all
from millpond.core.replication import following
from millpond.core.replication.leading import IsrChange, IsrOutcome, Kept, Leading
from millpond.core.replication.lease import Heard, Lease, Sessions
from millpond.core.replication.members import members_of
from millpond.model.ids import LeaderEpoch, Offset, TopicPartition
from millpond.storage.epochs import LeaderEpochs

AT = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
SESSION_MS = 1000
LAG_MS_MAX = 600
RECORDS_PER_FETCH_MAX = 3
NEVER_CONTROLLER = -1

Record = tuple[int, int] | None
"""The leader epoch it was appended in, and a value that is nowhere else. None where its log begins only later."""


@dataclass
class Node:
    broker: int
    lease: Lease
    clock_rate: float
    directory_id: bytes = b""
    log: list[Record] = field(default_factory=list)
    synced: int = 0
    high_watermark: int = 0
    life: int = -1
    """Its broker epoch; counts up with each registration."""
    up: bool = False
    image: Image = EMPTY
    learned: int = 0
    leading: Leading | None = None
    waiting: list[tuple[int, Record]] = field(default_factory=list)
    """Ends, and records, of what was appended here with acks=all and is not answered yet."""
    fetching: bool = False
    asked: IsrChange | None = None

    @property
    def history(self) -> LeaderEpochs:
        pairs: list[tuple[LeaderEpoch, Offset]] = []
        for offset, record in enumerate(self.log):
            if record is not None and (not pairs or pairs[-1][0] != record[0]):
                pairs.append((LeaderEpoch(record[0]), Offset(offset)))
        return LeaderEpochs(pairs)

    @property
    def log_start(self) -> Offset:
        return Offset(self.log.count(None))

    def forget_before(self, start: int) -> None:
        """Never all of it."""
        start = min(start, len(self.log) - 1)
        self.log[:start] = [None] * len(self.log[:start])

    @property
    def partition(self) -> Partition | None:
        """As it knows it; None unless it is registered, as far as it knows."""
        me = self.image.brokers.get(self.broker)
        if not self.up or me is None or me.fenced or me.epoch != self.life:
            return None
        return self.image.partition(AT)

    def forget(self) -> None:
        self.leading, self.fetching, self.asked = None, False, None
        self.waiting.clear()


@dataclass(frozen=True)
class Fetch:
    source: int
    target: int
    life: int
    leader_epoch: int
    offset: int
    last_epoch: LeaderEpoch


@dataclass(frozen=True)
class Fetched:
    target: int
    life: int
    leader_epoch: int
    offset: int
    answer: following.FetchAnswer
    records: tuple[Record, ...] = ()


@dataclass(frozen=True)
class Heartbeat:
    source: int
    life: int
    sent_at: int


@dataclass(frozen=True)
class HeartbeatAnswer:
    target: int
    life: int
    sent_at: int


@dataclass(frozen=True)
class AskIsr:
    source: int
    life: int
    leader_epoch: int
    change: IsrChange


@dataclass(frozen=True)
class IsrAnswer:
    target: int
    life: int
    change: IsrChange
    outcome: IsrOutcome


Message = Fetch | Fetched | Heartbeat | HeartbeatAnswer | AskIsr | IsrAnswer


class World:
    def __init__(self, seed: int, *, unclean: bool = False) -> None:
        self.unclean = unclean
        self.rng = rng = Random(seed)
        self.now = 0
        self.values = 0
        self.messages: list[Message] = []
        self.held: list[Message] = []
        self.disks_lost = 0
        self.story: list[str] = []
        self.on_open: Callable[[Node], None] = lambda node: None
        self.on_acknowledged: Callable[[Node, int, Record], None] = lambda node, end, record: None
        brokers = range(1, rng.choice([3, 4, 5]) + 1)
        self.replication = rng.randint(2, min(4, len(brokers)))
        self.insync_min = rng.randint(1, self.replication)
        self.nodes = {broker: Node(broker, Lease(session_ms=SESSION_MS), rng.uniform(0.92, 1.08)) for broker in brokers}
        self.images: list[Image] = [EMPTY]
        for node in self.nodes.values():
            self.start(node)
        self.decide((self._topic(),))
        self.sessions = self._new_sessions()

    def _topic(self) -> CreateTopic:
        replicas_of = tuple(self.rng.sample(sorted(self.nodes), self.replication))
        configs = (
            ("min.insync.replicas", str(self.insync_min)),
            ("unclean.leader.election.enable", str(self.unclean).lower()),
        )
        return CreateTopic(name=AT.topic, topic_id=TOPIC_ID, partitions=(replicas_of,), configs=configs)

    # The controller: decides at once, is heard of later

    @property
    def image(self) -> Image:
        return self.images[-1]

    @property
    def partition(self) -> Partition:
        found = self.image.partition(AT)
        assert found is not None
        return found

    def decide(self, commands: tuple[Command, ...]) -> None:
        if commands:
            self.images.append(apply_all(commands, self.image))
            if hasattr(self, "sessions"):
                self.sessions.follow(self._live(), own=NEVER_CONTROLLER, now=self.now)

    def _live(self) -> dict[int, int]:
        return {broker.broker: broker.epoch for broker in self.image.live_brokers()}

    def _new_sessions(self) -> Sessions:
        return Sessions(self._live(), own=NEVER_CONTROLLER, session_ms=SESSION_MS, now=self.now)

    def change_controller(self) -> None:
        self.sessions = self._new_sessions()

    def fence_the_silent(self) -> None:
        for broker, epoch in self.sessions.due(self.now):
            self.tell(f"fence {broker}")
            self.decide(elections.fence_broker(self.image, broker, epoch=epoch))

    def move(self) -> None:
        target: tuple[int, ...] | None = tuple(self.rng.sample(sorted(self.nodes), self.replication))
        if self.partition.moving and self.rng.random() < 0.5:
            target = None
        decision = reassignments.reassign(self.image, [reassignments.Reassign(AT, target)])
        self.tell(f"move to {target}: {decision.answers}")
        self.decide(decision.commands)

    def alter(self) -> None:
        """Another number of replicas must be in sync."""
        item = ConfigItem("min.insync.replicas", str(self.rng.randint(1, self.replication)))
        request = AlterConfigs(target=AT.topic, items=(item,))
        self.decide(alterations.alter_configs(self.image, [request], static={}).commands)

    # Brokers: their lives

    def local_time(self, node: Node) -> int:
        return int(self.now * node.clock_rate)

    def has_lease(self, node: Node) -> bool:
        return node.up and node.lease.is_valid(self.local_time(node))

    def start(self, node: Node) -> None:
        """Or only registers anew, where it has been fenced and finds out."""
        if not node.directory_id:
            node.directory_id = self.rng.randbytes(16)
        node.forget()
        node.lease.give_up()
        node.up = True
        self.decide(
            elections.register_broker(
                self.image, node.broker, endpoints=(Endpoint("P", "h", 1),), directory_id=node.directory_id
            )
        )
        node.life = self.image.brokers[node.broker].epoch

    def crash(self, node: Node, *, lose_disk: bool = False) -> None:
        node.up = False
        node.forget()
        del node.log[self.rng.randint(node.synced, len(node.log)) :]
        node.lease = Lease(session_ms=SESSION_MS)
        if lose_disk:
            self.disks_lost += 1
            node.log, node.directory_id = [], b""
        node.synced = len(node.log)
        node.high_watermark = self.rng.randint(0, min(node.high_watermark, len(node.log)))

    def learn(self, node: Node, steps: int) -> None:
        node.learned = min(node.learned + steps, len(self.images) - 1)
        node.image = self.images[node.learned]
        me = node.image.brokers.get(node.broker)
        if me is not None and me.epoch == node.life and me.fenced:
            self.tell(f"{node.broker} finds out that it is fenced")
            self.start(node)
        partition = node.partition
        if partition is None or partition.leader != node.broker:
            node.leading = None
            node.waiting.clear()
        elif node.leading is None or node.leading.leader_epoch != partition.leader_epoch:
            self._lead(node, partition)
        else:
            node.leading.image_changed(members_of(node.image, AT), now=self.local_time(node))
        if partition is not None and node.broker not in partition.replicas:
            node.log, node.synced, node.high_watermark = [], 0, 0

    def _lead(self, node: Node, partition: Partition) -> None:
        self.tell(f"{node.broker} leads with epoch {partition.leader_epoch}, isr {partition.isr}")
        node.forget()
        node.leading = Leading(
            broker=node.broker,
            leader_epoch=partition.leader_epoch,
            epoch_start=Offset(len(node.log)),
            synced_end=Offset(node.synced),
            high_watermark=Offset(node.high_watermark),
            members=members_of(node.image, AT),
            lag_ms_max=LAG_MS_MAX,
            now=self.local_time(node),
        )
        self.on_open(node)

    # Brokers: their work

    def produce(self, node: Node) -> None:
        if node.leading is None or not node.leading.is_enough or not self.has_lease(node):
            return
        self.values += 1
        node.log.append((node.leading.leader_epoch, self.values))
        node.waiting.append((len(node.log), node.log[-1]))

    def expire(self, node: Node) -> None:
        """Retention: some of what is committed goes."""
        if node.leading is not None:
            node.forget_before(self.rng.randint(0, node.leading.high_watermark))

    def sync(self, node: Node) -> None:
        node.synced = len(node.log)
        if node.leading is not None:
            node.leading.own_synced(Offset(node.synced))

    def fetch_offset(self, node: Node) -> int | None:
        """None while something is not synced."""
        return node.synced if node.synced == len(node.log) else None

    def fetch(self, node: Node) -> None:
        partition, offset = node.partition, self.fetch_offset(node)
        if partition is None or offset is None or node.broker not in partition.replicas:
            return
        if partition.leader in (node.broker, NO_LEADER):
            return
        end = Offset(len(node.log))
        last = following.last_fetched_epoch(node.history, log_start=node.log_start, log_end=end)
        self.messages.append(Fetch(node.broker, partition.leader, node.life, partition.leader_epoch, offset, last))

    def heartbeat(self, node: Node) -> None:
        if node.up:
            self.messages.append(Heartbeat(node.broker, node.life, self.local_time(node)))

    def ask_isr(self, node: Node) -> None:
        if node.leading is None:
            return
        change = node.leading.ask_isr(self.local_time(node))
        if change is not None:
            node.asked = change
            self.messages.append(AskIsr(node.broker, node.life, node.leading.leader_epoch, change))

    def give_up_asking(self, node: Node) -> None:
        """The question, or its answer, may be on its way all the same."""
        if node.leading is not None and node.asked is not None:
            node.leading.isr_answered(node.asked, IsrOutcome.UNKNOWN)
            node.asked = None

    def acknowledge(self, node: Node) -> None:
        if node.leading is None:
            return
        node.high_watermark = max(node.high_watermark, node.leading.high_watermark)
        if not self.has_lease(node):
            return
        for end, record in list(node.waiting):
            if node.leading.is_kept(Offset(end)) is Kept.YES:
                node.waiting.remove((end, record))
                self.on_acknowledged(node, end, record)

    # The network

    def deliver(self, message: Message) -> None:
        match message:
            case Fetch():
                self._serve(message)
            case Fetched():
                self._follow(message)
            case Heartbeat(source=source, life=life, sent_at=sent_at):
                if self.sessions.heard(source, epoch=life, now=self.now) is Heard.RENEWED:
                    self.messages.append(HeartbeatAnswer(source, life, sent_at))
            case HeartbeatAnswer(target=target, life=life, sent_at=sent_at):
                node = self.nodes[target]
                if node.up and node.life == life:
                    self._renew(node, sent_at)
            case AskIsr():
                self._decide_isr(message)
            case IsrAnswer(target=target, life=life, change=change, outcome=outcome):
                node = self.nodes[target]
                if node.leading is not None and node.life == life:
                    node.leading.isr_answered(change, outcome)

    def _renew(self, node: Node, sent_at: int) -> None:
        node.lease.renewed(sent_at=sent_at)

    def _serve(self, fetch: Fetch) -> None:
        node = self.nodes[fetch.target]
        leading = node.leading
        if leading is None or leading.leader_epoch != fetch.leader_epoch:
            read: tuple[following.FetchAnswer, list[Record]] = following.FetchAnswer(error=6), []
        else:
            read = self._read(node, leading, fetch)
        answer, records = read
        self.messages.append(
            Fetched(fetch.source, fetch.life, fetch.leader_epoch, fetch.offset, answer, tuple(records))
        )

    def _read(self, node: Node, leading: Leading, fetch: Fetch) -> tuple[following.FetchAnswer, list[Record]]:
        end = Offset(len(node.log))
        parted = following.diverging(
            node.history, log_end=end, last_fetched_epoch=fetch.last_epoch, fetch_offset=Offset(fetch.offset)
        )
        if parted is not None:
            return following.FetchAnswer(diverging=parted, log_start=node.log_start), []
        if not node.log_start <= fetch.offset <= end:
            return following.FetchAnswer(error=1, log_start=node.log_start), []
        leading.fetched(
            fetch.source,
            broker_epoch=fetch.life,
            offset=Offset(fetch.offset),
            leader_end=end,
            now=self.local_time(node),
        )
        records = node.log[fetch.offset : fetch.offset + RECORDS_PER_FETCH_MAX]
        base = Offset(fetch.offset) if records else None
        mark = leading.high_watermark
        return following.FetchAnswer(high_watermark=mark, log_start=node.log_start, base_offset=base), records

    def _follow(self, fetched: Fetched) -> None:
        node = self.nodes[fetched.target]
        partition = node.partition
        if node.life != fetched.life or partition is None or partition.leader_epoch != fetched.leader_epoch:
            return
        end = Offset(len(node.log))
        if fetched.offset != end or partition.leader == node.broker or node.broker not in partition.replicas:
            return
        step = following.follow(fetched.answer, history=node.history, log_start=node.log_start, log_end=end)
        match step:
            case following.Append(high_watermark=told, log_start=start):
                node.log.extend(fetched.records)
                node.forget_before(start)
                known = Offset(node.high_watermark)
                node.high_watermark = following.high_watermark_of_follower(
                    known, told=told, log_end=Offset(len(node.log))
                )
            case following.Truncate(to=to):
                self.tell(f"{node.broker} cuts {end} to {to}")
                del node.log[to:]
                node.synced, node.high_watermark = min(node.synced, to), min(node.high_watermark, to)
            case following.StartAnew(at=at):
                self.tell(f"{node.broker} starts anew at {at} instead of {end}")
                node.log, node.synced, node.high_watermark = [None] * at, at, at
            case following.BackOff() | following.AwaitMetadata():
                pass

    def _decide_isr(self, asked: AskIsr) -> None:
        decision = replicas.change_isr(
            self.image,
            replicas.IsrAsked(
                topic_id=TOPIC_ID,
                partition=AT.partition,
                leader=asked.source,
                leader_epoch=LeaderEpoch(asked.leader_epoch),
                partition_epoch=asked.change.partition_epoch,
                isr=asked.change.isr,
            ),
        )
        refused = isinstance(decision.answers[0], Refused)
        self.tell(f"{asked.source} asks for {asked.change}: {decision.answers}")
        self.decide(decision.commands)
        outcome = IsrOutcome.REFUSED if refused else IsrOutcome.DONE
        self.messages.append(IsrAnswer(asked.source, asked.life, asked.change, outcome))

    def tell(self, what: str) -> None:
        self.story.append(f"{self.now:>6} {what}")
