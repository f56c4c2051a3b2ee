"""What is kept of states as bytes: records of `__share_group_state`, and what brokers ask each other about it.

    a record's key     int16 0, text kind, text group, 16 bytes topic id, int32 partition
    a record's value   int16 0, int16 what it is, int64 epoch, int64 session, then
      0 taken            nothing
      1 change           int64 sequence, the document to the end
      2 whole            the same
      3 rewritten        int64 sequence, int32 count, then as many documents
    no value           forgotten

    a request          int16 what is asked, then
      0 load             data key, int64 epoch, int64 session
      1 keep a change    data key, int64 epoch, int64 session, int64 sequence, the document to the end
      2 keep a whole     the same
      3 forget           data key
      4 forget a group   text kind, text group
      5 find             text kind, text group or none, the topic id to the end
    an answer          int16 outcome, int32 count, then as many documents; int32 count, then as many keys

A text has an int16 length in front, data and a document an int32; a key in a request is what a record's key is.
Records whose key or value has another version are refused, so that nothing is lost that a newer Millpond wrote.
Pure; docs/formats/states.md tells the same to operators. Used by broker/drivers/state_shard.py, links.py and the
cluster's door.
"""

from functools import lru_cache
from struct import Struct
from typing import NamedTuple, assert_never

from millpond.core.delivery.kept import (
    Answer,
    Find,
    Forget,
    ForgetGroup,
    Forgotten,
    Keep,
    Kept,
    Load,
    Outcome,
    Record,
    Request,
    Rewritten,
    StateKey,
    Taken,
    Writer,
)
from millpond.core.groups.fields import FieldReader, FieldWriter
from millpond.model.errors import InvalidRecord

TOPIC_ID_BYTES = 16
_VERSION = 0
_DOCUMENT = Struct(">hhqqq")
_KEYS_REMEMBERED = 1_000
_TAKEN, _CHANGE, _WHOLE, _REWRITTEN = range(4)
_LOAD, _KEEP_CHANGE, _KEEP_WHOLE, _FORGET, _FORGET_GROUP, _FIND = range(6)


class KeyValue(NamedTuple):
    key: bytes
    value: bytes | None


def encode_record(record: Record) -> KeyValue:
    key = _encode_key(record.key)
    match record:
        case Taken(_, writer):
            return KeyValue(key, _value(_TAKEN, writer).bytes())
        case Kept(_, writer, sequence, document, whole):
            return KeyValue(key, _document(_WHOLE if whole else _CHANGE, writer, sequence, document))
        case Rewritten(_, writer, sequence, documents):
            return KeyValue(key, _with_documents(_value(_REWRITTEN, writer).int64(sequence), documents))
        case Forgotten():
            return KeyValue(key, None)
        case _:
            assert_never(record)


def decode_record(key: bytes, value: bytes | None) -> Record:
    """Raises InvalidRecord."""
    of = _decode_key(key)
    if value is None:
        return Forgotten(of)
    reader = FieldReader(value)
    _check_version(reader.int16())
    what, writer = reader.int16(), _read_writer(reader)
    match what:
        case 0:
            return Taken(of, writer)
        case 1 | 2:
            return Kept(of, writer, reader.int64(), reader.rest(), whole=what == _WHOLE)
        case 3:
            return Rewritten(of, writer, reader.int64(), _read_documents(reader))
        case _:
            raise InvalidRecord(f"a state's record of an unknown kind, {what}")


def encode_request(request: Request) -> bytes:
    match request:
        case Load(key, writer):
            return _named(_LOAD, key).int64(writer.epoch).int64(writer.session).bytes()
        case Keep(key, writer, sequence, document, whole):
            named = _named(_KEEP_WHOLE if whole else _KEEP_CHANGE, key).int64(writer.epoch).int64(writer.session)
            return named.int64(sequence).bytes() + document
        case Forget(key):
            return _named(_FORGET, key).bytes()
        case ForgetGroup(kind, group):
            return FieldWriter().int16(_FORGET_GROUP).text(kind).text(group).bytes()
        case Find(kind, group_or_none, topic_id):
            return FieldWriter().int16(_FIND).text(kind).text(group_or_none).bytes() + (topic_id or b"")
        case _:
            assert_never(request)


def decode_request(data: bytes) -> Request:
    """Raises InvalidRecord."""
    reader = FieldReader(data)
    what = reader.int16()
    if what == _FORGET_GROUP:
        return ForgetGroup(reader.text(), reader.text())
    if what == _FIND:
        return Find(reader.text(), reader.text_or_none(), reader.rest() or None)
    key = _decode_key(reader.data())
    match what:
        case 0:
            return Load(key, _read_writer(reader))
        case 1 | 2:
            return Keep(key, _read_writer(reader), reader.int64(), reader.rest(), whole=what == _KEEP_WHOLE)
        case 3:
            return Forget(key)
        case _:
            raise InvalidRecord(f"a request of an unknown kind about states, {what}")


def encode_answer(answer: Answer) -> bytes:
    keys = tuple(_encode_key(key) for key in answer.keys)
    return _with_documents(FieldWriter().int16(answer.outcome.value), answer.documents) + _with_documents(
        FieldWriter(), keys
    )


def decode_answer(data: bytes) -> Answer:
    """Raises InvalidRecord."""
    reader = FieldReader(data)
    try:
        outcome = Outcome(reader.int16())
    except ValueError as error:
        raise InvalidRecord(str(error)) from None
    documents = _read_documents(reader)
    return Answer(outcome, documents, tuple(_decode_key(key) for key in _read_documents(reader)))


@lru_cache(_KEYS_REMEMBERED)
def _encode_key(key: StateKey) -> bytes:
    assert len(key.topic_id) == TOPIC_ID_BYTES
    names = FieldWriter().int16(_VERSION).text(key.kind).text(key.group).bytes()
    return names + key.topic_id + FieldWriter().int32(key.partition).bytes()


def _decode_key(data: bytes) -> StateKey:
    reader = FieldReader(data)
    _check_version(reader.int16())
    kind, group, rest = reader.text(), reader.text(), reader.rest()
    end = FieldReader(rest[TOPIC_ID_BYTES:])
    return StateKey(kind, group, rest[:TOPIC_ID_BYTES], end.int32())


def _value(what: int, writer: Writer) -> FieldWriter:
    return FieldWriter().int16(_VERSION).int16(what).int64(writer.epoch).int64(writer.session)


def _document(what: int, writer: Writer, sequence: int, document: bytes) -> bytes:
    """As one that is written for every delivery."""
    return _DOCUMENT.pack(_VERSION, what, *writer, sequence) + document


def _named(what: int, key: StateKey) -> FieldWriter:
    return FieldWriter().int16(what).data(_encode_key(key))


def _with_documents(writer: FieldWriter, documents: tuple[bytes, ...]) -> bytes:
    writer.int32(len(documents))
    for document in documents:
        writer.data(document)
    return writer.bytes()


def _read_writer(reader: FieldReader) -> Writer:
    return Writer(reader.int64(), reader.int64())


def _read_documents(reader: FieldReader) -> tuple[bytes, ...]:
    return tuple(reader.data() for _ in range(reader.count()))


def _check_version(version: int) -> None:
    if version != _VERSION:
        raise InvalidRecord(f"a state's record of version {version}; this Millpond reads version {_VERSION}")
