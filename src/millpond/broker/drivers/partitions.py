"""All partitions this broker keeps, as the metadata image says: opened when they appear there, removed when they go.

Each partition's directory holds a `topic-id` document beside its log. A directory that belongs to an earlier topic of
the same name is put aside, never read; one that no topic claims is left alone.
Invariant: a partition is in the table exactly while its log is open.
Driven by the metadata log, which calls `follow` with each change of the image.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import count

from millpond.broker.drivers.partition import HoldsLease, Partition
from millpond.core.metadata.broker_configs import layers
from millpond.core.metadata.image import Image, Topic
from millpond.core.metadata.image import Partition as PartitionFacts
from millpond.core.metadata.topic_configs import TopicConfig, effective
from millpond.core.replication.members import members_of
from millpond.model.errors import DiskFailed, StorageError
from millpond.model.ids import LeaderEpoch, Offset, TopicPartition
from millpond.model.ports import Clock, Filesystem
from millpond.storage.checkpoints import make_directory, read_document, write_document
from millpond.storage.facts import StorageFacts
from millpond.storage.log import Log
from millpond.storage.names import partition_directory
from millpond.storage.recovery import begin_at
from millpond.storage.settings import Flush, LogSettings

TOPIC_ID = "topic-id"
REMOVED = ".removed"


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
        self._failed: dict[TopicPartition, StorageError] = {}
        self._by_name: dict[TopicPartition, Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._removals: dict[str, asyncio.Task[None]] = {}
        """Of directories that were put aside."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def named(self, topic: str, partition: int) -> Partition | None:
        return self._by_name.get(TopicPartition(topic, partition))

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

    def open_what_failed(self, image: Image) -> None:
        names = {at.topic for at in self._failed}
        self._failed.clear()
        for name in names & image.topics.keys():
            self._open(image.topics[name], image)

    def listen(self, listener: Callable[[], None]) -> None:
        """Called after each change of the image has been followed."""
        self._listeners.append(listener)

    # Following the image

    def follow(self, before: Image, after: Image) -> None:
        """Blocks while logs are opened; removals go on beside. A log that cannot be opened is tried again later."""
        if self._is_closed:
            return
        self._failed.clear()
        for topic_id, topic in before.topics_by_id.items():
            if topic_id not in after.topics_by_id:
                for number in range(len(topic.partitions)):
                    self._remove(topic_id, number)
        everything = after.broker_configs is not before.broker_configs or after.brokers is not before.brokers
        for topic_id, topic in after.topics_by_id.items():
            if everything or topic is not before.topics_by_id.get(topic_id):
                self._open(topic, after)
        for listener in self._listeners:
            listener()

    def _open(self, topic: Topic, image: Image) -> None:
        config = effective(topic.configs, layers(image, self._static, broker=self._node_id).merged())
        for number, facts in enumerate(topic.partitions):
            partition = self._by_id.get((topic.topic_id, number))
            if self._node_id not in facts.replicas:
                if partition is not None:
                    self._remove(topic.topic_id, number, put_aside=self.is_present(image))
                continue
            if partition is None:
                partition = self._opened(topic, number, config)
            if partition is not None:
                partition.use(config, log_settings(config))
                self._appoint(partition, facts, image)

    def _opened(self, topic: Topic, number: int, config: TopicConfig) -> Partition | None:
        at = TopicPartition(topic.name, number)
        try:
            log = self._open_log(at, topic, config)
        except StorageError as error:
            self._failed[at] = error
            self._on_error(error)
            return None
        partition = Partition(at, topic.topic_id, log, config, holds_lease=self._holds_lease)
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

    def _open_log(self, at: TopicPartition, topic: Topic, config: TopicConfig) -> Log:
        directory = f"{self.data_directory}/{partition_directory(at)}"
        try:
            self._claim(directory, topic.topic_id.hex())
        except OSError as error:
            raise DiskFailed(f"{directory} cannot be made ready for {at}: {error}") from error
        return Log.open(self._filesystem, directory, log_settings(config), facts=self.facts)

    def _claim(self, directory: str, topic_id: str) -> None:
        known = read_document(self._filesystem, directory, TOPIC_ID)
        if known == topic_id:
            return
        if known is not None:
            self._filesystem.rename(directory, self._aside(directory, known))
        make_directory(self._filesystem, directory)
        write_document(self._filesystem, directory, TOPIC_ID, topic_id)

    async def begin_anew(self, partition: Partition, at: Offset) -> None:
        """Empties a follower's log and begins it at an offset. What a crash in between leaves is copied again."""
        old, directory = partition.log, partition.log.directory
        old.abandon()
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, begin_at, self._filesystem, directory, at)
        except OSError as error:
            raise DiskFailed(f"{partition.at} cannot be begun anew: {error}") from error
        if self._by_name.get(partition.at) is partition:
            partition.begin_anew(Log.open(self._filesystem, directory, old.settings, facts=self.facts))

    def _remove(self, topic_id: bytes, number: int, *, put_aside: bool = True) -> None:
        partition = self._by_id.pop((topic_id, number), None)
        if partition is None:
            return
        del self._by_name[partition.at]
        partition.log.abandon()
        partition.follow(partition.leader_epoch)
        if put_aside:
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
                    if read_document(self._filesystem, directory, TOPIC_ID) == topic.topic_id.hex():
                        self._put_aside(directory, topic.topic_id)

    def _put_aside(self, log_directory: str, topic_id: bytes) -> None:
        directory = self._aside(log_directory, topic_id.hex())
        self._filesystem.rename(log_directory, directory)
        self._filesystem.sync_directory(self.data_directory)
        self._remove_soon(directory)

    def _remove_soon(self, directory: str) -> None:
        if directory not in self._removals:
            removal = asyncio.get_running_loop().create_task(self._remove_files(directory))
            self._removals[directory] = removal
            removal.add_done_callback(lambda _: self._removals.pop(directory))

    def _aside(self, directory: str, topic_id: str) -> str:
        """A name for what is put aside; what a partition left when it went from here before may still be there."""
        names = (f"{directory}.{topic_id}{f'-{number}' if number else ''}{REMOVED}" for number in count())
        return next(name for name in names if not self._filesystem.exists(name))

    async def _remove_files(self, directory: str) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._filesystem.remove_directory, directory)

    async def close(self) -> None:
        """Whatever the image shows from now on is for the next life."""
        self._is_closed = True
        if self._removals:
            await asyncio.wait(self._removals.values())
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
