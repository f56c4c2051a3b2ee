"""What is kept of a ledger, as bytes: a whole one, and what changed since.

    version    u8     1
    start      i64    everything below is done
    end        i64    nothing from here on was ever handed out
    producer   i64    in whose name the doomed are sent on; -1: nobody's
    sequence   i32    the next number in it
    then for each change, in order: offsets first (i64) to last (i64) are
    kind       u8     0 done, 1 ready, 2 leased, 3 waiting, 4 doomed
    attempts   u32    not for 0
    leased:    lock_ms u32, holder (u16 length, UTF-8)
    waiting:   due i64, milliseconds since 1970
    doomed:    shift i64, reason (u16 length, UTF-8)

A whole document begins with nothing open; later ones are applied on top, in order. All numbers are big-endian.
Lanes and monotonic times are not kept: both are found anew. Pure.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from millpond.core.delivery.ledger import Change, Kept, Ledger
from millpond.core.delivery.runs import Runs
from millpond.core.delivery.states import Doomed, Lane, Leased, Ready, State, Waiting
from millpond.core.groups.fields import FieldReader
from millpond.model.errors import InvalidRecord

VERSION: Final = 1
_HEAD: Final = Struct(">Bqqqi")
_DONE: Final = Struct(">qqB")
_READY: Final = Struct(">qqBI")
_LEASED: Final = Struct(">qqBIIH")
_WAITING: Final = Struct(">qqBIq")
_DOOMED: Final = Struct(">qqBIqH")


def encode(ledger: Ledger, changes: Iterable[Change]) -> bytes:
    head = _HEAD.pack(VERSION, ledger.start, ledger.end, ledger.producer_id, ledger.next_sequence)
    return head + b"".join(_change(*change) for change in changes)


def encode_whole(ledger: Ledger) -> bytes:
    return encode(ledger, (Change(*run) for run in ledger.open_runs()))


def _change(first: int, last: int, state: State | None) -> bytes:
    match state:
        case None:
            return _DONE.pack(first, last, 0)
        case Ready():
            return _READY.pack(first, last, 1, state.attempts)
        case Leased():
            holder = state.holder.encode()
            return _LEASED.pack(first, last, 2, state.attempts, state.lock_ms, len(holder)) + holder
        case Waiting():
            return _WAITING.pack(first, last, 3, state.attempts, state.due_wall_ms)
        case Doomed():
            reason = state.reason.encode()
            return _DOOMED.pack(first, last, 4, state.attempts, state.sequence_shift, len(reason)) + reason


def decode(documents: Sequence[bytes]) -> Kept:
    """A whole one and those after it."""
    runs: Runs[State] = Runs()
    start = end = next_sequence = 0
    producer_id = -1
    for document in documents:
        fields = FieldReader(document)
        if (version := fields.uint8()) != VERSION:
            raise InvalidRecord(f"a ledger of version {version}; this broker reads {VERSION}: use a newer one")
        start, end = fields.int64(), fields.int64()
        producer_id, next_sequence = fields.int64(), fields.int32()
        while not fields.is_at_end:
            _apply(fields, runs)
    return Kept(start, end, producer_id, next_sequence, runs)


def _apply(fields: FieldReader, runs: Runs[State]) -> None:
    first, last = fields.int64(), fields.int64()
    if not 0 <= first <= last:
        raise InvalidRecord(f"offsets {first} to {last} are no run")
    kind = fields.uint8()
    if kind == 0:
        runs.clear(first, last)
        return
    attempts = fields.int32()
    match kind:
        case 1:
            state: State = Ready(attempts)
        case 2:
            lock_ms, holder = fields.int32(), fields.text()
            state = Leased(attempts, Lane.NORMAL, holder, lock_ms, 0)
        case 3:
            state = Waiting(attempts, Lane.NORMAL, fields.int64(), 0)
        case 4:
            shift, reason = fields.int64(), fields.text()
            state = Doomed(attempts, reason, shift)
        case _:
            raise InvalidRecord(f"a state of kind {kind}; those of version {VERSION} are 0 to 4")
    runs.set(first, last, state)
