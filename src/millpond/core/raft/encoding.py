"""Messages, entries, snapshots, terms and votes as bytes, big-endian.

    message     u8 version, 1 │ u8 kind │ i32 sender │ i32 to │ u64 term │ the fields of the kind, in `_KINDS`
    entry       u64 index │ u64 term │ u8 kind │ u32 length │ data
    hard state  u8 version, 1 │ u64 term │ i32 voted for, -1 for nobody
    snapshot    u8 version, 1 │ u64 index │ u64 term │ u16 length │ membership │ u32 length │ data

    a field is  u64, or u8 for what is yes or no, or u32 length and bytes, or u32 count and entries;
                a membership is u16 length and its own bytes (membership.py)

Kinds and versions are never renamed and never used for anything else. Lengths and counts are checked against the
bytes that are there before anything is made; what is cut short, too long or contradicts itself raises
MalformedMessage from a peer and UnreadableCommand from the disk.
Pure. Framing and checksums are the driver's.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NoReturn

from millpond.core.raft.durable import Entry, EntryKind, HardState, Snapshot
from millpond.core.raft.membership import NODE_ID_MAX, Membership
from millpond.core.raft.messages import (
    Append,
    AppendAccepted,
    AppendRejected,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    SnapshotChunk,
    SnapshotWanted,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
)
from millpond.core.raft.settings import ENTRIES_PER_MESSAGE_MAX, MESSAGE_BYTES_MAX, SNAPSHOT_BYTES_MAX
from millpond.model.errors import MalformedMessage, MillpondError, UnreadableCommand

_VERSION: Final = 1
_U8, _U16, _U32, _U64, _I32 = Struct(">B"), Struct(">H"), Struct(">I"), Struct(">Q"), Struct(">i")
_ENTRY: Final = Struct(">QQBI")
_NUMBER_MAX: Final = 2**63 - 1


class _Reader:
    """Hands out fields in order, never past the end."""

    __slots__ = ("_at", "_data", "_error")

    def __init__(self, data: bytes | memoryview, error: type[MillpondError]) -> None:
        self._data = memoryview(data)
        self._at = 0
        self._error = error

    def refuse(self, what: str) -> NoReturn:
        raise self._error(f"at byte {self._at} of {len(self._data)}: {what}")

    def finish(self) -> None:
        if self._at != len(self._data):
            self.refuse("more bytes than the fields have")

    def take(self, size: int) -> memoryview:
        if size > len(self._data) - self._at:
            self.refuse(f"{size} bytes are needed")
        self._at += size
        return self._data[self._at - size : self._at]

    def fixed(self, form: Struct) -> int:
        (value,) = form.unpack(self.take(form.size))
        return int(value)

    def version(self) -> None:
        version = self.fixed(_U8)
        if version != _VERSION:
            self.refuse(f"version {version} is not known here; a newer Millpond wrote it")

    def number(self) -> int:
        value = self.fixed(_U64)
        if value > _NUMBER_MAX:
            self.refuse(f"{value} is above {_NUMBER_MAX}")
        return value

    def node(self) -> int:
        value = self.fixed(_I32)
        if not 0 <= value <= NODE_ID_MAX:
            self.refuse(f"{value} is no node id")
        return value

    def flag(self) -> bool:
        value = self.fixed(_U8)
        if value > 1:
            self.refuse(f"{value} is neither yes nor no")
        return value == 1

    def data(self) -> bytes:
        return bytes(self.take(self.fixed(_U32)))

    def membership(self) -> Membership:
        return self._membership(bytes(self.take(self.fixed(_U16))))

    def _membership(self, data: bytes) -> Membership:
        try:
            return Membership.from_bytes(data)
        except MalformedMessage as wrong:
            self.refuse(str(wrong))

    def entry(self) -> Entry:
        index, term, kind, size = _ENTRY.unpack(self.take(_ENTRY.size))
        if kind not in _ENTRY_KINDS or not 0 < index <= _NUMBER_MAX or not 0 < term <= _NUMBER_MAX:
            self.refuse(f"an entry of kind {kind}, index {index}, term {term}")
        entry = Entry(index, term, _ENTRY_KINDS[kind], bytes(self.take(size)))
        if entry.kind is EntryKind.MEMBERSHIP:
            self._membership(entry.data)
        return entry

    def entries(self) -> tuple[Entry, ...]:
        count = self.fixed(_U32)
        if count > min(ENTRIES_PER_MESSAGE_MAX, (len(self._data) - self._at) // _ENTRY.size):
            self.refuse(f"{count} entries do not fit")
        return tuple(self.entry() for _ in range(count))


_ENTRY_KINDS: Final = {kind.value: kind for kind in EntryKind}

# How a field of each type is written and read.
_Field = tuple[Callable[[Any], bytes], Callable[[_Reader], object]]


def _sized(form: Struct, data: bytes) -> bytes:
    return form.pack(len(data)) + data


_NUMBER: _Field = (_U64.pack, _Reader.number)
_FLAG: _Field = (_U8.pack, _Reader.flag)
_DATA: _Field = (lambda data: _sized(_U32, data), _Reader.data)
_MEMBERS: _Field = (lambda members: _sized(_U16, members.to_bytes()), _Reader.membership)
_ENTRIES: _Field = (
    lambda entries: _U32.pack(len(entries)) + b"".join(encode_entry(entry) for entry in entries),
    _Reader.entries,
)

_KINDS: dict[int, tuple[type[Message], dict[str, _Field]]] = {
    1: (VoteRequest, {"last_index": _NUMBER, "last_term": _NUMBER, "pre": _FLAG, "transfer": _FLAG}),
    2: (VoteAnswer, {"granted": _FLAG, "pre": _FLAG}),
    3: (Append, {"prev_index": _NUMBER, "prev_term": _NUMBER, "commit": _NUMBER, "entries": _ENTRIES}),
    4: (AppendAccepted, {"match": _NUMBER}),
    5: (AppendRejected, {"prev_index": _NUMBER, "hint_index": _NUMBER, "hint_term": _NUMBER}),
    6: (Heartbeat, {"round": _NUMBER, "commit": _NUMBER}),
    7: (HeartbeatAnswer, {"round": _NUMBER, "session": _NUMBER}),
    8: (
        SnapshotChunk,
        {
            "index": _NUMBER,
            "index_term": _NUMBER,
            "membership": _MEMBERS,
            "bytes_total": _NUMBER,
            "position": _NUMBER,
            "data": _DATA,
        },
    ),
    9: (SnapshotWanted, {"index": _NUMBER, "position": _NUMBER}),
    10: (TimeoutNow, {"round": _NUMBER, "session": _NUMBER}),
}
_KIND_OF = {message: kind for kind, (message, _) in _KINDS.items()}


def encode_message(message: Message) -> bytes:
    kind = _KIND_OF[type(message)]
    fields = _KINDS[kind][1]
    return b"".join(
        (
            _U8.pack(_VERSION),
            _U8.pack(kind),
            _I32.pack(message.sender),
            _I32.pack(message.to),
            _U64.pack(message.term),
            *(write(getattr(message, name)) for name, (write, _) in fields.items()),
        )
    )


def decode_message(content: bytes | memoryview) -> Message:
    reader = _Reader(content, MalformedMessage)
    if len(content) > MESSAGE_BYTES_MAX:
        reader.refuse(f"no message has more than {MESSAGE_BYTES_MAX} bytes")
    reader.version()
    kind = reader.fixed(_U8)
    if kind not in _KINDS:
        reader.refuse(f"messages of kind {kind} are not known here")
    message_type, fields = _KINDS[kind]
    values: dict[str, Any] = {"sender": reader.node(), "to": reader.node(), "term": reader.number()}
    values |= {name: read(reader) for name, (_, read) in fields.items()}
    reader.finish()
    message = message_type(**values)
    _check(message, reader)
    return message


def _check(message: Message, reader: _Reader) -> None:
    """What fits each field, and still contradicts itself."""
    if isinstance(message, Append):
        index, term = message.prev_index, message.prev_term
        for entry in message.entries:
            if entry.index != index + 1 or entry.term < term:
                reader.refuse(f"entry {entry.index} of term {entry.term} cannot follow {index} of term {term}")
            index, term = entry.index, entry.term
        if term > message.term:
            reader.refuse(f"an entry of term {term} in a message of term {message.term}")
    if isinstance(message, SnapshotChunk):
        if message.position + len(message.data) > message.bytes_total or message.bytes_total > SNAPSHOT_BYTES_MAX:
            reader.refuse(f"a chunk at {message.position} of a snapshot of {message.bytes_total} bytes")
        if message.index_term > message.term or not message.membership.voters:
            reader.refuse("a snapshot of a later term, or without voters")


def encode_entry(entry: Entry) -> bytes:
    return _ENTRY.pack(entry.index, entry.term, entry.kind, len(entry.data)) + entry.data


def decode_entry(content: bytes | memoryview) -> Entry:
    reader = _Reader(content, UnreadableCommand)
    entry = reader.entry()
    reader.finish()
    return entry


def encode_hard_state(state: HardState) -> bytes:
    return _U8.pack(_VERSION) + _U64.pack(state.term) + _I32.pack(-1 if state.voted_for is None else state.voted_for)


def decode_hard_state(content: bytes | memoryview) -> HardState:
    reader = _Reader(content, UnreadableCommand)
    reader.version()
    term, voted_for = reader.number(), reader.fixed(_I32)
    reader.finish()
    if voted_for < -1:
        reader.refuse(f"a vote for {voted_for}")
    return HardState(term, None if voted_for == -1 else voted_for)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    return b"".join(
        (
            _U8.pack(_VERSION),
            _U64.pack(snapshot.index),
            _U64.pack(snapshot.term),
            _sized(_U16, snapshot.membership.to_bytes()),
            _sized(_U32, snapshot.data),
        )
    )


def decode_snapshot(content: bytes | memoryview) -> Snapshot:
    reader = _Reader(content, UnreadableCommand)
    reader.version()
    snapshot = Snapshot(reader.number(), reader.number(), reader.membership(), reader.data())
    reader.finish()
    return snapshot
