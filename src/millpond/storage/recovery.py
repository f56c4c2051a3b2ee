"""Opening a log as its last process left it: after an orderly close, after a kill, after a power cut.

An orderly close leaves a marker that names the last segment, its size and the next offset. The marker proves itself:
anything written since changes that size, and a truncation removes the marker for good before it touches the log.

Otherwise the checkpoint says up to which offset everything was synced, the *recovery point*. From there on, or from the
start of the segment that holds it where no index tells the place, every batch is checked:
- something not whole at or behind the recovery point was never acknowledged, or not yet synced: the log ends there;
- something not whole before it was whole once: that is damage. It is reported, stays where it is, is never served,
  and its offsets are never given to other records.

Invariant: whatever a power cut left, what is opened holds whole batches without gaps, everything that was ever
acknowledged, and is synced itself before it is served. A power cut during recovery is recovered from the same way.
Blocks on the disk. Driven by log.py.
"""

from dataclasses import field

from millpond.model.ids import LeaderEpoch, Offset
from millpond.model.ports import Filesystem
from millpond.model.values import dataclass
from millpond.protocol.records import BatchHeader
from millpond.storage.checkpoints import read_document, write_document
from millpond.storage.epochs import LeaderEpochs
from millpond.storage.index import SparseIndex
from millpond.storage.names import (
    CHECKPOINT,
    CLEAN_SHUTDOWN,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    PRODUCERS,
    UNFINISHED,
    UNFOUNDED,
    offset_file,
    offsets_of,
)
from millpond.storage.producers import ProducerStates
from millpond.storage.scan import Damage, scan_segment, skip_damage, whole_batches
from millpond.storage.segment import Segment
from millpond.storage.segments import Segments
from millpond.storage.settings import LogSettings
from millpond.storage.snapshots import remove_snapshots_beyond, restore_producers, write_snapshot


