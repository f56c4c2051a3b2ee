"""All partitions this broker keeps, as the metadata image says: opened when they appear there, removed when they go.

A new log costs no disk until something is appended (storage/founding.py); those that are there when the broker starts
are opened in threads. A directory that belongs to an earlier topic of the same name is put aside, never read; one that
no topic claims is left alone.
Invariant: a partition is in the table exactly while its log is open. Nothing here waits for the disk on the loop.
Driven by the metadata log, which calls `follow` with each change of the image.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from millpond.broker.drivers.partition import HoldsLease, Partition
from millpond.core.metadata.broker_configs import layers
from millpond.core.metadata.image import Image, Topic
from millpond.core.metadata.image import Partition as PartitionFacts
from millpond.core.metadata.topic_configs import TopicConfig, effective
from millpond.core.replication.members import members_of
from millpond.model.errors import DiskFailed, StorageError
from millpond.model.ids import LeaderEpoch, Offset, TopicPartition
from millpond.model.ports import Clock, Filesystem
from millpond.storage.checkpoints import make_directory, write_document
from millpond.storage.facts import StorageFacts
from millpond.storage.founding import is_unfounded, owner_of
from millpond.storage.log import Log
from millpond.storage.names import TOPIC_ID, partition_directory
from millpond.storage.opening import REMOVED, open_or_begin, put_aside
from millpond.storage.recovery import begin_at
from millpond.storage.settings import Flush, LogSettings

OPENED_AT_ONCE = 4
"""At start: as many threads as still leave some to the metadata."""


class PartitionTable:
    def __init__(
        self,
        filesystem: Filesystem,
        data_directory: str,
        node_id: int,
        static: Mapping[str, str],
        *,
        clock: Clock,
        holds_lease: HoldsLease | None,
        lag_ms_max: int,
        on_error: Callable[[BaseException], None],
    ) -> None:
        """`static` is the broker's own settings, which a topic without its own takes."""
        self._clock = clock
        self._holds_lease = holds_lease
        self._lag_ms_max = lag_ms_max
        self._listeners: list[Callable[[], None]] = []
        self.is_present: Callable[[Image], bool] = lambda image: False
        """Whether an image is of this life of the broker. What an earlier one shows elsewhere may have come back here
        since, and what is on disk is what this broker is relied on to have."""
        self._filesystem = filesystem
        self.data_directory = data_directory
        self._node_id = node_id
        self._static = static
        self._on_error = on_error
        self.facts = StorageFacts()
        self._is_closed = False
        self.lets_go = False
        """Nobody waits for messages any more."""
        self._failed: dict[TopicPartition, StorageError] = {}
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._prepared: dict[TopicPartition, Log | StorageError] = {}
        """At start: logs that are open, and not in the table yet; or why not."""
        self._aside: dict[str, None] = {}
        """Directories to remove."""
        self._remover: asyncio.Task[None] | None = None

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def named(self, topic: str, partition: int) -> Partition | None:
        return self._by_name.get((topic, partition))  # equal to a TopicPartition, and made at a tenth of its cost

    def with_id(self, topic_id: bytes, partition: int) -> Partition | None:
        return self._by_id.get((topic_id, partition))

    def failure(self, topic: str, partition: int) -> StorageError | None:
        """Why a partition that should be here is not open."""
        return self._failed.get(TopicPartition(topic, partition))

    @property
    def failures(self) -> Mapping[TopicPartition, StorageError]:
        """Those that should be here and are not open, and why."""
        return self._failed

    def require_all(self) -> None:
        """At start: a broker whose disk cannot be read must not look like one that has nothing."""
        for error in self._failed.values():
            raise error

    def doubtful(self) -> set[tuple[bytes, int]]:
        """At start: those whose end may be gone, because nothing waited for the disk when the power went."""
        return {
            found for found, each in self._by_id.items() if not each.is_flushed_by_group and not each.log.report.clean
        }

    def let_go(self) -> None:
        """The broker stops: whoever waits for messages is answered with what there is."""
        self.lets_go = True
        for partition in self:
            partition.let_go()

    def open_what_failed(self, image: Image) -> None:
        for name in {at.topic for at in self._failed} & image.topics.keys():
            self._open(image.topics[name], image)

    def listen(self, listener: Callable[[], None]) -> None:
        """Called after each change of the image has been followed."""
        self._listeners.append(listener)

    # Following the image

    def follow(self, before: Image, after: Image) -> None:
        """A log that cannot be opened is tried again later."""
        if self._is_closed:
            return
        for topic_id, topic in before.topics_by_id.items():
            if topic_id not in after.topics_by_id:
                self._forget_failures(topic)
                for number in range(len(topic.partitions)):
                    self._remove(topic_id, number)
        everything = after.broker_configs is not before.broker_configs or after.brokers is not before.brokers
        for topic_id, topic in after.topics_by_id.items():
            if everything or topic is not before.topics_by_id.get(topic_id):
                self._open(topic, after)
        for listener in self._listeners:
            listener()

    def _open(self, topic: Topic, image: Image) -> None:
        self._forget_failures(topic)
        config = self._config_of(topic, image)
        settings = log_settings(config)
        for number, facts in enumerate(topic.partitions):
            partition = self._by_id.get((topic.topic_id, number))
            if self._node_id not in facts.replicas:
                if partition is not None:
                    self._remove(topic.topic_id, number, put_aside=self.is_present(image))
                continue
            if partition is None:
                partition = self._opened(topic, number, config, settings)
            if partition is not None:
                partition.use(config, settings)
                self._appoint(partition, facts, image)

    def _config_of(self, topic: Topic, image: Image) -> TopicConfig:
        return effective(topic.configs, layers(image, self._static, broker=self._node_id).merged())

    def _forget_failures(self, topic: Topic) -> None:
        for number in range(len(topic.partitions)):
            self._failed.pop(TopicPartition(topic.name, number), None)

    def _opened(self, topic: Topic, number: int, config: TopicConfig, settings: LogSettings) -> Partition | None:
        at = TopicPartition(topic.name, number)
        log = self._prepared.pop(at, None)
        if log is None:
            log = self._open_log(at, topic.topic_id, settings)
        if isinstance(log, StorageError):
            self._failed[at] = log
            self._on_error(log)
            return None
        partition = Partition(at, topic.topic_id, log, config, holds_lease=self._holds_lease)
        partition.on_damage = self._on_error
        self._by_name[at] = self._by_id[topic.topic_id, number] = partition
        return partition

    def _appoint(self, partition: Partition, facts: PartitionFacts, image: Image) -> None:
        """Leads what the image says, but only in the life of the broker that the image speaks of: one that has just
        started finds itself named as leader by the life before, which may have written more than is left."""
        if facts.leader == self._node_id and self.is_present(image):
            partition.lead(
                LeaderEpoch(facts.leader_epoch),
                members_of(image, partition.at),
                broker=self._node_id,
                lag_ms_max=self._lag_ms_max,
                now_ms=self._clock.monotonic_ms(),
            )
        elif partition.leading is not None or partition.leader_epoch != facts.leader_epoch:
            partition.follow(LeaderEpoch(facts.leader_epoch))

    def _open_log(self, at: TopicPartition, topic_id: bytes, settings: LogSettings) -> Log | StorageError:
        """Blocks where there is a directory: after a crash it reads the last segment."""
        directory = f"{self.data_directory}/{partition_directory(at)}"
        try:
            return open_or_begin(self._filesystem, directory, settings, owner=topic_id.hex(), facts=self.facts)
        except StorageError as error:
            return error

    async def open_logs(self, image: Image) -> None:
        """At start, before an image is followed: opens what is on disk, some at a time and off the loop, which has the
        metadata to look after meanwhile."""
        found = set(self._filesystem.list(self.data_directory))
        jobs = (
            (at, topic.topic_id, settings)
            for topic in image.topics.values()
            for settings in [log_settings(self._config_of(topic, image))]
            for at in (TopicPartition(topic.name, number) for number in range(len(topic.partitions)))
            if self._node_id in topic.partitions[at.partition].replicas and partition_directory(at) in found
        )

        async def open_some() -> None:
            for at, topic_id, settings in jobs:
                work = partial(self._open_log, at, topic_id, settings)
                self._prepared[at] = await asyncio.get_running_loop().run_in_executor(None, work)

        await asyncio.gather(*(open_some() for _ in range(OPENED_AT_ONCE)))

    async def begin_anew(self, partition: Partition, at: Offset) -> None:
        """Empties a follower's log and begins it at an offset. What a crash in between leaves is copied again."""
        partition.log.abandon()
        work = partial(self._begun_at, partition.log, partition.topic_id.hex(), at)
        log = await asyncio.get_running_loop().run_in_executor(None, work)
        if self._by_name.get(partition.at) is partition:
            partition.begin_anew(log)
        else:
            log.abandon()

    def _begun_at(self, old: Log, owner: str, at: Offset) -> Log:
        filesystem, directory = self._filesystem, old.directory
        try:
            make_directory(filesystem, directory)
            if owner_of(filesystem, directory) != owner:  # it was not founded yet
                write_document(filesystem, directory, TOPIC_ID, owner)
            begin_at(filesystem, directory, at)
        except OSError as error:
            raise DiskFailed(f"{old.name} cannot be begun anew: {error}") from error
        return Log.open(filesystem, directory, old.settings, facts=self.facts)

    def _remove(self, topic_id: bytes, number: int, *, put_aside: bool = True) -> None:
        partition = self._by_id.pop((topic_id, number), None)
        if partition is None:
            return
        del self._by_name[partition.at]
        partition.log.abandon()
        partition.follow(partition.leader_epoch)
        if put_aside and not partition.log.is_planned:
            self._put_aside(partition.log.directory, topic_id)

    def remove_strays(self, image: Image) -> None:
        """At start, once it is registered: what moved to other brokers while this one was down, by an image that is no
        older than this life; and what an earlier life had put aside and not removed yet. A topic that nobody knows is
        left alone."""
        found = set(self._filesystem.list(self.data_directory))
        for name in sorted(found):
            if name.endswith(REMOVED):
                self._remove_soon(f"{self.data_directory}/{name}")
        for topic in image.topics.values():
            for number, facts in enumerate(topic.partitions):
                name = partition_directory(TopicPartition(topic.name, number))
                if name in found and self._node_id not in facts.replicas:
                    directory = f"{self.data_directory}/{name}"
                    if owner_of(self._filesystem, directory) == topic.topic_id.hex() or is_unfounded(
                        self._filesystem, directory
                    ):
                        self._put_aside(directory, topic.topic_id)

    def _put_aside(self, log_directory: str, topic_id: bytes) -> None:
        self._remove_soon(put_aside(self._filesystem, log_directory, topic_id.hex()))

    def _remove_soon(self, directory: str) -> None:
        self._aside[directory] = None
        if self._remover is None:
            self._remover = asyncio.get_running_loop().create_task(self._remove_aside())

    async def _remove_aside(self) -> None:
        """One after another; what is left when the broker stops is removed when it starts."""
        loop, filesystem = asyncio.get_running_loop(), self._filesystem
        try:
            while self._aside and not self._is_closed:
                names = list(self._aside)
                # Else a power cut could bring back a part of it, under the name of a partition.
                await loop.run_in_executor(None, filesystem.sync_directory, self.data_directory)
                for directory in names:
                    if not self._is_closed:
                        await loop.run_in_executor(None, filesystem.remove_directory, directory)
                        del self._aside[directory]
        except OSError as error:
            self._aside.clear()
            self._on_error(error)
        finally:
            self._remover = None

    async def close(self) -> None:
        """Whatever the image shows from now on is for the next life."""
        self._is_closed = True
        if self._remover is not None:
            await asyncio.wait([self._remover])
        for log in self._prepared.values():
            if isinstance(log, Log):
                log.abandon()
        await asyncio.gather(*(partition.log.close() for partition in self))
        self._by_name.clear()
        self._by_id.clear()


def log_settings(config: TopicConfig) -> LogSettings:
    return LogSettings(
        flush=Flush(config.flush),
        flush_interval_ms=config.flush_interval_ms,
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        index_interval_bytes=config.index_interval_bytes,
        batch_bytes_max=config.batch_bytes_max,
        verify_reads=config.verify_reads,
        delete=config.delete,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        compact=config.compact,
        compaction_lag_ms_min=config.compaction_lag_ms_min,
        compaction_dirty_ratio_min=config.compaction_dirty_ratio_min,
        tombstone_grace_ms=config.tombstone_grace_ms,
    )
