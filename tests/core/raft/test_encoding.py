"""Raft's words as bytes: kept here for ever, and whatever else comes is refused."""

from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.core.raft.durable import Entry, EntryKind, HardState, Snapshot
from millpond.core.raft.encoding import (
    decode_entry,
    decode_hard_state,
    decode_message,
    decode_snapshot,
    encode_entry,
    encode_hard_state,
    encode_message,
    encode_snapshot,
)
from millpond.core.raft.membership import MEMBERS_MAX, Membership
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
from millpond.core.raft.settings import MESSAGE_BYTES_MAX, RaftSettings
from millpond.model.errors import InvalidSetting, MalformedMessage, UnreadableCommand

HEAD = "{:02x} 00000001 00000002 0000000000000005 "

# Added to, never changed: other versions say and keep these.
GOLDEN: list[tuple[Message, str]] = [
    (
        VoteRequest(sender=1, to=2, term=5, last_index=9, last_term=4, pre=True),
        HEAD.format(1) + "0000000000000009 0000000000000004 01 00",
    ),
    (VoteAnswer(sender=1, to=2, term=5, granted=True), HEAD.format(2) + "01 00"),
    (
        Append(
            sender=1,
            to=2,
            term=5,
            prev_index=9,
            prev_term=4,
            commit=8,
            entries=(Entry(10, 5, EntryKind.DATA, b"ab"), Entry(11, 5, EntryKind.NOOP, b"")),
        ),
        HEAD.format(3)
        + "0000000000000009 0000000000000004 0000000000000008 00000002"
        + "000000000000000a 0000000000000005 00 00000002 6162"
        + "000000000000000b 0000000000000005 01 00000000",
    ),
    (AppendAccepted(sender=1, to=2, term=5, match=7), HEAD.format(4) + "0000000000000007"),
    (
        AppendRejected(sender=1, to=2, term=5, prev_index=9, hint_index=3, hint_term=2),
        HEAD.format(5) + "0000000000000009 0000000000000003 0000000000000002",
    ),
    (Heartbeat(sender=1, to=2, term=5, round=6, commit=7), HEAD.format(6) + "0000000000000006 0000000000000007"),
    (HeartbeatAnswer(sender=1, to=2, term=5, round=6, session=8), HEAD.format(7) + "0000000000000006 0000000000000008"),
    (
        SnapshotChunk(
            sender=1,
            to=2,
            term=5,
            index=9,
            index_term=4,
            membership=Membership((1, 2), (3,)),
            bytes_total=6,
            position=4,
            data=b"ef",
        ),
        HEAD.format(8)
        + "0000000000000009 0000000000000004 000f 01 02 01 00000001 00000002 00000003"
        + "0000000000000006 0000000000000004 00000002 6566",
    ),
    (SnapshotWanted(sender=1, to=2, term=5, index=9, position=4), HEAD.format(9) + "0000000000000009 0000000000000004"),
    (TimeoutNow(sender=1, to=2, term=5, round=6, session=8), HEAD.format(10) + "0000000000000006 0000000000000008"),
]


@pytest.mark.parametrize(("message", "content"), GOLDEN, ids=lambda each: type(each).__name__)
def test_a_message_is_these_bytes(message: Message, content: str) -> None:
    written = b"\x01" + bytes.fromhex(content)
    assert encode_message(message) == written
    assert decode_message(written) == message
    assert decode_message(memoryview(written)) == message


def test_every_kind_of_message_has_its_bytes_here() -> None:
    assert {type(message) for message, _ in GOLDEN} == set(get_args(Message))


@pytest.mark.parametrize(("message", "content"), GOLDEN, ids=lambda each: type(each).__name__)
def test_a_message_cut_short_or_too_long_is_refused(message: Message, content: str) -> None:
    written = encode_message(message)
    for size in range(len(written)):
        with pytest.raises(MalformedMessage):
            decode_message(written[:size])
    with pytest.raises(MalformedMessage):
        decode_message(written + b"\0")


@given(st.sampled_from([message for message, _ in GOLDEN]), st.data())
def test_damaged_bytes_are_refused_or_are_another_message(message: Message, data: st.DataObject) -> None:
    written = bytearray(encode_message(message))
    for _ in range(data.draw(st.integers(1, 4))):
        written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_message(bytes(written))
    except MalformedMessage:
        return
    assert encode_message(decoded) == bytes(written)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(content: bytes) -> None:
    readers: list[Callable[[bytes], object]] = [decode_message, decode_entry, decode_hard_state, decode_snapshot]
    for read in readers:
        try:
            read(content)
        except (MalformedMessage, UnreadableCommand):
            continue


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (Entry(11, 5, EntryKind.DATA, b""), "cannot follow"),
        (Entry(10, 3, EntryKind.DATA, b""), "cannot follow"),
        (Entry(10, 6, EntryKind.DATA, b""), "term 6"),
        (Entry(10, 5, EntryKind.MEMBERSHIP, b"x"), "a membership"),
    ],
)
def test_entries_that_contradict_their_message_are_refused(entry: Entry, why: str) -> None:
    message = Append(sender=1, to=2, term=5, prev_index=9, prev_term=4, commit=8, entries=(entry,))
    with pytest.raises(MalformedMessage, match=why):
        decode_message(encode_message(message))


def test_more_than_a_message_may_have_is_refused_unread() -> None:
    with pytest.raises(MalformedMessage, match="no message has more"):
        decode_message(bytes(MESSAGE_BYTES_MAX + 1))
    many = bytes.fromhex("01" + HEAD.format(3) + "00" * 24 + "7fffffff")
    with pytest.raises(MalformedMessage, match="2147483647 entries do not fit"):
        decode_message(many)


def test_what_is_kept_on_disk_comes_back() -> None:
    entry = Entry(3, 2, EntryKind.MEMBERSHIP, Membership((1,)).to_bytes())
    assert decode_entry(encode_entry(entry)) == entry
    for state in (HardState(), HardState(9, 0), HardState(9, 4)):
        assert decode_hard_state(encode_hard_state(state)) == state
    snapshot = Snapshot(9, 4, Membership((1, 5), (7,)), b"state")
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot
    with pytest.raises(UnreadableCommand):
        decode_snapshot(encode_snapshot(snapshot)[:-1])


@pytest.mark.parametrize(
    "content",
    ["", "02 01 00 00000001", "01 02 00 00000002 00000001", "01 01 01 00000001 00000001", "01 01 00 ffffffff"],
)
def test_a_membership_that_cannot_be_is_refused(content: str) -> None:
    with pytest.raises(MalformedMessage):
        Membership.from_bytes(bytes.fromhex(content))
    with pytest.raises(MalformedMessage):
        Membership.from_bytes(bytes((1, MEMBERS_MAX, 1)) + bytes(4 * MEMBERS_MAX + 4))


@pytest.mark.parametrize(
    "wrong",
    [
        {"heartbeat_s": 0.0},
        {"heartbeat_s": 0.9},
        {"election_timeout_s_max": 0.5},
        {"clock_drift_max": 1.0},
        {"entry_bytes_max": MESSAGE_BYTES_MAX},
        {"learner_entries_behind_max": -1},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSetting):
        RaftSettings(**wrong)  # type: ignore[arg-type]