@dataclass(slots=True)
class RecoveryReport:
    """For people: what was found, and what was done about it."""

    clean: bool = False
    bytes_scanned: int = 0
    bytes_cut: int = 0
    """Torn tail: written, never acknowledged, not whole."""
    cut_reason: str | None = None
    segments_removed: int = 0
    damages: list[Damage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The `checkpoint` document. The one in memory is always the one on disk: it is written first, then believed."""

    recovery_point: Offset
    """Everything below was synced."""
    start_offset: Offset
    """Nothing below is served any more."""
    cleaned_to: Offset
    """Everything below was compacted once."""

    def write(self, filesystem: Filesystem, directory: str) -> None:
        write_document(filesystem, directory, CHECKPOINT, self.content())

    def content(self) -> dict[str, Offset]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def read(cls, filesystem: Filesystem, directory: str) -> "Checkpoint | None":
        content = read_document(filesystem, directory, CHECKPOINT)
        return None if content is None else cls(**content)

    @classmethod
    def guessed(cls, bases: list[Offset]) -> "Checkpoint":
        """Careful: what was sealed is taken as synced, so that no damage in it is mistaken for a tail."""
        return cls(recovery_point=bases[-1], start_offset=bases[0], cleaned_to=bases[0])


def recover(filesystem: Filesystem, directory: str, settings: LogSettings) -> "Recovery":
    """The directory is there; afterwards it holds a log, open at its end."""
    recovery = Recovery(filesystem, directory, settings)
    try:
        recovery.run()
    except BaseException:
        recovery.close()
        raise
    return recovery


def nothing_yet(filesystem: Filesystem, directory: str, settings: LogSettings) -> "Recovery":
    """What a log without files begins with; touches no disk."""
    recovery = Recovery(filesystem, directory, settings)
    recovery.report.clean = True
    recovery.segments.plan(recovery.checkpoint.start_offset)
    return recovery


def begin_at(filesystem: Filesystem, directory: str, offset: Offset) -> None:
    """Removes a log that is closed, whatever it holds, so that opening it begins an empty one at `offset`.

    A crash in the middle leaves a part of the old log, or none; whoever needs the new one begins again.
    """
    suffixes = (LOG, INDEX, PRODUCERS)
    names = [name for name in filesystem.list(directory) if name.endswith(suffixes)]
    for name in (*reversed(names), LEADER_EPOCHS, CLEAN_SHUTDOWN):
        if filesystem.exists(f"{directory}/{name}"):
            filesystem.remove(f"{directory}/{name}")
    filesystem.sync_directory(directory)
    Checkpoint(recovery_point=offset, start_offset=offset, cleaned_to=offset).write(filesystem, directory)


class Recovery:
    """One opening of one log; holds the parts that the log then takes over."""

    def __init__(self, filesystem: Filesystem, directory: str, settings: LogSettings) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._index_interval = settings.index_interval_bytes
        self.report = RecoveryReport()
        self.epochs = LeaderEpochs([])
        self.segments = Segments(filesystem, directory, self.epochs, index_interval=settings.index_interval_bytes)
        self.producers = ProducerStates()
        self._producers_since = Offset(0)
        self.checkpoint = Checkpoint(Offset(0), Offset(0), Offset(0))
        self._is_guess = False
        """Whether the checkpoint was lost, so that segments may be less synced than it says."""
        self._found: list[Segment] = []
        """Segments as the directory has them, before anything was checked."""

    def run(self) -> None:
        names = self._remove_unfinished()
        bases = offsets_of(names, LOG)
        if not bases:
            self._begin_empty()
            return
        checkpoint = Checkpoint.read(self._filesystem, self._directory)
        self.checkpoint, self._is_guess = checkpoint or Checkpoint.guessed(bases), checkpoint is None
        history = read_document(self._filesystem, self._directory, LEADER_EPOCHS)
        if history is not None:
            self.epochs.adopt(LeaderEpochs([(LeaderEpoch(epoch), Offset(start)) for epoch, start in history]))
        if history is None or not self._open_clean(bases):
            self._open_unclean(bases, believe_batches=history is None)
        self.segments.active.unseal()
        if self._filesystem.exists(f"{self._directory}/{CLEAN_SHUTDOWN}"):
            self._filesystem.remove(f"{self._directory}/{CLEAN_SHUTDOWN}")

    def close(self) -> None:
        self.segments.close()
        for segment in self._found:
            segment.close()

    def _remove_unfinished(self) -> list[str]:
        names = self._filesystem.list(self._directory)
        for name in names:
            if name.endswith(UNFINISHED) or name == UNFOUNDED:
                self._filesystem.remove(f"{self._directory}/{name}")
        return names

    def _begin_empty(self) -> None:
        """Every log has its documents and one segment, on disk, before anything is appended."""
        self.report.clean = True
        checkpoint = Checkpoint.read(self._filesystem, self._directory)
        if checkpoint is not None:
            # Of a log that was being removed, as `begin_at` does: what it knew to be on disk, or compacted, is gone.
            start = checkpoint.start_offset
            self.checkpoint = Checkpoint(recovery_point=start, start_offset=start, cleaned_to=start)
        self.checkpoint.write(self._filesystem, self._directory)
        write_document(self._filesystem, self._directory, LEADER_EPOCHS, [])
        self.segments.create(self.checkpoint.start_offset)
        self._filesystem.sync_directory(self._directory)
        self._sync_own_name()

    def _sync_own_name(self) -> None:
        """Whoever made the directory may have been killed before its name was durable."""
        self._filesystem.sync_directory(self._directory.rpartition("/")[0] or ".")

    def _find_segments(self, bases: list[Offset], end: Offset) -> None:
        following = [*bases[1:], end]
        self._found = [
            self.segments.existing(base, next_offset=next_offset)
            for base, next_offset in zip(bases, following, strict=True)
        ]

    # After an orderly close

    def _open_clean(self, bases: list[Offset]) -> bool:
        marker = read_document(self._filesystem, self._directory, CLEAN_SHUTDOWN)
        last = f"{self._directory}/{offset_file(bases[-1], LOG)}"
        if marker is None or marker["segment"] != bases[-1] or marker["bytes"] != self._filesystem.size(last):
            return False
        snapshot = read_document(self._filesystem, self._directory, offset_file(marker["next_offset"], PRODUCERS))
        if snapshot is None:
            return False
        self.report.clean = True
        self.producers = ProducerStates.restore(snapshot)
        self._find_segments(bases, Offset(marker["next_offset"]))
        for segment in self._found:
            self.segments.append(segment)
        return True

    # After anything else

    def _open_unclean(self, bases: list[Offset], *, believe_batches: bool) -> None:
        self._find_segments(bases, end=bases[-1])
        if believe_batches:
            self._epochs_from_batches()
        point = self.checkpoint.recovery_point
        sealed_count = max(0, sum(segment.base_offset < point for segment in self._found) - 1)
        self._take_sealed(self._found[:sealed_count])
        self.producers, self._producers_since = restore_producers(
            self._filesystem, self._directory, self.segments, first=bases[0], before=point
        )
        self._scan_tail(self._found[sealed_count:])
        end = self.segments.active.next_offset
        remove_snapshots_beyond(self._filesystem, self._directory, end)
        # The batches that tell of a producer may be among what was removed.
        write_snapshot(self._filesystem, self._directory, end, self.producers.snapshot())
        self.epochs.adopt(self.epochs.truncate(end))
        write_document(self._filesystem, self._directory, LEADER_EPOCHS, self.epochs.pairs())
        self.checkpoint = Checkpoint(
            recovery_point=end,
            # Behind the end only where a truncation into the middle of a batch was cut short.
            start_offset=min(max(self.checkpoint.start_offset, self.segments.first_offset), end),
            cleaned_to=min(self.checkpoint.cleaned_to, end),
        )
        self.checkpoint.write(self._filesystem, self._directory)
        self._remove_forgotten()
        self._filesystem.sync_directory(self._directory)
        self._sync_own_name()

    def _epochs_from_batches(self) -> None:
        """The history is lost, which no power cut does: whole batches are believed as far as they can be read."""
        pairs: list[tuple[LeaderEpoch, Offset]] = []
        for segment in self._found:
            for header in whole_batches(segment.content()):
                if not pairs or header.leader_epoch > pairs[-1][0]:
                    pairs.append((header.leader_epoch, header.base_offset))
            segment.close()
        self.epochs.adopt(LeaderEpochs(pairs))

    def _take_sealed(self, found: list[Segment]) -> None:
        """Segments that were synced whole. Two of them overlap where a merge by compaction was cut short."""
        for segment in found:
            if len(self.segments):
                before = self.segments.active
                if segment.base_offset < before.index.next_offset:
                    self._remove([segment])  # the one before holds all that is left of it
                    continue
                self._report_missing_between(before, segment)
            self._settle(segment)
            segment.next_offset = max(segment.next_offset, segment.index.next_offset)
            self.segments.append(segment)

    def _settle(self, segment: Segment) -> None:
        """One that no round has synced since it was sealed may have something blank behind it still.

        Where the next segment does not go on from its last batch, it stays as it is: what is blank there was written.
        """
        index = segment.index
        if (self._is_guess or index.log_bytes < segment.size) and index.next_offset >= segment.next_offset:
            segment.end_at(index, doubtful_from=index.log_bytes)

    def _report_missing_between(self, before: Segment, segment: Segment) -> None:
        """Unless nobody wants it any more: files before the start offset go in any order."""
        if before.index.next_offset < segment.base_offset > self.checkpoint.start_offset:
            self._report_missing(before)

    def _report_missing(self, segment: Segment) -> None:
        reason = "the batches that followed are missing"
        index = segment.index
        self.report.damages.append(Damage(segment.path, index.log_bytes, index.next_offset, reason))

    def _scan_tail(self, found: list[Segment]) -> None:
        """Checks every batch; the first that is not whole, at or behind the recovery point, ends the log."""
        point = self.checkpoint.recovery_point
        for number, segment in enumerate(found):
            if len(self.segments):
                before = self.segments.active
                if segment.base_offset < before.next_offset:
                    self._remove([segment])  # begun, and given up: what came next went on in the one before
                    continue
                if segment.base_offset > before.next_offset >= point:
                    self._remove(found[number:])  # what led here was never synced, so neither was this
                    break
                self._report_missing_between(before, segment)
                before.next_offset = segment.base_offset
            is_whole = self._scan(segment)
            self.segments.append(segment)
            if not is_whole:
                self._remove(found[number + 1 :])
                break
        if self.segments.active.next_offset < point:
            self._begin_behind_damage(point)

    def _scan(self, segment: Segment) -> bool:
        """Whether the segment is whole to its end; where it is not, it ends there from now on."""
        point = self.checkpoint.recovery_point
        index = self._index_at_checkpoint(segment)
        content = segment.content()
        begun_at = index.log_bytes
        while True:
            fault = scan_segment(
                content,
                index,
                epochs=self.epochs,
                index_interval=self._index_interval,
                on_producer=self._remember,
            )
            if fault is None or index.next_offset >= point:
                break
            self.report.damages.append(Damage(segment.path, index.log_bytes, index.next_offset, fault))
            if not skip_damage(content, index):
                break
        torn_bytes = len(content) - index.log_bytes if fault is not None else 0
        self.report.bytes_scanned += index.log_bytes + torn_bytes - begun_at
        if torn_bytes:
            self.report.bytes_cut += torn_bytes
            self.report.cut_reason = f"{segment.path} at byte {index.log_bytes}: {fault}"
        del content  # a map must be gone before its file is cut
        _, doubtful_from = index.position_at_or_before(max(point, segment.base_offset))
        segment.end_at(index, doubtful_from=doubtful_from)
        return torn_bytes == 0

    def _index_at_checkpoint(self, segment: Segment) -> SparseIndex:
        """What need not be scanned: everything before was synced, is indexed, and its producers are known."""
        index = SparseIndex.load(
            self._filesystem,
            segment.index_path,
            base_offset=segment.base_offset,
            log_bytes=segment.size,
            or_shorter=True,
        )
        if index is None or index.next_offset > min(self.checkpoint.recovery_point, self._producers_since):
            return SparseIndex(segment.base_offset)
        index.make_writable()
        return index

    def _remember(self, header: BatchHeader) -> None:
        if header.base_offset >= self._producers_since:
            self.producers.remember(header, base_offset=header.base_offset)

    def _begin_behind_damage(self, point: Offset) -> None:
        """Offsets that were given out once are never given out again, even where their records are gone."""
        last = self.segments.active
        if not any(damage.file == last.path for damage in self.report.damages):
            self._report_missing(last)
        last.next_offset = point
        self.segments.create(point)

    def _remove_forgotten(self) -> None:
        """What lies wholly before the start offset: its removal had been decided, and was cut short."""
        forgotten = self.segments.wholly_before(self.checkpoint.start_offset)
        self.segments.remove(forgotten)
        self._remove(forgotten)

    def _remove(self, segments: list[Segment]) -> None:
        for segment in reversed(segments):
            segment.close()
            segment.remove_files()
        self.report.segments_removed += len(segments)
