"""How a log comes to be on disk: nothing at first, files without waiting with its first batch, durable with its first
commit round. So a topic of a thousand partitions costs nothing until they are used, and never a sync on the loop.

    made      directory, `topic-id.unfounded`, `checkpoint`, `leader-epochs`, first segment; in this order, unsynced
    founded   all of it synced, `topic-id.unfounded` renamed to `topic-id`, the directory and the one above it synced

Invariant: nobody is told of a batch before its log is founded, whatever the flush mode. So a directory that has
`topic-id.unfounded` and no `topic-id` holds nothing that anybody relies on, and is put aside: no state in between needs
to be understood. Names in a directory become durable in order, so a segment is never there without one of the two.
Blocks on the disk: `make` briefly, `sync` for long. Driven by log.py and rounds.py; read by opening.py.
"""

from millpond.model.ports import Filesystem
from millpond.storage.checkpoints import begin_document, read_document
from millpond.storage.epochs import LeaderEpochs
from millpond.storage.names import CHECKPOINT, LEADER_EPOCHS, TOPIC_ID, UNFOUNDED
from millpond.storage.recovery import Checkpoint
from millpond.storage.segment import Segment


class Founding:
    __slots__ = ("_directory", "_filesystem", "_owner", "is_made")

    def __init__(self, filesystem: Filesystem, directory: str, owner: str) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._owner = owner
        self.is_made = False

    def make(self, segment: Segment, checkpoint: Checkpoint, epochs: LeaderEpochs) -> None:
        """On the loop. One that failed can be tried again."""
        self._filesystem.make_directory(self._directory)
        begin_document(self._filesystem, self._directory, UNFOUNDED, self._owner)
        begin_document(self._filesystem, self._directory, CHECKPOINT, checkpoint.content())
        begin_document(self._filesystem, self._directory, LEADER_EPOCHS, epochs.pairs())
        segment.make()
        self.is_made = True

    def sync(self) -> None:
        """In a thread, once what was written to the segment is synced. One that failed is not tried again."""
        for name in (UNFOUNDED, CHECKPOINT, LEADER_EPOCHS):
            file = self._filesystem.open(f"{self._directory}/{name}")
            try:
                file.sync()
            finally:
                file.close()
        self._filesystem.rename(f"{self._directory}/{UNFOUNDED}", f"{self._directory}/{TOPIC_ID}")
        self._filesystem.sync_directory(self._directory)
        self._filesystem.sync_directory(self._directory.rpartition("/")[0] or ".")


def owner_of(filesystem: Filesystem, directory: str) -> str | None:
    """None where there is no telling."""
    owner: str | None = read_document(filesystem, directory, TOPIC_ID)
    return owner


def is_unfounded(filesystem: Filesystem, directory: str) -> bool:
    """Whether nobody was ever told of anything in it."""
    return filesystem.exists(f"{directory}/{UNFOUNDED}") and not filesystem.exists(f"{directory}/{TOPIC_ID}")
