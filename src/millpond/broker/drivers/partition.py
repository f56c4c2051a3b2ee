"""A partition that this broker leads: its log, how far consumers may read, and who waits for more.

Invariant: the high watermark never moves back while this broker leads, and nothing above it is ever handed to a
consumer. What lies below it is as safe as the topic's flush mode promises, so no consumer sees what a power cut could
take back from a topic with group commit.
Driven by broker/operations; one task at a time.
"""

import asyncio

from millpond.core.metadata.topic_configs import TopicConfig
from millpond.model.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from millpond.model.ids import NO_EPOCH, LeaderEpoch, Offset, TopicPartition
from millpond.model.ports import Buffer
from millpond.storage.log import Appended, Log
from millpond.storage.segment import Slice
from millpond.storage.settings import Flush, LogSettings


class Partition:
    __slots__ = (
        "_waiting",
        "at",
        "config",
        "fetched_bytes",
        "fetched_messages",
        "high_watermark",
        "leader_epoch",
        "log",
    )

    def __init__(self, at: TopicPartition, log: Log, config: TopicConfig, leader_epoch: LeaderEpoch) -> None:
        self.at = at
        self.log = log
        self.config = config
        self.leader_epoch = leader_epoch
        self.high_watermark = log.durable_offset
        self.fetched_bytes = self.fetched_messages = 0
        """By consumers, since the log was opened; telemetry shows them."""
        self._waiting: dict[asyncio.Future[None], None] = {}
        # By the log itself, not by whoever waits for it: a client that hangs up must not hide what is kept.
        log.on_durable = self._advance

    def __repr__(self) -> str:
        return f"Partition({self.at}, {self.log.start_offset} to {self.high_watermark})"

    @property
    def in_sync(self) -> int:
        """Replicas that have all that is acknowledged: this broker's, as long as there is no replication."""
        return 1

    def use(self, config: TopicConfig, settings: LogSettings) -> None:
        """From now on."""
        self.config = config
        self.log.use(settings)

    def append(self, batch: Buffer) -> Appended:
        """At once, so that what one connection sends in order is appended in order."""
        appended = self.log.append(batch, leader_epoch=self.leader_epoch)
        if self.log.settings.flush is Flush.GROUP:
            self.log.request_flush()  # also where the client hangs up before anybody waits
        else:
            self._advance()
        return appended

    async def wait_visible(self, appended: Appended) -> None:
        """Returns when the batch is as safe as the topic promises, and consumers can see it."""
        await self.log.wait_kept(appended)

    def _advance(self) -> None:
        log = self.log
        end = log.durable_offset if log.settings.flush is Flush.GROUP else log.next_offset
        if end > self.high_watermark:
            self.high_watermark = end
            self.wake()

    def read(self, start: Offset, *, bytes_max: int) -> Slice:
        return self.log.read(start, bytes_max=bytes_max, until=self.high_watermark)

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        """Refuses a client that believes in another leader than there is."""
        if epoch in (NO_EPOCH, self.leader_epoch):
            return
        refusal = FencedLeaderEpoch if epoch < self.leader_epoch else UnknownLeaderEpoch
        raise refusal(f"leader epoch of {self.at} is {self.leader_epoch}, the request says {epoch}; ask for metadata")

    # Waiting for more

    def add_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Its result is set when there is more to read, or the partition goes."""
        self._waiting[waiter] = None

    def remove_waiter(self, waiter: asyncio.Future[None]) -> None:
        self._waiting.pop(waiter, None)

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
