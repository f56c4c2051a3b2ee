"""A snapshot that arrives in pieces.

Invariant: what is here is the snapshot's beginning, without gaps. Memory grows with what arrives, not with what is
announced. Pure. Belongs to raft.py.
"""

from millpond.core.raft.durable import Snapshot
from millpond.core.raft.messages import SnapshotChunk


class IncomingSnapshot:
    __slots__ = ("_data", "_first")

    def __init__(self, chunk: SnapshotChunk) -> None:
        self._first = chunk
        self._data = bytearray()

    @property
    def position(self) -> int:
        return len(self._data)

    def is_of(self, chunk: SnapshotChunk) -> bool:
        first = self._first
        return (chunk.sender, chunk.term, chunk.index, chunk.index_term, chunk.bytes_total) == (
            (first.sender, first.term, first.index, first.index_term, first.bytes_total)
        )

    def add(self, chunk: SnapshotChunk) -> None:
        """Takes the chunk if it is the next one; one that came before or too early changes nothing."""
        if chunk.position == len(self._data) and len(self._data) + len(chunk.data) <= chunk.bytes_total:
            self._data += chunk.data

    def whole(self) -> Snapshot | None:
        if len(self._data) < self._first.bytes_total:
            return None
        return Snapshot(self._first.index, self._first.index_term, self._first.membership, bytes(self._data))
